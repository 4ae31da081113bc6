//! The superblock and its copies: another identity, and no text.

use super::Scrambler;
use super::fields::{get, place, set};
use super::key::Purpose;
use super::records::count_nonzero;
use crate::error::Result;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::extent::NodePlace;
use drystone_ext4_format::features::{Compat, Incompat, ReadOnlyCompat};
use drystone_ext4_format::inode::BLOCK_AREA_BYTES;
use drystone_ext4_format::superblock::{self, FIELDS, SUPERBLOCK_BYTES, Superblock};
use drystone_ondisk::Field;

/// The magic number.
const MAGIC: u64 = 0xef53;

/// The kind of a copy of the journal's inode that is known.
const JOURNAL_BACKUP: u64 = 1;

/// Text, what stays of it, and what it becomes.
const TEXTS: [(&str, Option<u8>); 2] = [("volume_name", None), ("last_mounted", Some(b'/'))];

/// Where text may be that nothing needs.
const CLEARED: [&str; 3] = ["mount_opts", "reserved", "reserved_pad"];

/// Names of functions, which are those of a program.
const FUNCTIONS: [&str; 2] = ["first_error_func", "last_error_func"];

/// Numbers that nothing checks. They are kept only with a right checksum: otherwise they may be a part of a text.
const UNCHECKED: [&str; 29] = [
    "algorithm_usage_bitmap",
    "prealloc_blocks",
    "prealloc_dir_blocks",
    "minor_rev_level",
    "kbytes_written",
    "snapshot_inum",
    "snapshot_id",
    "snapshot_r_blocks_count",
    "snapshot_list",
    "lpf_ino",
    "first_error_time",
    "first_error_time_hi",
    "first_error_ino",
    "first_error_block",
    "first_error_line",
    "first_error_errcode",
    "last_error_time",
    "last_error_time_hi",
    "last_error_ino",
    "last_error_block",
    "last_error_line",
    "last_error_errcode",
    "overhead_clusters",
    "raid_stride",
    "raid_stripe_width",
    "mtime_hi",
    "wtime_hi",
    "lastcheck_hi",
    "mkfs_time_hi",
];

/// Inodes with a purpose.
const INODES: [&str; 6] = [
    "journal_inum",
    "last_orphan",
    "usr_quota_inum",
    "grp_quota_inum",
    "prj_quota_inum",
    "orphan_file_inum",
];

/// Bytes in which a superblock with a mistake differs from the one that is used. With more it was overwritten.
const MISTAKE_BYTES_MAX: usize = 8;

/// The last system that images are made by, by its number.
const CREATOR_MAX: u64 = 4;

/// Flags that mean something: how names are hashed, and that the image is for tests.
const KNOWN_FLAGS: u64 = 7;

/// Times, of which then only days are kept.
const TIMES: [&str; 4] = ["mtime", "wtime", "lastcheck", "mkfs_time"];
const TIME_PRECISION: u64 = 1 << 16;

/// What is free in all groups.
#[derive(Clone, Copy, Default)]
pub(super) struct FreeCounts {
    blocks: u64,
    inodes: u64,
}

impl Scrambler<'_, '_> {
    /// Adds up what is free.
    pub(super) fn free_counts(&self) -> Result<FreeCounts> {
        let mut free = FreeCounts::default();
        let ratio = self.image.layout.log_cluster_ratio();
        self.image.each_descriptor(&mut |_, descriptor, _| {
            free.blocks += u64::from(descriptor.free_clusters_count) << ratio;
            free.inodes += u64::from(descriptor.free_inodes_count);
            Ok(true)
        })?;
        Ok(free)
    }

    /// Another UUID in place of one; the same for the same one.
    pub(super) fn uuid(&self, old: [u8; 16]) -> [u8; 16] {
        let mut new = old;
        if old != [0; 16] {
            self.key.stream(Purpose::Uuid, old).fill(&mut new);
            // A random one, as RFC 4122 marks them.
            new[6] = new[6] & 0x0f | 0x40;
            new[8] = new[8] & 0x3f | 0x80;
        }
        new
    }

