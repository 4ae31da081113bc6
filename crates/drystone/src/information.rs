//! Describes an image from its superblock alone: no journal is replayed, nothing else is read.

use crate::error::on_image;
use crate::{Error, ErrorCause, FileSystemKind, VolumeName};
use drystone_blockdev::{BlockDevice, OpenMode};
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::superblock::{
    ErrorPolicy, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, StateFlags, Superblock,
};
use drystone_nilfs2_format::superblock::{Superblock as Nilfs2Superblock, VolumeState};
use std::path::Path;

/// What a superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "type", rename_all = "lowercase"))]
pub enum Information {
    /// One of ext4.
    Ext4(Box<Ext4Information>),
    /// One of NILFS2.
    Nilfs2(Nilfs2Information),
}

/// What a superblock of NILFS2 says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Nilfs2Information {
    /// The label; bytes that aren't UTF-8 are replaced.
    pub label: String,
    /// The identity.
    pub uuid: String,
    /// `clean` or `not clean`, and what else is marked.
    pub state: Vec<&'static str>,
    /// Bytes in a block.
    pub block_size: usize,
    /// Bytes of the device that the volume uses.
    pub size: u64,
    /// Segments that the log is written in.
    pub segments: u64,
    /// Blocks in a segment.
    pub blocks_per_segment: u64,
    /// Blocks of segments that were clean when the superblock was written.
    pub blocks_free: u64,
    /// The newest checkpoint that the superblock knows; a mount may find newer ones in the log.
    pub checkpoint: u64,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// When it was last mounted for writing, in seconds since 1970.
    pub last_mounted: u64,
    /// When the superblock was last written, in seconds since 1970.
    pub last_written: u64,
    /// Times that it was mounted for writing.
    pub mount_count: u16,
}

/// What a superblock of ext4 says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Ext4Information {
    /// The label; bytes that aren't UTF-8 are replaced.
    pub label: String,
    /// The identity.
    pub uuid: String,
    /// Names of the features that are on, as `mke2fs -O` knows them.
    pub features: Vec<String>,
    /// `clean` or `not clean`, and what else is marked.
    pub state: Vec<&'static str>,
    /// The journal must be replayed.
    pub needs_recovery: bool,
    /// What Linux does when it finds an error.
    pub error_policy: &'static str,
    /// Errors that were found since the last check.
    pub error_count: u32,
    /// Bytes in a block.
    pub block_size: usize,
    /// Bytes in a cluster, the unit of allocation.
    pub cluster_size: u64,
    /// All blocks.
    pub blocks: u64,
    /// Blocks that are free, as of the last clean close.
    pub blocks_free: u64,
    /// Blocks that only the superuser, `reserved_user` and `reserved_group` may use.
    pub blocks_reserved: u64,
    /// A user who may use reserved blocks.
    pub reserved_user: u16,
    /// A group that may use reserved blocks.
    pub reserved_group: u16,
    /// Block groups.
    pub groups: u32,
    /// Blocks in a group.
    pub blocks_per_group: u32,
    /// Groups in a flexible group.
    pub groups_per_flex: u32,
    /// All inodes.
    pub inodes: u32,
    /// Inodes that are free, as of the last clean close.
    pub inodes_free: u32,
    /// Inodes in a group.
    pub inodes_per_group: u32,
    /// Bytes in an inode.
    pub inode_size: usize,
    /// Bytes in a group descriptor.
    pub descriptor_size: usize,
    /// The journal's inode, if the journal is inside.
    pub journal_inode: Option<u32>,
    /// The journal's identity, if the journal is on another device.
    pub journal_uuid: Option<String>,
    /// The hash of directory indexes.
    pub directory_hash: Option<String>,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// When it was last mounted, in seconds since 1970; 0 for never.
    pub last_mounted: u64,
    /// Where it was last mounted.
    pub last_mounted_at: String,
    /// When the superblock was last written, in seconds since 1970.
    pub last_written: u64,
    /// When it was last checked, in seconds since 1970.
    pub last_checked: u64,
    /// Times that it was mounted since the last check.
    pub mount_count: u16,
    /// Mounts after which Linux has it checked; 0 for never.
    pub max_mount_count: u16,
    /// Seconds after which Linux has it checked; 0 for never.
    pub check_interval_seconds: u32,
    /// Default mount options, by the names of `tune2fs -o`.
    pub mount_options: Vec<&'static str>,
    /// More default mount options, as text; bytes that aren't UTF-8 are replaced.
    pub extended_mount_options: String,
    /// Blocks on one disk of an array before the next; 0 if that isn't known.
    pub raid_stride_blocks: u16,
    /// Blocks of one stripe over all disks of an array; 0 if that isn't known.
    pub raid_stripe_blocks: u32,
    /// KiB that were written to it in its life.
    pub kibibytes_written: u64,
}

impl Information {
    /// Reads the superblock of the image that `name` stands for.
    ///
    /// # Errors
    ///
    /// [`ErrorCause::Unrecognized`] if there is none; [`ErrorCause::Superblock`] if it is damaged; otherwise what
    /// the host says of the file.
    pub fn read(name: &Path) -> Result<Information, Error> {
        on_image("read the superblock of", name, || {
            let device =
                drystone_volumes::open(&VolumeName::find_whole(name)?, OpenMode::ReadOnly)?;
            Information::of(&*device)
        })
    }

