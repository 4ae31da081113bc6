//! The superblock: identity, geometry and state of an image.
//!
//! [`Superblock::check`] is the door: it returns a superblock on whose geometry all arithmetic of
//! [`Layout`] is safe. Geometry can't be changed afterwards; counters, state and names can.
//!
//! # Reference
//! "Super Block" in the kernel's ext4 data structure pages.

mod errors;
mod fields;
mod geometry;
mod journal;
mod mount_options;
mod raw;
mod state;

pub use errors::ErrorRecord;
pub use journal::JournalBackup;
pub use mount_options::DEFAULT_MOUNT_OPTIONS;
pub use state::{ErrorPolicy, StateFlags, SuperblockFlags};

use crate::checksum::Checksums;
use crate::error::{Corrupt, FormatError, GeometryProblem, Unsupported};
use crate::features::{Compat, Features, Incompat, ReadOnlyCompat};
use crate::ids::GroupNumber;
use crate::layout::{Geometry, Layout};
use drystone_ondisk::{Field, crc32c};
use geometry::geometry_of;
use raw::RawSuperblock;
use std::fmt;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Where the primary superblock starts on the device, in bytes.
pub const SUPERBLOCK_OFFSET_BYTES: u64 = 1024;
/// Length of the superblock in bytes.
pub const SUPERBLOCK_BYTES: usize = 1024;

/// All fields.
pub const FIELDS: &[Field] = RawSuperblock::FIELDS;

const MAGIC: u16 = 0xef53;
/// The creator of an image that Linux uses.
pub const CREATOR_LINUX: u32 = 0;

/// The creator of an image that GNU Hurd uses: its inodes have other fields in place of some.
pub const CREATOR_HURD: u32 = 1;
/// An incompatible feature without a meaning, which [`mark_half_changed`] sets.
pub const HALF_CHANGED: u32 = 1 << 31;
const CHECKSUM_OFFSET: usize = core::mem::offset_of!(RawSuperblock, checksum);
const CHECKSUM_TYPE_CRC32C: u8 = 1;
const REVISION_DYNAMIC: u32 = 1;
/// First inode for files of revision 0, which has no field for it.
const OLD_FIRST_INODE: u32 = 11;
/// Bytes of an inode of revision 0.
const OLD_INODE_SIZE: u16 = 128;

/// A checked superblock.
#[derive(Clone)]
pub struct Superblock {
    raw: RawSuperblock,
    layout: Layout,
}

impl Superblock {
    /// Checks a superblock: magic, checksum, features, and every number that arithmetic relies on.
    ///
    /// Features that forbid writing are not an error; see [`Features::check_writable`]. The caller
    /// has to check that the device has as many blocks as the superblock says.
    pub fn check(bytes: &[u8]) -> Result<Self, FormatError> {
        let superblock = Self::check_unsealed(bytes)?;
        superblock.check_seal()?;
        Ok(superblock)
    }

    /// Checks everything but the checksum, for a checker that goes on despite a wrong one.
    pub fn check_unsealed(bytes: &[u8]) -> Result<Self, FormatError> {
        let raw = match RawSuperblock::read_from_prefix(bytes) {
            Ok((raw, _)) => raw,
            Err(_) => {
                return Err(Corrupt::Truncated {
                    structure: "superblock",
                    needed: SUPERBLOCK_BYTES,
                    found: bytes.len(),
                }
                .into());
            }
        };
        if raw.magic.get() != MAGIC {
            return Err(Corrupt::SuperblockMagic { found: raw.magic.get() }.into());
        }
        if raw.rev_level.get() > REVISION_DYNAMIC {
            return Err(Unsupported::Revision { revision: raw.rev_level.get() }.into());
        }
        let features = features_of(&raw);
        features.check_readable()?;
        if features.has_metadata_checksums() && raw.checksum_type != CHECKSUM_TYPE_CRC32C {
            return Err(Unsupported::ChecksumType { kind: raw.checksum_type }.into());
        }
        let layout = Layout::new(&geometry_of(&raw)?)?;
        let stored = raw.inodes_count.get();
        if stored != layout.inodes_count() {
            let expected = u64::from(layout.inodes_count());
            return Err(geometry(GeometryProblem::InodesCount { inodes: stored, expected }));
        }
        let superblock = Self { raw, layout };
        superblock.check_counters()?;
        Ok(superblock)
    }

    /// Makes the superblock of a new image: clean, no journal, nothing free, all else zero.
    pub fn create(geometry: &Geometry) -> Result<Self, FormatError> {
        let layout = Layout::new(geometry)?;
        let mut raw = RawSuperblock::new_zeroed();
        raw.magic.set(MAGIC);
        raw.rev_level.set(REVISION_DYNAMIC);
        store_geometry(&mut raw, geometry, &layout);
        raw.min_extra_isize.set(geometry.extra_inode_size);
        raw.want_extra_isize.set(geometry.extra_inode_size);
        let mut superblock = Self { raw, layout };
        superblock.set_state(StateFlags::CLEAN);
        superblock.set_error_policy(ErrorPolicy::Continue);
        Ok(superblock)
    }

