//! Options that change while the image stays mounted: read-only or writable, and access times.
//!
//! # Crash
//! The image is marked clean after everything is checkpointed and the log is empty, and is marked as
//! mounted again before anything changes.

use super::{Ext4, superblock};
use crate::error::Result;
use crate::operations::AccessTimes;

impl Ext4 {
    /// Makes everything durable and marks the image clean; changes are refused from now on, until
    /// [`make_writable`](Ext4::make_writable). Inodes that only callers keep alive stay.
    ///
    /// # Errors
    /// The image is frozen, or something could not be written. Then the image is as it was, unless the
    /// superblock may have been written in part: that stops the journal.
    pub fn make_read_only(&self) -> Result<()> {
        if self.volume.check_writable().is_err() {
            return Ok(());
        }
        let held = self.hold_complete()?;
        self.allocator.blocks.windows.discard();
        self.volume.journal.flush()?;
        if let Err(error) = superblock::mark_clean(self) {
            // It may have been marked all the same, and then nothing may change.
            self.volume.journal.abort("the superblock could not be written");
            return Err(error);
        }
        held.make_read_only();
        Ok(())
    }

    /// Allows changes again.
    ///
    /// # Errors
    /// The image was opened to be read only, an error has stopped the journal, or the device can't be
    /// written to.
    pub fn make_writable(&self) -> Result<()> {
        if !self.volume.freeze.is_made_read_only() {
            return self.volume.check_writable();
        }
        self.volume.check_running()?;
        // In memory the superblock has stayed that of a mounted image.
        let mut mounted = self.volume.with_superblock(Clone::clone);
        superblock::write(&*self.volume.device, &mut mounted)?;
        self.volume.freeze.make_writable();
        Ok(())
    }

    /// Chooses which accesses change times from now on. `directories`: whether those of directories do.
    pub fn set_access_times(&self, times: AccessTimes, directories: bool) {
        self.access_times.set(times, directories);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::testing::TestImage;
    use crate::{AccessTimes, Error, MountOptions};
    use drystone_vfs::{Errno, FileSystem, NewNode, RequestContext};

    #[test]
    fn a_mount_stops_changing_and_goes_on() {
        let Some(image) = TestImage::new("default", 16) else { return };
        let fs = image.open();
        let me = RequestContext::superuser();
        let make = |name: &[u8]| fs.create(&me, fs.root(), name, NewNode::Regular, 0o644);
        let file = make(b"before").unwrap().inode;
        fs.write(&me, file, 0, &[7; 100_000]).unwrap();
        for round in 0..3 {
            fs.make_read_only().unwrap();
            fs.make_read_only().unwrap();
            // Complete as it stands, with nothing for a journal to add.
            image.check("while it is read-only");
            let refused = [
                make(b"refused").err(),
                fs.write(&me, file, 0, b"refused").err(),
                fs.unlink(&me, fs.root(), b"before").err(),
                fs.freeze().err(),
            ];
            for error in refused {
                assert_eq!(error.unwrap().errno, Errno::EROFS);
            }
            assert!(fs.thaw().is_err());
            fs.accessed(file);
            fs.sync().unwrap();
            let mut byte = [0];
            assert_eq!(fs.read(file, 99_999, &mut byte).unwrap(), 1);
            assert_eq!(byte, [7]);
            image.check("after changes were refused");
            fs.make_writable().unwrap();
            fs.make_writable().unwrap();
            make(format!("after{round}").as_bytes()).unwrap();
        }
        fs.sync().unwrap();
        // As after a crash: what came after the change back is recovered.
        drop(fs);
        let fs = image.open();
        fs.lookup(&me, fs.root(), b"after2").unwrap();
        fs.make_read_only().unwrap();
        fs.close().unwrap();
        image.check("after a mount that ended read-only");
        let fs = image.open_with(MountOptions { read_only: true, ..MountOptions::default() });
        fs.make_read_only().unwrap();
        assert!(matches!(fs.make_writable(), Err(Error::ReadOnly(_))));
    }

    #[test]
    fn times_of_access_follow_the_last_choice() {
        let Some(image) = TestImage::new("default", 16) else { return };
        let fs = image.open();
        let me = RequestContext::superuser();
        let file = fs.create(&me, fs.root(), b"file", NewNode::Regular, 0o644).unwrap().inode;
        let moves = || {
            let before = fs.attributes(file).unwrap().accessed;
            drystone_sync::thread::sleep(std::time::Duration::from_millis(20));
            fs.accessed(file);
            fs.attributes(file).unwrap().accessed != before
        };
        for (times, expected) in [
            (AccessTimes::Never, [false, false]),
            (AccessTimes::Relative, [true, false]),
            (AccessTimes::Always, [true, true]),
            (AccessTimes::Relative, [false, false]),
        ] {
            fs.set_access_times(times, true);
            assert_eq!([moves(), moves()], expected, "{times:?}");
        }
    }
}
