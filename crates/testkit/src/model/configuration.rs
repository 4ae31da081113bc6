//! The differences between the file systems that the model stands for.

use drystone_vfs::{FileFlags, Timestamp};

/// Limits and features; the default is what `mke2fs -t ext4` gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Granularity of holes, in bytes.
    pub block_size: u32,
    /// Granularity of collapsing and inserting ranges, in bytes.
    pub cluster_size: u32,
    /// The largest size of a file, in bytes.
    pub file_size_max: u64,
    /// The most names an inode may have.
    pub links_max: u32,
    /// A directory with too many subdirectories has a link count of 1 instead of an error.
    pub directory_links_unlimited: bool,
    /// Files map their content with extents; without, ranges can only be punched.
    pub extents: bool,
    /// Inodes have a project.
    pub projects: bool,
    /// The earliest time that can be recorded, in seconds.
    pub time_min: i64,
    /// The latest time that can be recorded, in seconds.
    pub time_max: i64,
    /// Fractions of seconds and the time of creation are recorded.
    pub nanoseconds: bool,
    /// The most bytes that the content of all files may have.
    pub space_max: Option<u64>,
    /// The largest value of an extended attribute, in bytes; `ENOSPC` above it.
    pub xattr_value_max: usize,
    /// There are extended attributes.
    pub xattrs: bool,
    /// Files without names can be made.
    pub unnamed_files: bool,
    /// A rename can swap names and leave a whiteout.
    pub exchanging_renames: bool,
    /// Ranges of files can be allocated, punched and moved.
    pub ranges: bool,
    /// Flags that can be set; others are left out without an error.
    pub flags: FileFlags,
}

impl Default for Configuration {
    fn default() -> Configuration {
        Configuration::with_block_size(4096)
    }
}

impl Configuration {
    /// The default with another block size.
    pub fn with_block_size(block_size: u32) -> Configuration {
        Configuration {
            block_size,
            cluster_size: block_size,
            file_size_max: (u64::from(u32::MAX) * u64::from(block_size)).min(i64::MAX as u64),
            links_max: 65_000,
            directory_links_unlimited: true,
            extents: true,
            projects: false,
            time_min: i64::from(i32::MIN),
            time_max: i64::from(i32::MIN) + (1 << 34) - 1,
            nanoseconds: true,
            space_max: None,
            xattr_value_max: 65_536,
            xattrs: true,
            unnamed_files: true,
            exchanging_renames: true,
            ranges: true,
            flags: FileFlags::all(),
        }
    }

    /// As made by `mkfs.nilfs2`.
    pub fn nilfs2(block_size: u32) -> Configuration {
        Configuration {
            file_size_max: i64::MAX as u64,
            links_max: 32_000,
            directory_links_unlimited: false,
            time_min: i64::MIN,
            time_max: i64::MAX,
            xattrs: false,
            unnamed_files: false,
            exchanging_renames: false,
            ranges: false,
            flags: FileFlags::all() - FileFlags::PROJECT_INHERIT - FileFlags::JOURNAL_DATA,
            ..Configuration::with_block_size(block_size)
        }
    }

    /// Restricts times to those of 128-byte inodes.
    #[must_use]
    pub fn with_small_inodes(mut self) -> Configuration {
        self.time_max = i64::from(i32::MAX);
        self.nanoseconds = false;
        self
    }

    /// The nearest time that can be recorded.
    pub fn clamp_time(&self, time: Timestamp) -> Timestamp {
        let seconds = time.seconds.clamp(self.time_min, self.time_max);
        let at_limit = seconds == self.time_min || seconds == self.time_max;
        let fraction_kept = self.nanoseconds && !at_limit;
        Timestamp { seconds, nanoseconds: if fraction_kept { time.nanoseconds } else { 0 } }
    }
}
