//! Settings of an image: what the superblock says, and what follows from it.
//!
//! # Reference
//! `tune2fs(8)` for what each setting means; "Super Block" in the kernel's ext4 data structure pages.

mod checksums;
mod features;
mod files;
mod maps;
mod width;

use crate::error::{Refusal, Result};
use crate::image::{Image, ReshapeDevice};
use crate::progress::ReshapeProgress;
use drystone_ext4_format::checksum::Checksums;
use drystone_ext4_format::features::{Compat, FeatureChange, Features, Incompat};
use drystone_ext4_format::hash::HashVersion;
use drystone_ext4_format::superblock::{DEFAULT_MOUNT_OPTIONS, ErrorPolicy, Superblock};

/// Bytes of a label.
const LABEL_BYTES_MAX: usize = 16;
/// Bytes of the path of the last mount, and of mount options as text.
const TEXT_BYTES_MAX: usize = 64;
/// The names of default mount options.
pub fn mount_option_names() -> impl Iterator<Item = &'static str> {
    DEFAULT_MOUNT_OPTIONS.iter().map(|(name, ..)| *name)
}

/// A change of the default mount options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountOptionChange {
    set: u32,
    clear: u32,
}

impl MountOptionChange {
    /// Reads a list such as `discard,^acl`.
    ///
    /// # Errors
    /// The first name that is none.
    pub fn parse(list: &str) -> std::result::Result<Self, String> {
        let mut change = Self::default();
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (is_on, name) = match word.strip_prefix('^') {
                Some(name) => (false, name),
                None => (true, word),
            };
            let found = DEFAULT_MOUNT_OPTIONS.iter().find(|(known, ..)| *known == name);
            let Some((_, bits, mask)) = found else { return Err(name.to_owned()) };
            change.clear |= mask;
            change.set &= !mask;
            if is_on {
                change.set |= bits;
            }
        }
        Ok(change)
    }

    fn apply(self, options: u32) -> u32 {
        options & !self.clear | self.set
    }
}

/// How much space only a privileged user may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReservedSpace {
    /// So many blocks.
    Blocks(u64),
    /// So much of the image.
    Percent(f64),
}

/// What is to be changed; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Tuning {
    /// The label, at most 16 bytes.
    pub label: Option<Vec<u8>>,
    /// The identity.
    pub uuid: Option<[u8; 16]>,
    /// Space for a privileged user.
    pub reserved: Option<ReservedSpace>,
    /// That user.
    pub reserved_user: Option<u16>,
    /// A group that may use it, too.
    pub reserved_group: Option<u16>,
    /// What happens when an error is found.
    pub error_policy: Option<ErrorPolicy>,
    /// Default mount options.
    pub mount_options: Option<MountOptionChange>,
    /// More of them, as text.
    pub extended_mount_options: Option<Vec<u8>>,
    /// Mounts after which to check; 0 for never.
    pub max_mount_count: Option<u16>,
    /// Mounts since the last check.
    pub mount_count: Option<u16>,
    /// Seconds after which to check; 0 for never.
    pub check_interval_seconds: Option<u32>,
    /// When it was last checked, in seconds since 1970.
    pub check_time_seconds: Option<u64>,
    /// Where it was last mounted.
    pub last_mounted: Option<Vec<u8>>,
    /// Blocks on one disk of an array before the next.
    pub raid_stride_blocks: Option<u16>,
    /// Blocks of one stripe over all disks of an array.
    pub raid_stripe_blocks: Option<u32>,
    /// The hash of new directory indexes. The image keeps its signedness, which holds for the old ones too.
    pub hash_version: Option<HashVersion>,
    /// Features to turn on and off.
    pub features: FeatureChange,
    /// The size of the journal, which is replaced.
    pub journal_bytes: Option<u64>,
    /// Bytes of an inode, at least as many as before.
    pub inode_size: Option<u16>,
    /// Maps all files by extents, and turns that feature on.
    pub convert_maps: bool,
}