    /// The numbers from which the layout follows, features and identity included.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        // `check` and `create` compared them, and nothing changes them afterwards.
        geometry_of(&self.raw).expect("the geometry was checked")
    }

    /// The same superblock with another geometry, checked again: for a change of the whole image.
    pub fn with_geometry(&self, geometry: &Geometry) -> Result<Self, FormatError> {
        let mut changed = self.clone();
        store_geometry(&mut changed.raw, geometry, &Layout::new(geometry)?);
        Self::check_unsealed(changed.raw.as_bytes())
    }

    /// The bytes to store, with their checksum.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes.copy_from_slice(self.raw.as_bytes());
        seal(&mut bytes);
        bytes
    }

    /// The bytes of the backup in `group`.
    #[must_use]
    pub fn encode_for_group(&self, group: GroupNumber) -> [u8; SUPERBLOCK_BYTES] {
        let mut copy = self.clone();
        // The field has 16 bits; the tools store the low half as well.
        copy.raw.block_group_nr.set(group.get() as u16);
        copy.encode()
    }

    fn check_seal(&self) -> Result<(), Corrupt> {
        if !self.features().has_metadata_checksums() {
            return Ok(());
        }
        let stored = self.raw.checksum.get();
        let computed = crc32c(!0, &self.raw.as_bytes()[..CHECKSUM_OFFSET]);
        if stored == computed {
            Ok(())
        } else {
            Err(Corrupt::SuperblockChecksum { stored, computed })
        }
    }

    fn check_counters(&self) -> Result<(), FormatError> {
        let total = self.layout.blocks_count();
        // Free blocks are not checked: a mount recounts them, and a stale sum isn't corruption.
        let reserved = self.reserved_blocks_count();
        if reserved > total {
            return Err(geometry(GeometryProblem::ReservedBlocks { reserved, total }));
        }
        Ok(())
    }

    /// Where the image keeps its parts.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The features of the image.
    #[must_use]
    pub fn features(&self) -> Features {
        features_of(&self.raw)
    }

    /// The same superblock with other features, checked again. They must not change the geometry.
    pub fn with_features(&self, features: Features) -> Result<Self, FormatError> {
        let mut changed = self.clone();
        changed.store_features(features);
        if features.has_metadata_checksums() {
            changed.raw.checksum_type = CHECKSUM_TYPE_CRC32C;
        }
        Self::check_unsealed(changed.raw.as_bytes())
    }

    fn store_features(&mut self, features: Features) {
        self.raw.feature_compat.set(features.compat.bits());
        self.raw.feature_incompat.set(features.incompat.bits());
        self.raw.feature_ro_compat.set(features.read_only_compat.bits());
        if features != Features::NONE {
            raise_revision(&mut self.raw);
        }
    }

    /// Records whether the journal must be replayed before the image is used.
    pub fn set_needs_recovery(&mut self, needed: bool) {
        let mut features = self.features();
        features.incompat.set(Incompat::RECOVER, needed);
        self.store_features(features);
    }

    /// Records whether the orphan file may hold orphans.
    pub fn set_orphan_present(&mut self, present: bool) {
        let mut features = self.features();
        features.read_only_compat.set(ReadOnlyCompat::ORPHAN_PRESENT, present);
        self.store_features(features);
    }

    /// Records that a file has become larger than 2 GiB, which readers must know.
    pub fn set_large_file(&mut self) {
        let mut features = self.features();
        features.read_only_compat.insert(ReadOnlyCompat::LARGE_FILE);
        self.store_features(features);
    }

    /// Records that there are extended attributes.
    pub fn set_extended_attributes(&mut self) {
        let mut features = self.features();
        features.compat.insert(Compat::EXT_ATTR);
        self.store_features(features);
    }

    /// Which checksums metadata have, and their seed.
    #[must_use]
    pub fn checksums(&self) -> Checksums {
        self.layout.checksums()
    }
}

impl fmt::Debug for Superblock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Superblock")
            .field("features", &self.features().to_string())
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Superblock {
    fn eq(&self, other: &Self) -> bool {
        self.encode() == other.encode()
    }
}

impl Eq for Superblock {}

/// Revision 0 has no features, and no fields for what it takes for granted.
fn raise_revision(raw: &mut RawSuperblock) {
    if raw.rev_level.get() < REVISION_DYNAMIC {
        raw.rev_level.set(REVISION_DYNAMIC);
        if raw.first_ino.get() == 0 {
            raw.first_ino.set(OLD_FIRST_INODE);
        }
        if raw.inode_size.get() == 0 {
            raw.inode_size.set(OLD_INODE_SIZE);
        }
    }
}

