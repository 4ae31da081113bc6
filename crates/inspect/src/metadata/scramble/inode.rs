//! Inodes: their fields stay, but for what isn't known to mean anything; what they hold is replaced.

use super::Scrambler;
use super::directory::DirectoryNames;
use super::fields::{get, set};
use super::key::Purpose;
use super::records::count_nonzero;
use crate::error::Result;
use crate::image::StoredInode;
use crate::names::inline_rest;
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::extent::NodePlace;
use drystone_ext4_format::features::ReadOnlyCompat;
use drystone_ext4_format::inline::PARENT_LENGTH;
use drystone_ext4_format::inode::{
    BLOCK_AREA_BYTES, BLOCK_AREA_OFFSET, EXTRA_FIELDS, FIELDS, Inode, InodeFlags, ModeFileType,
};
use drystone_ext4_format::xattr::InodeValueFields;
use drystone_ext4_format::{InodeNumber, PhysicalBlock};

/// Bytes of the part that all inodes have.
const BASE_BYTES: usize = 128;

/// Bytes in front of an encrypted target that count its bytes.
const TARGET_LENGTH_BYTES: usize = 2;

/// Bytes of a device's number in front of its inode's map.
const DEVICE_BYTES: usize = 8;

/// A number of references to a value that no image has.
const REFERENCES_WRONG: u64 = 1 << 40;

/// Fields that an inode of a sound image has zeros in.
const ZERO_FIELDS: [&str; 2] = ["obsolete_fragment", "reserved"];

/// Fields with times, which an inode without a checksum doesn't keep.
const TIMES: [&str; 3] = ["atime", "ctime", "mtime"];

/// Fields with the owner, which such an inode keeps only for quotas.
const OWNERS: [&str; 4] = ["uid_lo", "gid_lo", "uid_hi", "gid_hi"];

/// Flags that no inode has, but any text.
const UNUSUAL_FLAGS: InodeFlags = InodeFlags::SECURE_DELETE
    .union(InodeFlags::UNDELETE)
    .union(InodeFlags::COMPRESS)
    .union(InodeFlags::DIRTY)
    .union(InodeFlags::COMPRESSED_BLOCKS)
    .union(InodeFlags::NO_COMPRESS)
    .union(InodeFlags::IMAGIC)
    .union(InodeFlags::NO_TAIL)
    .union(InodeFlags::EOF_BLOCKS)
    .union(InodeFlags::SNAPSHOT)
    .union(InodeFlags::SNAPSHOT_DELETED)
    .union(InodeFlags::SNAPSHOT_SHRUNK)
    .union(InodeFlags::RESERVED);

impl Scrambler<'_, '_> {
    /// Whether an inode's bytes are known to be what was written.
    pub(super) fn is_verified(&self, bytes: &[u8], number: InodeNumber) -> bool {
        let layout = &self.image.layout;
        layout.checksum_seed().is_some() && Inode::check_checksum(bytes, number, layout).is_ok()
    }

    /// Rewrites the bytes of an inode.
    pub(super) fn inode(&self, number: InodeNumber, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let layout = &self.image.layout;
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let old = bytes.to_vec();
        bytes.fill(0);
        let is_verified = self.is_verified(&old, number);
        if !is_verified && !self.is_plausible(&old) {
            self.add_unclear(count_nonzero(&old));
            return Ok(());
        }
        if self.is_deleted(&old) {
            copy_deleted(&old, bytes);
        } else {
            self.copy_used(number, offset, &old, bytes, is_verified)?;
        }
        let has_right_checksum = Inode::check_checksum(&old, number, layout).is_ok();
        Inode::seal(bytes, number, if has_right_checksum { &self.new } else { &self.wrong });
        Ok(())
    }