drystone_options::setters! {
    Tuning {
        label: impl Into<Option<Vec<u8>>>,
        uuid: impl Into<Option<[u8; 16]>>,
        reserved: impl Into<Option<ReservedSpace>>,
        reserved_user: impl Into<Option<u16>>,
        reserved_group: impl Into<Option<u16>>,
        error_policy: impl Into<Option<ErrorPolicy>>,
        mount_options: impl Into<Option<MountOptionChange>>,
        extended_mount_options: impl Into<Option<Vec<u8>>>,
        max_mount_count: impl Into<Option<u16>>,
        mount_count: impl Into<Option<u16>>,
        check_interval_seconds: impl Into<Option<u32>>,
        check_time_seconds: impl Into<Option<u64>>,
        last_mounted: impl Into<Option<Vec<u8>>>,
        raid_stride_blocks: impl Into<Option<u16>>,
        raid_stripe_blocks: impl Into<Option<u32>>,
        hash_version: impl Into<Option<HashVersion>>,
        features: FeatureChange,
        journal_bytes: impl Into<Option<u64>>,
        inode_size: impl Into<Option<u16>>,
        convert_maps: bool,
    }
}

impl Tuning {
    /// Whether more changes than what the superblock says.
    #[must_use]
    pub fn changes_structure(&self) -> bool {
        self.features != FeatureChange::default()
            || self.journal_bytes.is_some()
            || self.inode_size.is_some()
            || self.convert_maps
    }
}

/// What an image has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// Its features.
    pub features: Features,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Bytes of a group descriptor.
    pub descriptor_size: u16,
    /// Blocks of files that made room for metadata.
    pub blocks_moved: u64,
    /// Files whose block maps have become extents.
    pub maps_converted: u64,
}

/// Changes the settings of the image on `device`. `now` is in seconds since 1970.
///
/// # Errors
/// As [`ReshapeError`](crate::ReshapeError) says. The device has to be rolled back: parts may have been changed.
pub fn tune(
    device: &dyn ReshapeDevice,
    tuning: &Tuning,
    now: u64,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<Tuned> {
    let mut image = Image::open(device)?;
    let mut superblock = image.superblock.clone();
    set_fields(&mut superblock, tuning)?;
    let has_identity_changed = match tuning.uuid {
        Some(uuid) if uuid != superblock.uuid() => {
            superblock = with_uuid(&superblock, uuid)?;
            true
        }
        _ => false,
    };
    superblock.set_write_time_seconds(now);
    image.set_superblock(superblock);
    if has_identity_changed && image.layout.checksums() != Checksums::None {
        image.store_groups(progress)?;
    }
    let mut tuned = Tuned::of(&image);
    if tuning.changes_structure() {
        features::change(&mut image, tuning, now, &mut tuned, progress)?;
        image.store(progress)?;
    } else {
        image.store_superblock()?;
        device.flush()?;
    }
    let Tuned { blocks_moved, maps_converted, .. } = tuned;
    Ok(Tuned { blocks_moved, maps_converted, ..Tuned::of(&image) })
}

impl Tuned {
    fn of(image: &Image<'_>) -> Self {
        Self {
            features: image.superblock.features(),
            // Both are bounded by the layout's checks.
            inode_size: image.layout.inode_size() as u16,
            descriptor_size: image.layout.descriptor_size() as u16,
            blocks_moved: 0,
            maps_converted: 0,
        }
    }
}

fn set_fields(superblock: &mut Superblock, tuning: &Tuning) -> Result<(), Refusal> {
    if let Some(label) = &tuning.label {
        superblock.set_volume_name(text("a label", label, LABEL_BYTES_MAX)?);
    }
    if let Some(reserved) = tuning.reserved {
        let blocks = reserved_blocks(reserved, superblock.layout().blocks_count())?;
        superblock.set_reserved_blocks_count(blocks);
    }
    if let Some(user) = tuning.reserved_user {
        superblock.set_reserved_user(user);
    }
    if let Some(group) = tuning.reserved_group {
        superblock.set_reserved_group(group);
    }
    if let Some(policy) = tuning.error_policy {
        superblock.set_error_policy(policy);
    }
    if let Some(change) = tuning.mount_options {
        superblock.set_default_mount_options(change.apply(superblock.default_mount_options()));
    }
    if let Some(options) = &tuning.extended_mount_options {
        superblock.set_mount_options(text("mount options as text", options, TEXT_BYTES_MAX)?);
    }
    if let Some(count) = tuning.max_mount_count {
        // As a signed number: 0 would mean the same to Linux, and e2fsck shows -1 for never.
        superblock.set_max_mount_count(if count == 0 { u16::MAX } else { count });
    }
    if let Some(count) = tuning.mount_count {
        superblock.set_mount_count(count);
    }
    if let Some(seconds) = tuning.check_interval_seconds {
        superblock.set_check_interval_seconds(seconds);
    }
    if let Some(seconds) = tuning.check_time_seconds {
        superblock.set_check_time_seconds(seconds);
    }
    if let Some(path) = &tuning.last_mounted {
        superblock.set_last_mounted(text("the path of the last mount", path, TEXT_BYTES_MAX)?);
    }
    if let Some(blocks) = tuning.raid_stride_blocks {
        superblock.set_raid_stride_blocks(blocks);
    }
    if let Some(blocks) = tuning.raid_stripe_blocks {
        superblock.set_raid_stripe_blocks(blocks);
    }
    if let Some(version) = tuning.hash_version {
        if version == HashVersion::SipHash {
            return Err(Refusal::Value("directories of this kind choose that hash".into()));
        }
        superblock.set_hash_version(version);
    }
    Ok(())
}

fn text<'t>(what: &str, text: &'t [u8], length_max: usize) -> Result<&'t [u8], Refusal> {
    if text.len() > length_max || text.contains(&0) {
        let length = text.len();
        let problem =
            format!("{what} has at most {length_max} bytes and no zeros; this has {length}");
        return Err(Refusal::Value(problem));
    }
    Ok(text)
}

