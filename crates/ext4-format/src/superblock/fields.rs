//! Typed access to the fields of a checked superblock.

use super::{Superblock, SuperblockFlags, high, join, low};
use crate::features::Incompat;
use crate::hash::HashVersion;
use crate::ids::{InodeNumber, PhysicalBlock};
use drystone_ondisk::little_endian::U32;

macro_rules! plain_fields {
    ($($(#[$meta:meta])* $field:ident: $type:ty, $get:ident, $set:ident;)*) => {
        impl Superblock {
            $(
                $(#[$meta])*
                #[must_use]
                pub const fn $get(&self) -> $type {
                    self.raw.$field.get()
                }

                #[doc = concat!("Sets [`", stringify!($get), "`](Self::", stringify!($get), ").")]
                pub fn $set(&mut self, value: $type) {
                    self.raw.$field.set(value);
                }
            )*
        }
    };
}

plain_fields! {
    /// Free inodes of the image.
    free_inodes_count: u32, free_inodes_count, set_free_inodes_count;
    /// Mounts since the last check.
    mnt_count: u16, mount_count, set_mount_count;
    /// Mounts after which to check; as a signed number, 0 or less for never.
    max_mnt_count: u16, max_mount_count, set_max_mount_count;
    /// Seconds after which to check; 0 for never.
    checkinterval: u32, check_interval_seconds, set_check_interval_seconds;
    /// Minor revision.
    minor_rev_level: u16, minor_revision, set_minor_revision;
    /// System that made the image: 0 for Linux.
    creator_os: u32, creator_os, set_creator_os;
    /// User who may use reserved blocks.
    def_resuid: u16, reserved_user, set_reserved_user;
    /// Group that may use reserved blocks.
    def_resgid: u16, reserved_group, set_reserved_group;
    /// Compression algorithms, never used.
    algorithm_usage_bitmap: u32, compression_algorithms, set_compression_algorithms;
    /// Device of an external journal; 0 for none.
    journal_dev: u32, journal_device, set_journal_device;
    /// Default mount options, as bits.
    default_mount_opts: u32, default_mount_options, set_default_mount_options;
    /// Bytes of extra fields that every inode has.
    min_extra_isize: u16, min_extra_inode_size, set_min_extra_inode_size;
    /// Bytes of extra fields that new inodes get.
    want_extra_isize: u16, wanted_extra_inode_size, set_wanted_extra_inode_size;
    /// Blocks on one disk of an array before the next.
    raid_stride: u16, raid_stride_blocks, set_raid_stride_blocks;
    /// Blocks of one stripe over all disks of an array.
    raid_stripe_width: u32, raid_stripe_blocks, set_raid_stripe_blocks;
    /// Seconds between updates of the multi-mount block.
    mmp_interval: u16, mmp_interval_seconds, set_mmp_interval_seconds;
    /// KiB written over the image's life.
    kbytes_written: u64, kibibytes_written, set_kibibytes_written;
    /// Errors found since the last check.
    error_count: u32, error_count, set_error_count;
    /// Clusters of fixed metadata; 0 for not computed.
    overhead_clusters: u32, overhead_clusters, set_overhead_clusters;
    /// The seed of checksums as it is stored; valid with its feature only.
    checksum_seed: u32, stored_checksum_seed, set_stored_checksum_seed;
    /// Character encoding of casefolded names: 1 for UTF-8 12.1.
    encoding: u16, encoding, set_encoding;
    /// Flags of the encoding: 1 for strict.
    encoding_flags: u16, encoding_flags, set_encoding_flags;
    /// Group that holds this copy, low 16 bits.
    block_group_nr: u16, copy_group, set_copy_group;
}

macro_rules! inode_fields {
    ($($(#[$meta:meta])* $field:ident, $get:ident, $set:ident;)*) => {
        impl Superblock {
            $(
                $(#[$meta])*
                #[must_use]
                pub fn $get(&self) -> Option<InodeNumber> {
                    InodeNumber::from_field(self.raw.$field.get())
                }

                #[doc = concat!("Sets [`", stringify!($get), "`](Self::", stringify!($get), ").")]
                pub fn $set(&mut self, inode: Option<InodeNumber>) {
                    self.raw.$field.set(inode.map_or(0, InodeNumber::get));
                }
            )*
        }
    };
}

inode_fields! {
    /// The journal's inode.
    journal_inum, journal_inode, set_journal_inode;
    /// Head of the list of orphans.
    last_orphan, last_orphan, set_last_orphan;
    /// The user quota file.
    usr_quota_inum, user_quota_inode, set_user_quota_inode;
    /// The group quota file.
    grp_quota_inum, group_quota_inode, set_group_quota_inode;
    /// The project quota file.
    prj_quota_inum, project_quota_inode, set_project_quota_inode;
    /// The lost+found directory.
    lpf_ino, lost_found_inode, set_lost_found_inode;
    /// The orphan file.
    orphan_file_inum, orphan_file_inode, set_orphan_file_inode;
    /// The active snapshot.
    snapshot_inum, snapshot_inode, set_snapshot_inode;
    /// Head of the list of snapshots.
    snapshot_list, snapshot_list_inode, set_snapshot_list_inode;
}

macro_rules! time_fields {
    ($($(#[$meta:meta])* $field:ident, $field_hi:ident, $get:ident, $set:ident;)*) => {
        impl Superblock {
            $(
                $(#[$meta])*
                #[must_use]
                pub fn $get(&self) -> u64 {
                    join_time(&self.raw.$field, self.raw.$field_hi)
                }

                #[doc = concat!("Sets [`", stringify!($get), "`](Self::", stringify!($get), ").")]
                pub fn $set(&mut self, seconds: u64) {
                    split_time(seconds, &mut self.raw.$field, &mut self.raw.$field_hi);
                }
            )*
        }
    };
}

time_fields! {
    /// When the image was last mounted, in seconds since 1970.
    mtime, mtime_hi, mount_time_seconds, set_mount_time_seconds;
    /// When the superblock was last written, in seconds since 1970.
    wtime, wtime_hi, write_time_seconds, set_write_time_seconds;
    /// When the image was made, in seconds since 1970.
    mkfs_time, mkfs_time_hi, creation_time_seconds, set_creation_time_seconds;
    /// When the image was last checked, in seconds since 1970.
    lastcheck, lastcheck_hi, check_time_seconds, set_check_time_seconds;
}

pub(super) fn join_time(seconds: &U32, high: u8) -> u64 {
    u64::from(high) << 32 | u64::from(seconds.get())
}

pub(super) fn split_time(seconds: u64, field: &mut U32, field_hi: &mut u8) {
    // Times have 40 bits, which last for 34 000 years.
    let seconds = seconds.min((1 << 40) - 1);
    field.set(low(seconds));
    *field_hi = high(seconds) as u8;
}

/// The text of a field that is padded with zeros.
pub(super) fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

pub(super) fn set_text(field: &mut [u8], value: &[u8]) {
    let length = value.len().min(field.len());
    field.fill(0);
    field[..length].copy_from_slice(&value[..length]);
}

impl Superblock {
    fn is_wide(&self) -> bool {
        self.features().incompat.contains(Incompat::SIXTY_FOUR_BIT)
    }

    /// Free blocks of the image (a whole cluster counts as its blocks).
    #[must_use]
    pub fn free_blocks_count(&self) -> u64 {
        let raw = &self.raw;
        join(raw.free_blocks_count_lo.get(), raw.free_blocks_count_hi.get(), self.is_wide())
    }

    /// Sets [`free_blocks_count`](Self::free_blocks_count).
    pub fn set_free_blocks_count(&mut self, blocks: u64) {
        self.raw.free_blocks_count_lo.set(low(blocks));
        self.raw.free_blocks_count_hi.set(high(blocks));
    }

    /// Blocks reserved for a privileged user.
    #[must_use]
    pub fn reserved_blocks_count(&self) -> u64 {
        join(self.raw.r_blocks_count_lo.get(), self.raw.r_blocks_count_hi.get(), self.is_wide())
    }

    /// Sets [`reserved_blocks_count`](Self::reserved_blocks_count).
    pub fn set_reserved_blocks_count(&mut self, blocks: u64) {
        self.raw.r_blocks_count_lo.set(low(blocks));
        self.raw.r_blocks_count_hi.set(high(blocks));
    }

    /// Revision of the format: 0, or 1 since there are features.
    #[must_use]
    pub const fn revision(&self) -> u32 {
        self.raw.rev_level.get()
    }

    /// Bytes of a descriptor as they are stored; they count with the 64bit feature only.
    #[must_use]
    pub const fn stored_descriptor_size(&self) -> u16 {
        self.raw.desc_size.get()
    }

    /// Identity of the image.
    #[must_use]
    pub const fn uuid(&self) -> [u8; 16] {
        self.raw.uuid
    }

    /// The volume's name, at most 16 bytes.
    #[must_use]
    pub fn volume_name(&self) -> &[u8] {
        text(&self.raw.volume_name)
    }

    /// Sets [`volume_name`](Self::volume_name); more than 16 bytes are cut.
    pub fn set_volume_name(&mut self, name: &[u8]) {
        set_text(&mut self.raw.volume_name, name);
    }

    /// Where the image was last mounted, at most 64 bytes.
    #[must_use]
    pub fn last_mounted(&self) -> &[u8] {
        text(&self.raw.last_mounted)
    }

    /// Sets [`last_mounted`](Self::last_mounted); more than 64 bytes are cut.
    pub fn set_last_mounted(&mut self, path: &[u8]) {
        set_text(&mut self.raw.last_mounted, path);
    }

    /// Default mount options as text, at most 64 bytes.
    #[must_use]
    pub fn mount_options(&self) -> &[u8] {
        text(&self.raw.mount_opts)
    }

    /// Sets [`mount_options`](Self::mount_options); more than 64 bytes are cut.
    pub fn set_mount_options(&mut self, options: &[u8]) {
        set_text(&mut self.raw.mount_opts, options);
    }

    /// Seed of directory hashes; all zero means the default one.
    #[must_use]
    pub fn hash_seed(&self) -> [u32; 4] {
        self.raw.hash_seed.map(|word| word.get())
    }

    /// Sets [`hash_seed`](Self::hash_seed).
    pub fn set_hash_seed(&mut self, seed: [u32; 4]) {
        self.raw.hash_seed = seed.map(U32::new);
    }

    /// The hash of new directory indexes with the signedness that the flags tell, if the stored
    /// number is known.
    #[must_use]
    pub fn hash_version(&self) -> Option<HashVersion> {
        let unsigned = self.flags().contains(SuperblockFlags::UNSIGNED_HASH);
        let version = HashVersion::from_raw(self.raw.def_hash_version)?;
        Some(version.with_unsigned_chars(unsigned))
    }

    /// Sets [`hash_version`](Self::hash_version) but for the signedness: the flags tell that of the indexes that are
    /// there. Without a flag they are signed, and get one: Linux decides by itself otherwise.
    pub fn set_hash_version(&mut self, version: HashVersion) {
        self.raw.def_hash_version = version.stored_in_root().to_raw();
        let flags = self.flags();
        if !flags.intersects(SuperblockFlags::SIGNED_HASH | SuperblockFlags::UNSIGNED_HASH) {
            self.set_flags(flags | SuperblockFlags::SIGNED_HASH);
        }
    }

    /// The multi-mount block, if there is one.
    #[must_use]
    pub const fn mmp_block(&self) -> Option<PhysicalBlock> {
        match self.raw.mmp_block.get() {
            0 => None,
            block => Some(PhysicalBlock::new(block)),
        }
    }

    /// Sets [`mmp_block`](Self::mmp_block).
    pub fn set_mmp_block(&mut self, block: Option<PhysicalBlock>) {
        self.raw.mmp_block.set(block.map_or(0, PhysicalBlock::get));
    }

    /// Encryption algorithms that are in use, and the salt of passwords.
    #[must_use]
    pub const fn encryption(&self) -> ([u8; 4], [u8; 16]) {
        (self.raw.encrypt_algos, self.raw.encrypt_pw_salt)
    }

    /// Sets [`encryption`](Self::encryption).
    pub fn set_encryption(&mut self, algorithms: [u8; 4], salt: [u8; 16]) {
        self.raw.encrypt_algos = algorithms;
        self.raw.encrypt_pw_salt = salt;
    }

    /// Number of the active snapshot, and the blocks reserved for it.
    #[must_use]
    pub const fn snapshot(&self) -> (u32, u64) {
        (self.raw.snapshot_id.get(), self.raw.snapshot_r_blocks_count.get())
    }

    /// Numbers of preallocated blocks for files and for directories, never used by Linux.
    #[must_use]
    pub const fn preallocation(&self) -> (u8, u8) {
        (self.raw.prealloc_blocks, self.raw.prealloc_dir_blocks)
    }
}