fn store_geometry(raw: &mut RawSuperblock, geometry: &Geometry, layout: &Layout) {
    let features = geometry.features;
    if features != Features::NONE || geometry.inode_size != OLD_INODE_SIZE {
        raise_revision(raw);
    }
    raw.feature_compat.set(features.compat.bits());
    raw.feature_incompat.set(features.incompat.bits());
    raw.feature_ro_compat.set(features.read_only_compat.bits());
    raw.uuid = geometry.uuid;
    raw.inodes_count.set(layout.inodes_count());
    raw.blocks_count_lo.set(low(geometry.blocks_count));
    raw.blocks_count_hi.set(high(geometry.blocks_count));
    raw.first_data_block.set(layout.first_data_block());
    raw.log_block_size.set(geometry.log_block_size);
    raw.log_cluster_size.set(geometry.log_cluster_size);
    raw.blocks_per_group.set(layout.blocks_per_group());
    raw.clusters_per_group.set(geometry.clusters_per_group);
    raw.inodes_per_group.set(geometry.inodes_per_group);
    if raw.rev_level.get() >= REVISION_DYNAMIC {
        raw.first_ino.set(geometry.first_inode);
        raw.inode_size.set(geometry.inode_size);
    }
    raw.reserved_gdt_blocks.set(geometry.reserved_descriptor_blocks);
    let is_wide = features.incompat.contains(Incompat::SIXTY_FOUR_BIT);
    raw.desc_size.set(if is_wide { geometry.descriptor_size } else { 0 });
    raw.first_meta_bg.set(geometry.first_meta_group);
    raw.log_groups_per_flex = geometry.log_groups_per_flex;
    for (field, group) in raw.backup_bgs.iter_mut().zip(geometry.backup_groups) {
        field.set(group);
    }
    if features.has_metadata_checksums() {
        raw.checksum_type = CHECKSUM_TYPE_CRC32C;
    }
    if features.incompat.contains(Incompat::CSUM_SEED) {
        raw.checksum_seed.set(geometry.checksum_seed);
    }
}

/// Computes and stores the checksum after bytes of a superblock were changed in place, if its features say that it
/// has one. The superblock need not be sound.
pub fn seal(bytes: &mut [u8; SUPERBLOCK_BYTES]) {
    let raw: &RawSuperblock = zerocopy::transmute_ref!(bytes);
    if features_of(raw).has_metadata_checksums() {
        let checksum = crc32c(!0, &bytes[..CHECKSUM_OFFSET]);
        bytes[CHECKSUM_OFFSET..].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Gives the superblock in the first bytes of an image a feature that nothing knows, so that everything refuses the
/// image. Does nothing if there is no sound superblock.
pub fn mark_half_changed(image: &mut [u8]) {
    let start = SUPERBLOCK_OFFSET_BYTES as usize;
    let Some(bytes) = image.get_mut(start..start + SUPERBLOCK_BYTES) else { return };
    let Ok(mut superblock) = Superblock::check(bytes) else { return };
    let mut features = superblock.features();
    features.incompat |= Incompat::from_bits_retain(HALF_CHANGED);
    superblock.store_features(features);
    bytes.copy_from_slice(&superblock.encode());
}

/// The superblock that [`mark_half_changed`] has marked, without its mark; its checksum isn't checked.
#[must_use]
pub fn without_half_changed_mark(bytes: &[u8]) -> Option<Superblock> {
    let (mut raw, _) = RawSuperblock::read_from_prefix(bytes).ok()?;
    let incompat = raw.feature_incompat.get();
    if incompat & HALF_CHANGED == 0 {
        return None;
    }
    raw.feature_incompat.set(incompat & !HALF_CHANGED);
    Superblock::check_unsealed(raw.as_bytes()).ok()
}

fn features_of(raw: &RawSuperblock) -> Features {
    Features {
        compat: Compat::from_bits_retain(raw.feature_compat.get()),
        incompat: Incompat::from_bits_retain(raw.feature_incompat.get()),
        read_only_compat: ReadOnlyCompat::from_bits_retain(raw.feature_ro_compat.get()),
    }
}

fn geometry(problem: GeometryProblem) -> FormatError {
    Corrupt::SuperblockGeometry { problem }.into()
}

fn join(low: u32, high: u32, wide: bool) -> u64 {
    if wide { u64::from(high) << 32 | u64::from(low) } else { u64::from(low) }
}

fn low(number: u64) -> u32 {
    number as u32
}

fn high(number: u64) -> u32 {
    (number >> 32) as u32
}

#[cfg(test)]
mod tests;
