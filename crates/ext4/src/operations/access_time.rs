//! Times of last access: which reads change them, and how the change gets into the image.
//!
//! # State
//! The mount's choice. The times that an access is compared with are in the inode.
//!
//! # Locking
//! Whether an access changes anything is decided without a lock, from the times that callers see. A
//! change is a handle of its own, started with no lock held.
//!
//! # Crash
//! The change is part of the running transaction. No caller waits for it, and it causes no commit before
//! the commit interval is over.
//!
//! # Reference
//! `relatime`, `strictatime`, `noatime` and `nodiratime` in mount(8); `O_NOATIME` in open(2).

use super::Engine;
use crate::credits;
use crate::error::Result;
use crate::inode::{AttributeView, Inode};
use drystone_ext4_format::inode::{InodeFlags, InodeTimestamp};
use drystone_sync::atomic::{AtomicU8, Ordering};
use drystone_vfs::InodeNumber;

/// A time of last access that is older than this is brought up to date.
const OLD_SECONDS: i64 = 24 * 60 * 60;

/// Which reads change the time of last access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// None.
    Never,
    /// Those that find it not later than the last change of the content or the inode, or at least a day
    /// old (`relatime`): enough to tell whether a file was read since it changed.
    #[default]
    Relative,
    /// All (`strictatime`).
    Always,
}

/// A mount's rules for times of last access.
#[derive(Debug)]
pub(crate) struct AccessTimeRules {
    /// An [`AccessTimes`], and [`OF_DIRECTORIES`] or not.
    chosen: AtomicU8,
}

/// Times of directories are kept as well.
const OF_DIRECTORIES: u8 = 1 << 7;

impl AccessTimeRules {
    pub fn new(times: AccessTimes, directories: bool) -> AccessTimeRules {
        AccessTimeRules { chosen: AtomicU8::new(encoded(times, directories)) }
    }

    pub fn set(&self, times: AccessTimes, directories: bool) {
        self.chosen.store(encoded(times, directories), Ordering::Relaxed);
    }

    fn times(&self) -> AccessTimes {
        match self.chosen.load(Ordering::Relaxed) & !OF_DIRECTORIES {
            0 => AccessTimes::Never,
            1 => AccessTimes::Relative,
            _ => AccessTimes::Always,
        }
    }

    fn directories(&self) -> bool {
        self.chosen.load(Ordering::Relaxed) & OF_DIRECTORIES != 0
    }

    /// Whether an access now changes the time that an inode has.
    fn is_due(
        &self,
        view: &AttributeView,
        is_directory: bool,
        now: impl FnOnce() -> InodeTimestamp,
    ) -> bool {
        if view.flags().contains(InodeFlags::NO_ACCESS_TIME) || is_directory && !self.directories()
        {
            return false;
        }
        let accessed = view.accessed();
        match self.times() {
            AccessTimes::Never => false,
            AccessTimes::Always => accessed != now(),
            AccessTimes::Relative => {
                view.modified() >= accessed
                    || view.changed() >= accessed
                    || now().seconds.saturating_sub(accessed.seconds) >= OLD_SECONDS
            }
        }
    }
}

fn encoded(times: AccessTimes, directories: bool) -> u8 {
    let times = match times {
        AccessTimes::Never => 0,
        AccessTimes::Relative => 1,
        AccessTimes::Always => 2,
    };
    times | if directories { OF_DIRECTORIES } else { 0 }
}

impl Engine {
    /// Notes that a caller has read content, names or a link's target. If that can't be recorded, the
    /// read still succeeds.
    pub(crate) fn do_accessed(&self, number: InodeNumber) {
        if self.access_times.times() == AccessTimes::Never {
            return;
        }
        let Ok(inode) = self.held(number) else { return };
        let is_directory = inode.is_directory();
        if !self.access_times.is_due(&inode.view(), is_directory, || self.now()) {
            return;
        }
        if let Err(error) = self.stamp_access(&inode) {
            tracing::debug!(inode = number.0, %error, "a time of access was not recorded");
        }
    }