    /// Rewrites a superblock, with other numbers of free blocks and inodes if they are given.
    pub(super) fn superblock(&self, bytes: &mut [u8; SUPERBLOCK_BYTES], free: Option<FreeCounts>) {
        let old = *bytes;
        bytes.fill(0);
        if get(&old, FIELDS, "magic") != MAGIC {
            self.add_unclear(count_nonzero(&old));
            return;
        }
        let is_sealed = Superblock::check(&old).is_ok();
        let is_verified = is_sealed && self.image.layout.checksum_seed().is_some();
        for field in FIELDS {
            let is_private = TEXTS.iter().any(|(name, _)| *name == field.name)
                || CLEARED.contains(&field.name)
                || FUNCTIONS.contains(&field.name)
                || field.name == "jnl_blocks";
            if !is_private && (is_verified || !UNCHECKED.contains(&field.name)) {
                let range = field.offset..field.offset + field.length;
                bytes[range.clone()].copy_from_slice(&old[range]);
            }
        }
        if Superblock::check_unsealed(&old).is_err() {
            self.keep_mistakes(bytes);
        }
        if !is_verified {
            self.limit_numbers(bytes);
        }
        self.texts(&old, bytes);
        self.identity(&old, bytes);
        self.journal_backup(&old, bytes, is_verified);
        if self.is_replayed {
            self.forget_log(bytes);
        }
        if let Some(free) = free {
            set(bytes, FIELDS, "free_blocks_count_lo", free.blocks);
            set(bytes, FIELDS, "free_blocks_count_hi", free.blocks >> 32);
            set(bytes, FIELDS, "free_inodes_count", free.inodes);
        }
        set(bytes, FIELDS, "checksum", 0);
        superblock::seal(bytes);
        if !is_sealed && Superblock::check(bytes).is_ok() {
            let checksum = get(bytes, FIELDS, "checksum");
            set(bytes, FIELDS, "checksum", !checksum);
        }
    }

    /// Clears the features that a mount clears when it has replayed the log.
    fn forget_log(&self, bytes: &mut [u8; SUPERBLOCK_BYTES]) {
        let incompat = get(bytes, FIELDS, "feature_incompat");
        let recover = u64::from(Incompat::RECOVER.bits());
        set(bytes, FIELDS, "feature_incompat", incompat & !recover);
        if !self.has_orphans {
            let read_only = get(bytes, FIELDS, "feature_ro_compat");
            let present = u64::from(ReadOnlyCompat::ORPHAN_PRESENT.bits());
            set(bytes, FIELDS, "feature_ro_compat", read_only & !present);
        }
    }

    /// Keeps mistakes of a superblock that can't be used. If there are more than a few, it was overwritten: then only what
    /// is as in the one that is used stays.
    fn keep_mistakes(&self, bytes: &mut [u8; SUPERBLOCK_BYTES]) {
        let used = self.image.superblock.encode();
        let wrong_bytes = |bytes: &[u8], field: &Field| -> usize {
            let range = field.offset..field.offset + field.length;
            // Private text is still missing.
            let pairs = bytes[range.clone()].iter().zip(&used[range]);
            pairs.filter(|(found, used)| found != used && **found != 0).count()
        };
        let wrong: usize = FIELDS.iter().map(|field| wrong_bytes(bytes, field)).sum();
        if wrong > MISTAKE_BYTES_MAX {
            self.add_unclear(wrong as u64);
            for field in FIELDS.iter().filter(|field| field.name != "magic") {
                if wrong_bytes(bytes, field) > 0 {
                    bytes[field.offset..field.offset + field.length].fill(0);
                }
            }
        }
    }

    /// Replaces numbers that can't be right by others that can't be either, and those that nothing checks by less exact
    /// ones: without a right checksum they might be a part of a text.
    fn limit_numbers(&self, bytes: &mut [u8; SUPERBLOCK_BYTES]) {
        let mut change = |name: &str, new: &dyn Fn(u64) -> u64| {
            let number = get(bytes, FIELDS, name);
            set(bytes, FIELDS, name, new(number));
        };
        let layout = &self.image.layout;
        let features = layout.features();
        let limit = |limit: u64| move |number: u64| if number <= limit { number } else { u64::MAX };
        let only_with = |is_kept: bool| move |number: u64| if is_kept { number } else { 0 };
        for name in TIMES {
            change(name, &|seconds| seconds & !(TIME_PRECISION - 1));
        }
        for name in INODES.into_iter().chain(["free_inodes_count"]) {
            change(name, &limit(layout.inodes_count().into()));
        }
        let is_wide = features.incompat.contains(Incompat::SIXTY_FOUR_BIT);
        for name in ["blocks_count_hi", "r_blocks_count_hi", "free_blocks_count_hi"] {
            change(name, &only_with(is_wide));
        }
        let blocks = layout.blocks_count();
        change("free_blocks_count_lo", &limit(if is_wide { u64::MAX } else { blocks }));
        change("free_blocks_count_hi", &limit(blocks >> 32));
        change("mmp_block", &limit(blocks));
        change("error_count", &|count| count.min(1));
        change("journal_dev", &|device| device.min(1));
        change("creator_os", &limit(CREATOR_MAX));
        change("flags", &|flags| flags & KNOWN_FLAGS);
        change("checksum_type", &only_with(features.has_metadata_checksums()));
        let is_encrypted = features.incompat.contains(Incompat::ENCRYPT);
        change("encrypt_algos", &only_with(is_encrypted));
        change("backup_bgs", &only_with(features.compat.contains(Compat::SPARSE_SUPER2)));
    }