    /// Copies the fields of an inode in use, and what it holds.
    fn copy_used(
        &self,
        number: InodeNumber,
        offset: u64,
        old: &[u8],
        bytes: &mut [u8],
        is_verified: bool,
    ) -> Result<()> {
        let extra = self.fields(old, bytes, is_verified);
        if let Ok(inode) = Inode::read(old, number, &self.image.layout) {
            let stored = StoredInode { inode, bytes: old.to_vec(), offset };
            self.content(&stored, bytes, is_verified)?;
        } else {
            // Where the fields end isn't known.
            self.add_unclear(old.get(BASE_BYTES + extra..).map_or(0, count_nonzero));
        }
        Ok(())
    }

    /// Whether an inode was deleted, and isn't on a list of inodes that a mount would delete: there, the time is the
    /// number of the next one.
    fn is_deleted(&self, old: &[u8]) -> bool {
        let inodes = u64::from(self.image.layout.inodes_count());
        get(old, FIELDS, "links_count") == 0 && get(old, FIELDS, "dtime") > inodes
    }

    /// Whether the block area of a link holds text: it has no size of one whose target is in a block, or not one block.
    fn holds_target(&self, inode: &Inode) -> bool {
        let layout = &self.image.layout;
        let pointers = inode.block_area.as_chunks::<4>().0;
        let is_block = |raw: &[u8; 4]| {
            let block = PhysicalBlock::new(u64::from(u32::from_le_bytes(*raw)));
            block.get() > u64::from(layout.first_data_block()) && layout.contains_blocks(block, 1)
        };
        let has_block_size =
            (BLOCK_AREA_BYTES as u64..=layout.block_size() as u64).contains(&inode.size_bytes);
        let has_one_block =
            is_block(&pointers[0]) && pointers[1..].iter().all(|raw| *raw == [0; 4]);
        inode.is_symlink()
            && !inode.flags.contains(InodeFlags::EXTENTS)
            && !(has_block_size && has_one_block)
    }

    /// Whether bytes that have no right checksum may be an inode with one mistake.
    fn is_plausible(&self, old: &[u8]) -> bool {
        let mode = get(old, FIELDS, "mode") as u16;
        let extra = get(old.get(BASE_BYTES..).unwrap_or_default(), EXTRA_FIELDS, "extra_isize");
        let room = old.len() - BASE_BYTES.min(old.len());
        let signs = [
            mode == 0 || ModeFileType::from_mode(mode).is_some(),
            get(old, FIELDS, "obsolete_fragment") == 0,
            get(old, FIELDS, "reserved") == 0,
            room == 0 || extra.is_multiple_of(4) && extra as usize <= room,
        ];
        signs.iter().filter(|sign| !**sign).count() <= 1
    }

    /// Copies what the fields say. Returns how many bytes of extra fields there are.
    fn fields(&self, old: &[u8], bytes: &mut [u8], is_verified: bool) -> usize {
        for field in FIELDS {
            let range = field.offset..field.offset + field.length;
            if field.name != "block" {
                bytes[range.clone()].copy_from_slice(&old[range]);
            }
        }
        for name in ZERO_FIELDS {
            set(bytes, FIELDS, name, u64::from(get(old, FIELDS, name) != 0));
        }
        set(bytes, FIELDS, "checksum_lo", 0);
        let layout = &self.image.layout;
        let high = get(old, FIELDS, "file_acl_hi");
        let block = high << 32 | get(old, FIELDS, "file_acl_lo");
        if block != 0 && !is_verified && !layout.contains_blocks(PhysicalBlock::new(block), 1) {
            set(bytes, FIELDS, "file_acl_lo", u32::MAX.into());
        }
        if !is_verified {
            self.forget_times(old, bytes);
            self.forget_owner(old, bytes);
        }
        let (Some(old), Some(bytes)) = (old.get(BASE_BYTES..), bytes.get_mut(BASE_BYTES..)) else {
            return 0;
        };
        let extra = get(old, EXTRA_FIELDS, "extra_isize");
        // A size that can't be right is all that is known.
        let known = if extra as usize <= old.len() { extra as usize } else { 2 };
        for field in EXTRA_FIELDS {
            let range = field.offset..field.offset + field.length;
            let is_kept = is_verified || matches!(field.name, "extra_isize" | "projid");
            if is_kept && range.end <= known.max(2) && range.end <= old.len() {
                bytes[range.clone()].copy_from_slice(&old[range]);
            }
        }
        set(bytes, EXTRA_FIELDS, "checksum_hi", 0);
        known
    }