fn reserved_blocks(reserved: ReservedSpace, total: u64) -> Result<u64, Refusal> {
    let blocks = match reserved {
        ReservedSpace::Blocks(blocks) => blocks,
        ReservedSpace::Percent(percent) if (0.0..=50.0).contains(&percent) => {
            (total as f64 * percent / 100.0) as u64
        }
        ReservedSpace::Percent(percent) => {
            return Err(Refusal::Value(format!("{percent} % can't be reserved: 0 to 50 can")));
        }
    };
    // More would leave users less than half.
    if blocks > total / 2 {
        let problem = format!("{blocks} of {total} blocks can't be reserved: half of them can");
        return Err(Refusal::Value(problem));
    }
    Ok(blocks)
}

/// The superblock with another identity, which checksums don't notice.
fn with_uuid(superblock: &Superblock, uuid: [u8; 16]) -> Result<Superblock> {
    let mut geometry = superblock.geometry();
    let features = geometry.features;
    let refuse = |text: &str| Err(Refusal::Value(text.to_owned()).into());
    if features.compat.contains(Compat::STABLE_INODES) {
        return refuse("its UUID can't change: encrypted files depend on it (stable_inodes)");
    }
    if superblock.has_journal() && superblock.journal_inode().is_none() {
        return refuse("its UUID can't change: its journal on another device knows it by the UUID");
    }
    match geometry.checksums() {
        // What was computed from the UUID is stored as the seed.
        Checksums::All(seed) => {
            geometry.features.incompat |= Incompat::CSUM_SEED;
            geometry.checksum_seed = seed.get();
        }
        _ if features.incompat.contains(Incompat::EA_INODE) => {
            return refuse("its UUID can't change: large attributes depend on it (ea_inode)");
        }
        _ => {}
    }
    geometry.uuid = uuid;
    Ok(superblock.with_geometry(&geometry)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_mount_options() {
        let change = MountOptionChange::parse("discard,^acl, journal_data_writeback").unwrap();
        assert_eq!(change.apply(0x2c), 0x464);
        assert_eq!(MountOptionChange::parse("^journal_data").unwrap().apply(0x6c), 0xc);
        assert_eq!(MountOptionChange::parse("acl,sync"), Err("sync".to_owned()));
    }

    #[test]
    fn more_than_half_is_never_reserved() {
        assert_eq!(reserved_blocks(ReservedSpace::Percent(5.0), 1000), Ok(50));
        assert_eq!(reserved_blocks(ReservedSpace::Blocks(500), 1000), Ok(500));
        assert!(reserved_blocks(ReservedSpace::Blocks(501), 1000).is_err());
        assert!(reserved_blocks(ReservedSpace::Percent(f64::NAN), 1000).is_err());
    }
}