    fn texts(&self, old: &[u8; SUPERBLOCK_BYTES], bytes: &mut [u8; SUPERBLOCK_BYTES]) {
        for (name, kept) in TEXTS {
            let range = place(FIELDS, name);
            let text = &mut bytes[range.clone()];
            text.copy_from_slice(&old[range]);
            self.key.stream(Purpose::Label, name).text(text, kept);
        }
        for name in FUNCTIONS {
            let range = place(FIELDS, name);
            let is_name =
                |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
            let end = old[range.clone()].iter().position(|byte| *byte == 0).unwrap_or(range.len());
            let range = range.start..range.start + end;
            if old[range.clone()].iter().all(is_name) {
                bytes[range.clone()].copy_from_slice(&old[range]);
            }
        }
    }

    fn identity(&self, old: &[u8; SUPERBLOCK_BYTES], bytes: &mut [u8; SUPERBLOCK_BYTES]) {
        for name in ["uuid", "journal_uuid", "encrypt_pw_salt"] {
            let range = place(FIELDS, name);
            let mut uuid = [0; 16];
            uuid.copy_from_slice(&old[range.clone()]);
            bytes[range].copy_from_slice(&self.uuid(uuid));
        }
        let seed = get(old, FIELDS, "checksum_seed") as u32;
        set(bytes, FIELDS, "checksum_seed", self.checksum_seed(seed).into());
        let range = place(FIELDS, "hash_seed");
        let mut words = [0; 4];
        for (word, raw) in words.iter_mut().zip(old[range.clone()].as_chunks().0) {
            *word = u32::from_le_bytes(*raw);
        }
        let new = self.new_hash_seed(words);
        for (raw, word) in bytes[range].as_chunks_mut().0.iter_mut().zip(new) {
            *raw = word.to_le_bytes();
        }
    }

    /// Another seed of checksums in place of one that is stored.
    pub(super) fn checksum_seed(&self, old: u32) -> u32 {
        if old == 0 { 0 } else { self.key.number(Purpose::Seed, old) as u32 }
    }

    /// The seed of hashes in place of one: that of the image, or one that a copy of its superblock alone has.
    fn new_hash_seed(&self, old: [u32; 4]) -> [u32; 4] {
        if old == self.hash_seed.0 { self.hash_seed.1 } else { self.drawn_hash_seed(old, 0) }
    }

    /// One of many seeds in place of one. No seed stays none.
    pub(super) fn drawn_hash_seed(&self, old: [u32; 4], number: u64) -> [u32; 4] {
        let mut random = self.key.stream(Purpose::Seed, (old, number));
        old.map(|_| if old == [0; 4] { 0 } else { random.number() as u32 })
    }

    /// The copy of the map of the journal's blocks, with its size after it.
    fn journal_backup(
        &self,
        old: &[u8; SUPERBLOCK_BYTES],
        bytes: &mut [u8; SUPERBLOCK_BYTES],
        is_verified: bool,
    ) {
        let range = place(FIELDS, "jnl_blocks");
        if get(old, FIELDS, "jnl_backup_type") != JOURNAL_BACKUP {
            return;
        }
        let copy = &mut bytes[range.clone()];
        copy.copy_from_slice(&old[range]);
        let (map, size) = copy.split_at_mut(BLOCK_AREA_BYTES);
        let has_extents = self.image.inode(InodeNumber::JOURNAL).is_ok_and(|stored| {
            use drystone_ext4_format::inode::InodeFlags;
            stored.inode.flags.contains(InodeFlags::EXTENTS)
        });
        if has_extents {
            self.extent_node(map, NodePlace::root(InodeNumber::JOURNAL), is_verified);
        } else {
            self.pointers(map);
        }
        if !is_verified {
            // The high half of its size.
            size[..4].fill(0);
        }
    }
}