    /// Replaces times, and numbers that say as little: where there is no checksum, they might be a part of a text.
    fn forget_times(&self, old: &[u8], bytes: &mut [u8]) {
        let inodes = u64::from(self.image.layout.inodes_count());
        let created = self.created_seconds;
        for name in TIMES {
            if get(old, FIELDS, name) != 0 {
                set(bytes, FIELDS, name, created);
            }
        }
        // Or the next inode of a list.
        let deleted = get(old, FIELDS, "dtime");
        if deleted > inodes {
            set(bytes, FIELDS, "dtime", created.max(inodes + 1));
        }
        set(bytes, FIELDS, "version_lo", 0);
        set(bytes, FIELDS, "generation", 0);
    }

    /// Clears other numbers of an inode without a checksum that might be a part of a text.
    fn forget_owner(&self, old: &[u8], bytes: &mut [u8]) {
        // Without quota nothing depends on them.
        let features = self.image.layout.features();
        if !features.read_only_compat.contains(ReadOnlyCompat::QUOTA) {
            OWNERS.iter().for_each(|name| set(bytes, FIELDS, name, 0));
        }
        let sectors = self.image.device.size_bytes() >> 9;
        if get(old, FIELDS, "blocks_lo") > sectors {
            set(bytes, FIELDS, "blocks_lo", u32::MAX.into());
        }
        let flags = InodeFlags::from_bits_retain(get(old, FIELDS, "flags") as u32);
        if flags.intersection(UNUSUAL_FLAGS).bits().count_ones() > 1 {
            set(bytes, FIELDS, "flags", flags.difference(UNUSUAL_FLAGS).bits().into());
        }
    }

    /// Replaces what an inode holds besides its fields.
    fn content(&self, stored: &StoredInode, bytes: &mut [u8], is_verified: bool) -> Result<()> {
        let inode = &stored.inode;
        let number = inode.number;
        let is_inline = inode.flags.contains(InodeFlags::INLINE_DATA);
        let mut names =
            (is_inline && inode.is_directory()).then(|| DirectoryNames::new(self, stored, None));
        if let Some(names) = &mut names {
            names.note(&inode.block_area[PARENT_LENGTH..]);
            names.note(&inline_rest(self.image, stored));
            names.find_repeated();
        }
        let mut area = inode.block_area;
        match &mut names {
            Some(names) => {
                let unclear = names.rewrite(LogicalBlock::FIRST, &mut area[PARENT_LENGTH..]);
                self.add_unclear(unclear);
                self.parent(&mut area);
            }
            None => self.block_area(inode, &mut area, is_verified),
        }
        bytes[BLOCK_AREA_OFFSET..BLOCK_AREA_OFFSET + BLOCK_AREA_BYTES].copy_from_slice(&area);
        let attributes = inode.attribute_area(&self.image.layout);
        if let Some(into) = bytes.get_mut(attributes.clone()) {
            into.copy_from_slice(&stored.bytes[attributes]);
            self.attributes_in_inode(into, number, &mut |value| match &mut names {
                Some(names) => {
                    let unclear = names.rewrite(LogicalBlock::new(1), value);
                    self.add_unclear(unclear);
                }
                None => {
                    self.text(inode, BLOCK_AREA_BYTES as u64, value);
                }
            })?;
        }
        if inode.flags.contains(InodeFlags::EA_INODE) {
            self.value_fields(stored, bytes)?;
        }
        Ok(())
    }