    fn stamp_access(&self, inode: &Inode) -> Result<()> {
        let now = self.now();
        if inode.update_unlinked(|fields| fields.disk.access_time = now) {
            return Ok(());
        }
        // Reads go on while the image is frozen.
        let Some(mut handle) = self.volume.start_unless_frozen(credits::INODE)? else {
            return Ok(());
        };
        let stamped = inode.update(self, &mut handle, |fields| {
            fields.disk.access_time = now;
            Ok(())
        });
        self.settle(handle, stamped)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::MountOptions;
    use crate::testing::TestImage;
    use drystone_vfs::{
        FileSystem, InodeAttributes, NewNode, RequestContext, SetAttributes, SetTime,
        Timestamp as Time,
    };

    const DAY: i64 = OLD_SECONDS;

    fn options(access_times: AccessTimes) -> MountOptions {
        MountOptions { access_times, ..MountOptions::default() }
    }

    fn make(fs: &crate::Ext4, name: &[u8], node: NewNode<'_>) -> InodeNumber {
        let made = fs.create(&RequestContext::superuser(), fs.root(), name, node, 0o755);
        made.expect("a new inode").inode
    }

    /// Gives an inode times that lie so many seconds in the past.
    fn set_ages(
        fs: &crate::Ext4,
        inode: InodeNumber,
        accessed: i64,
        changed: i64,
    ) -> InodeAttributes {
        let now = fs.now().seconds;
        let at = |age: i64| Time { seconds: now - age, nanoseconds: 0 };
        let changes = SetAttributes {
            accessed: Some(SetTime::At(at(accessed))),
            modified: Some(SetTime::At(at(changed))),
            changed: Some(at(changed)),
            ..SetAttributes::default()
        };
        fs.set_attributes(&RequestContext::superuser(), inode, &changes).expect("new times")
    }

    /// Whether an access changes the times, and nothing but the time of access.
    fn moves(fs: &crate::Ext4, inode: InodeNumber) -> bool {
        let before = fs.attributes(inode).expect("attributes");
        fs.accessed(inode);
        let after = fs.attributes(inode).expect("attributes");
        assert_eq!(InodeAttributes { accessed: before.accessed, ..after }, before);
        assert!(after.accessed >= before.accessed);
        after.accessed != before.accessed
    }

    #[test]
    fn an_access_counts_once_after_a_change_and_once_a_day() {
        let Some(image) = TestImage::new("default", 16) else { return };
        let fs = image.open();
        let nodes = [
            make(&fs, b"file", NewNode::Regular),
            make(&fs, b"directory", NewNode::Directory),
            make(&fs, b"link", NewNode::Symlink(b"file")),
        ];
        for inode in nodes {
            // (age of the last access, age of the last change, whether an access moves it)
            let cases = [
                (60, 60, true),
                (60, 30, true),
                (60, 90, false),
                (DAY + 60, DAY + 90, true),
                (DAY - 60, DAY - 90, true),
                (DAY - 60, DAY + 90, false),
                // A time in the future is later than any change.
                (-DAY, 0, false),
            ];
            for (accessed, changed, expected) in cases {
                set_ages(&fs, inode, accessed, changed);
                assert_eq!(moves(&fs, inode), expected, "{inode:?} {accessed} {changed}");
                assert!(!moves(&fs, inode), "a second access");
            }
        }
        fs.close().expect("an end");
        image.check("times of access");
    }

    #[test]
    fn a_mount_chooses() {
        let Some(image) = TestImage::new("default", 16) else { return };
        let names = [b"file".as_slice(), b"directory"];
        let nodes = [NewNode::Regular, NewNode::Directory];
        let fs = image.open();
        for (name, node) in names.into_iter().zip(nodes) {
            let inode = make(&fs, name, node);
            set_ages(&fs, inode, 120, 60);
        }
        fs.close().expect("an end");
        let files_only =
            MountOptions { directory_access_times: false, ..options(AccessTimes::Relative) };
        let read_only = MountOptions { read_only: true, ..options(AccessTimes::Always) };
        // (rules, whether accesses count that are due, and those that aren't; for each name)
        let cases = [
            (options(AccessTimes::Never), [(false, false), (false, false)]),
            (options(AccessTimes::Relative), [(true, false), (true, false)]),
            (options(AccessTimes::Always), [(true, true), (true, true)]),
            (files_only, [(true, false), (false, false)]),
        ];
        for (options, expected) in cases {
            let what = format!("{:?} {}", options.access_times, options.directory_access_times);
            let fs = image.open_with(options);
            for (name, (due, not_due)) in names.into_iter().zip(expected) {
                let found = fs.lookup(&RequestContext::superuser(), fs.root(), name);
                let inode = found.expect("a name").inode;
                set_ages(&fs, inode, 120, 60);
                assert_eq!(moves(&fs, inode), due, "{what}");
                set_ages(&fs, inode, 60, 120);
                assert_eq!(moves(&fs, inode), not_due, "{what}");
            }
            fs.close().expect("an end");
        }
        image.check("mounts with different rules");
        let fs = image.open_with(read_only);
        let found = fs.lookup(&RequestContext::superuser(), fs.root(), names[0]);
        assert!(!moves(&fs, found.expect("a name").inode));
    }

    #[test]
    fn a_flag_of_the_inode_exempts_it() {
        let Some(image) = TestImage::new("default", 16) else { return };
        let fs = image.open_with(options(AccessTimes::Always));
        let file = make(&fs, b"file", NewNode::Regular);
        let flags = Some(drystone_vfs::FileFlags::NO_ACCESS_TIME);
        let changes = SetAttributes { flags, ..SetAttributes::default() };
        fs.set_attributes(&RequestContext::superuser(), file, &changes).expect("a flag");
        set_ages(&fs, file, 120, 60);
        assert!(!moves(&fs, file));
        fs.close().expect("an end");
    }

    #[test]
    fn a_time_survives_and_commits_nothing() {
        let Some(image) = TestImage::new("default", 16) else { return };
        let fs = image.open();
        let file = make(&fs, b"file", NewNode::Regular);
        set_ages(&fs, file, 120, 60);
        fs.sync().expect("a sync");
        let commits = || fs.engine_statistics().journal.commits;
        let before = commits();
        assert!(moves(&fs, file));
        assert_eq!(commits(), before);
        let accessed = fs.attributes(file).expect("attributes").accessed;
        fs.close().expect("an end");
        let fs = image.open();
        let found = fs.lookup(&RequestContext::superuser(), fs.root(), b"file").expect("the file");
        assert_eq!(found.accessed, accessed);
        fs.close().expect("an end");
    }

    #[test]
    fn a_file_without_names_and_a_frozen_image_are_no_trouble() {
        let Some(image) = TestImage::new("default", 16) else { return };
        let fs = image.open();
        let context = RequestContext::superuser();
        let file = make(&fs, b"file", NewNode::Regular);
        set_ages(&fs, file, 120, 60);
        fs.freeze().expect("a freeze");
        assert!(!moves(&fs, file), "nothing changes while the image is frozen");
        fs.thaw().expect("a thaw");
        assert!(moves(&fs, file));
        fs.unlink(&context, fs.root(), b"file").expect("a name less");
        set_ages(&fs, file, 120, 60);
        assert!(moves(&fs, file));
        fs.forget(file, 1);
        fs.close().expect("an end");
        image.check("a file that was read without a name");
    }
}
