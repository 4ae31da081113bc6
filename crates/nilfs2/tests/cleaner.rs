//! The cleaner: nothing that lives is lost, and space comes back.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{BlockDevice, DeviceOperation, MemoryDevice, Stepped};
use drystone_nilfs2::{MountOptions, Nilfs2};
use drystone_sync::{Arc, thread};
use drystone_testkit::tree::diff;
use drystone_vfs::{Errno, FileSystem, RequestContext};
use support::churn::{churn, write_file};
use support::{image, judge, mount, tree};

#[test]
fn a_churned_volume_loses_nothing() {
    churn(4096, 16, 1, 12, 6);
    churn(1024, 64, 2, 12, 6);
    // Full nearly all the time.
    churn(4096, 64, 3, 110, 6);
}

#[test]
fn a_full_volume_can_be_emptied_again() {
    for (block_bytes, blocks_per_segment) in [(4096, 16), (1024, 32)] {
        let device = image(8, block_bytes, blocks_per_segment);
        let fs = mount(&device, &MountOptions::default());
        let mut sizes = Vec::new();
        for round in 0..4 {
            let mut names = Vec::new();
            let failure = loop {
                let name = format!("{round}-{}", names.len());
                names.push(name.clone());
                if let Err(failure) = write_file(&fs, &name, &[7; 30_000]) {
                    break failure;
                }
            };
            assert_eq!(failure, Errno::ENOSPC, "round {round}: {:?}", fs.sync());
            sizes.push(names.len());
            for name in names {
                // The last may not have been made.
                let _ = fs.unlink(&RequestContext::superuser(), fs.root(), name.as_bytes());
            }
        }
        let (first, last) = (sizes[0], sizes[sizes.len() - 1]);
        assert!(last * 10 >= first * 9, "blocks of {block_bytes}: {sizes:?} files had room");
        fs.unmount().unwrap();
        judge(&device, "an emptied volume");
    }
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let device = image(16, 4096, 16);
    let fs = mount(&device, &MountOptions::default());
    let mut random = fastrand::Rng::with_seed(4);
    let mut kept = Vec::new();
    for round in 0..30_u8 {
        for number in 0..6 {
            let data = vec![random.u8(..); random.usize(0..60_000)];
            write_file(&fs, &format!("file-{number}"), &data).unwrap();
        }
        let number = fs.make_checkpoint().unwrap();
        if round % 8 == 0 {
            fs.set_snapshot(number, true).unwrap();
            kept.push((number, tree(&fs)));
        }
        fs.clean(0).unwrap();
    }
    let listed = fs.checkpoints().unwrap();
    let snapshots: Vec<u64> =
        listed.iter().filter(|found| found.is_snapshot).map(|found| found.number).collect();
    assert_eq!(snapshots, kept.iter().map(|(number, _)| *number).collect::<Vec<_>>());
    let (released, _) = kept.remove(1);
    assert!(fs.delete_checkpoint(released).is_err(), "a snapshot was deleted");
    fs.set_snapshot(released, false).unwrap();
    fs.delete_checkpoint(released).unwrap();
    fs.clean(0).unwrap();
    fs.unmount().unwrap();
    judge(&device, "a volume with snapshots");
    for (number, before) in kept {
        let options = MountOptions::default().checkpoint(number);
        let fs = mount(&device, &options);
        assert_eq!(diff(&before, &tree(&fs)), [""; 0], "snapshot {number}");
        assert_eq!(write_file(&fs, "new", b"x"), Err(Errno::EROFS));
    }
}

/// Lets the device go on, also when a test fails.
struct Release<'a>(&'a Stepped<Arc<MemoryDevice>>);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release_all();
    }
}

/// Files are read while the log that moves them is on its way to the device.
#[test]
fn what_is_moved_is_read_meanwhile() {
    let device = image(16, 4096, 16);
    let fs = mount(&device, &MountOptions::default());
    // A third of each segment lives.
    for number in 0..600_u16 {
        write_file(&fs, &format!("file-{number}"), &[number as u8 | 1; 4000]).unwrap();
    }
    fs.sync().unwrap();
    for number in (0..600).filter(|number| number % 3 != 0) {
        let name = format!("file-{number}");
        fs.unlink(&RequestContext::superuser(), fs.root(), name.as_bytes()).unwrap();
    }
    fs.unmount().unwrap();

    let stepped = Arc::new(Stepped::new(Arc::clone(&device)));
    let held = Arc::clone(&stepped) as Arc<dyn BlockDevice>;
    let fs = Nilfs2::mount(held, &MountOptions::default()).unwrap();
    stepped.hold(|operation, _, length| {
        (operation == DeviceOperation::Write && length > 4096).then_some(0)
    });
    thread::scope(|scope| {
        let cleaner = scope.spawn(|| fs.clean(0).unwrap());
        let release = Release(&stepped);
        let _ = stepped.wait();
        let context = RequestContext::superuser();
        for number in (0..600_u16).step_by(3) {
            let name = format!("file-{number}");
            let found = fs.lookup(&context, fs.root(), name.as_bytes()).unwrap();
            let mut bytes = vec![0; 4000];
            assert_eq!(fs.read(found.inode, 0, &mut bytes).unwrap(), bytes.len());
            assert!(bytes.iter().all(|byte| *byte == number as u8 | 1), "{name} differs");
            fs.forget(found.inode, 1);
        }
        drop(release);
        assert!(cleaner.join().unwrap() > 0, "nothing was cleaned");
    });
    fs.unmount().unwrap();
    judge(&device, "cleaned while files were read");
}