    /// The number of an inline directory's parent.
    fn parent(&self, area: &mut [u8; BLOCK_AREA_BYTES]) {
        let Some(parent) = area.first_chunk_mut::<PARENT_LENGTH>() else { return };
        if u32::from_le_bytes(*parent) > self.image.layout.inodes_count() {
            *parent = u32::MAX.to_le_bytes();
        }
    }

    /// Rewrites the map of blocks, or what lies there instead.
    fn block_area(&self, inode: &Inode, area: &mut [u8; BLOCK_AREA_BYTES], is_verified: bool) {
        let number = inode.number;
        let is_reserved = number < self.image.layout.first_inode();
        let kind = ModeFileType::from_mode(inode.mode);
        if inode.flags.contains(InodeFlags::INLINE_DATA)
            || inode.is_fast_symlink()
            || self.holds_target(inode)
        {
            self.text(inode, 0, area);
        } else if inode.has_block_mapping() || kind.is_none() && is_reserved {
            if inode.flags.contains(InodeFlags::EXTENTS) {
                self.extent_node(area, NodePlace::root(number), is_verified);
            } else {
                self.pointers(area);
            }
        } else {
            let device = inode.device();
            area.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            if let Some(device) = device {
                // What lies after its number is a mistake that stays.
                area[..DEVICE_BYTES].copy_from_slice(&device.encode()[..DEVICE_BYTES]);
            }
        }
    }

    /// Replaces text of an inode from an offset on: a target with its separators, or anything else.
    pub(super) fn text(&self, inode: &Inode, offset: u64, bytes: &mut [u8]) {
        let is_encrypted = inode.flags.contains(InodeFlags::ENCRYPT);
        // A length that can't be right may be text, too.
        let has_length = offset == 0
            && is_encrypted
            && inode.is_symlink()
            && bytes
                .first_chunk::<TARGET_LENGTH_BYTES>()
                .is_some_and(|length| u64::from(u16::from_le_bytes(*length)) <= inode.size_bytes);
        let skipped = if has_length { TARGET_LENGTH_BYTES } else { 0 };
        let mut random = self.key.stream(Purpose::Text, (inode.number.get(), offset));
        if inode.is_symlink() {
            let separator = (!is_encrypted).then_some(b'/');
            random.text(&mut bytes[skipped..], separator);
        } else {
            // Zeros in the middle tell something, too.
            let left = inode.size_bytes.saturating_sub(offset).min(bytes.len() as u64) as usize;
            random.letters(&mut bytes[..left]);
            bytes[left..].fill(0);
        }
    }

    /// The fields of times in an inode that holds a value: how often, and its hash.
    fn value_fields(&self, stored: &StoredInode, bytes: &mut [u8]) -> Result<()> {
        let old = &stored.bytes;
        let word = |name| get(old, FIELDS, name) as u32;
        let before = InodeValueFields::from_inode(word("ctime"), word("version_lo"), word("atime"));
        let hash = match self.value_hashes(stored.inode.number)? {
            Some((old, new)) if old == before.hash => new,
            Some((_, new)) => !new,
            None => 0,
        };
        let reference_count = match before.reference_count {
            known if known <= u64::from(self.image.layout.inodes_count()) * 2 => known,
            _ => REFERENCES_WRONG,
        };
        let after = InodeValueFields { reference_count, hash };
        let (change_time, version, access_time) = after.to_inode();
        set(bytes, FIELDS, "ctime", change_time.into());
        set(bytes, FIELDS, "version_lo", version.into());
        set(bytes, FIELDS, "atime", access_time.into());
        Ok(())
    }
}

/// Copies what is looked at of a deleted inode: that it was one.
fn copy_deleted(old: &[u8], bytes: &mut [u8]) {
    for name in ["mode", "dtime"] {
        set(bytes, FIELDS, name, get(old, FIELDS, name));
    }
    if let (Some(old), Some(bytes)) = (old.get(BASE_BYTES..), bytes.get_mut(BASE_BYTES..)) {
        set(bytes, EXTRA_FIELDS, "extra_isize", get(old, EXTRA_FIELDS, "extra_isize"));
    }
}