    /// Reads the superblock of what a device holds.
    pub(crate) fn of(device: &dyn BlockDevice) -> Result<Information, Error> {
        let kind = FileSystemKind::of(device)?.ok_or(ErrorCause::Unrecognized)?;
        let mut bytes = [0; SUPERBLOCK_BYTES];
        device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
        if kind == FileSystemKind::Nilfs2 {
            let superblock = match drystone_volumes::nilfs2_superblock(device)? {
                Some(superblock) => superblock,
                // Both copies are damaged; the first one says how.
                None => Nilfs2Superblock::check(&bytes, device.size_bytes())
                    .map_err(drystone_nilfs2::Error::from)?,
            };
            return Ok(Information::Nilfs2(Nilfs2Information::of(&superblock)));
        }
        let superblock = Superblock::check(&bytes).map_err(ErrorCause::Superblock)?;
        Ok(Information::Ext4(Box::new(Ext4Information::of(&superblock))))
    }
}

impl Nilfs2Information {
    fn of(superblock: &Nilfs2Superblock) -> Nilfs2Information {
        let geometry = superblock.geometry();
        let is_marked = |flag| superblock.state().contains(flag);
        let mut state = vec![if is_marked(VolumeState::CLEAN) { "clean" } else { "not clean" }];
        let marks = [(VolumeState::ERROR, "with errors"), (VolumeState::RESIZE, "being resized")];
        state.extend(marks.iter().filter(|(flag, _)| is_marked(*flag)).map(|(_, word)| word));
        Nilfs2Information {
            label: String::from_utf8_lossy(superblock.label()).into_owned(),
            uuid: superblock.uuid().to_string(),
            state,
            block_size: geometry.block_bytes(),
            size: geometry.device_bytes(),
            segments: geometry.segments(),
            blocks_per_segment: geometry.blocks_per_segment(),
            blocks_free: superblock.free_blocks(),
            checkpoint: superblock.cursor().checkpoint.0,
            created: superblock.created_s(),
            last_mounted: superblock.mounted_s(),
            last_written: superblock.written_s(),
            mount_count: superblock.mounts(),
        }
    }
}

impl Ext4Information {
    fn of(superblock: &Superblock) -> Ext4Information {
        let layout = superblock.layout();
        let features = superblock.features();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ext4Information {
            label: text(superblock.volume_name()),
            uuid: uuid::Uuid::from_bytes(superblock.uuid()).to_string(),
            needs_recovery: features.incompat.contains(Incompat::RECOVER),
            features: features.names(),
            state: state(superblock.state()),
            error_policy: match superblock.error_policy() {
                ErrorPolicy::Continue => "continue",
                ErrorPolicy::ReadOnly => "remount read-only",
                ErrorPolicy::Panic => "panic",
            },
            error_count: superblock.error_count(),
            block_size: layout.block_size(),
            cluster_size: layout.block_size() as u64 * u64::from(layout.blocks_per_cluster()),
            blocks: layout.blocks_count(),
            blocks_free: superblock.free_blocks_count(),
            blocks_reserved: superblock.reserved_blocks_count(),
            reserved_user: superblock.reserved_user(),
            reserved_group: superblock.reserved_group(),
            groups: layout.group_count(),
            blocks_per_group: layout.blocks_per_group(),
            groups_per_flex: layout.groups_per_flex(),
            inodes: layout.inodes_count(),
            inodes_free: superblock.free_inodes_count(),
            inodes_per_group: layout.inodes_per_group(),
            inode_size: layout.inode_size(),
            descriptor_size: layout.descriptor_size(),
            journal_inode: superblock.journal_inode().map(|inode| inode.get()),
            journal_uuid: (superblock.has_journal() && superblock.journal_inode().is_none())
                .then(|| uuid::Uuid::from_bytes(superblock.journal_uuid()).to_string()),
            directory_hash: superblock.hash_version().map(|version| version.name().to_owned()),
            created: superblock.creation_time_seconds(),
            last_mounted: superblock.mount_time_seconds(),
            last_mounted_at: text(superblock.last_mounted()),
            last_written: superblock.write_time_seconds(),
            last_checked: superblock.check_time_seconds(),
            mount_count: superblock.mount_count(),
            // As a signed number, 0 or less means never.
            max_mount_count: superblock.max_mount_count().cast_signed().max(0).cast_unsigned(),
            check_interval_seconds: superblock.check_interval_seconds(),
            mount_options: superblock.default_mount_option_names().collect(),
            extended_mount_options: text(superblock.mount_options()),
            raid_stride_blocks: superblock.raid_stride_blocks(),
            raid_stripe_blocks: superblock.raid_stripe_blocks(),
            kibibytes_written: superblock.kibibytes_written(),
        }
    }
}

fn state(flags: StateFlags) -> Vec<&'static str> {
    let mut words = vec![if flags.contains(StateFlags::CLEAN) { "clean" } else { "not clean" }];
    for (flag, word) in [
        (StateFlags::ERRORS, "with errors"),
        (StateFlags::ORPHANS, "orphans being recovered"),
        (StateFlags::FAST_COMMIT_REPLAY, "fast commits being replayed"),
    ] {
        if flags.contains(flag) {
            words.push(word);
        }
    }
    words
}
