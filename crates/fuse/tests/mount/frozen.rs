//! A frozen image can be read, however many changes wait for the thaw.

use crate::support::Mounted;
use drystone_fuse::Transport;
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::thread;
use rustix::fs::Advice;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// Changes that wait at once: many more than there are threads.
const CHANGES: usize = 40;

const TICK: Duration = Duration::from_millis(10);

/// Longer than reads take, in ticks.
const PATIENCE_TICKS: usize = 2000;

pub fn reads_go_on_while_changes_wait(mounted: &Mounted) {
    if mounted.transport == Transport::Fuser {
        // The library has its own threads.
        return;
    }
    let changed = |number: usize| mounted.path(&format!("changed {number}"));
    for number in 0..CHANGES {
        File::create(changed(number)).unwrap();
    }
    let directory = mounted.path("directory");
    fs::create_dir(&directory).unwrap();
    let path = directory.join("file");
    fs::write(&path, [1; 100_000]).unwrap();
    rustix::fs::sync();
    // It is deleted when the kernel forgets it.
    let removed = File::create(directory.join("removed")).unwrap();
    fs::remove_file(directory.join("removed")).unwrap();
    let file = File::open(&path).unwrap();
    let gathered = File::create(mounted.path("gathered")).unwrap();
    let (are_changed, have_read) = (AtomicBool::new(false), AtomicBool::new(false));
    mounted.image().file_system().freeze().unwrap();
    thread::scope(|scope| {
        let changes: Vec<_> = (0..CHANGES)
            .map(|number| {
                let (path, are_changed) = (changed(number), &are_changed);
                scope.spawn(move || {
                    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
                    are_changed.store(true, Ordering::SeqCst);
                })
            })
            .collect();
        scope.spawn(|| {
            (&gathered).write_all(&[2; 4 << 20]).unwrap();
            gathered.sync_all().unwrap();
        });
        drop(removed);
        thread::sleep(20 * TICK);
        let reads = scope.spawn(|| {
            for number in 0..100 {
                let absent = fs::metadata(directory.join(format!("absent {number}")));
                assert!(absent.is_err());
                rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
                assert!(fs::read(&path).unwrap() == [1; 100_000]);
                assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
            }
            have_read.store(true, Ordering::SeqCst);
        });
        for _ in 0..PATIENCE_TICKS {
            if reads.is_finished() {
                break;
            }
            thread::sleep(TICK);
        }
        let (had_read, were_changed) =
            (have_read.load(Ordering::SeqCst), are_changed.load(Ordering::SeqCst));
        mounted.image().file_system().thaw().unwrap();
        reads.join().unwrap();
        changes.into_iter().for_each(|change| change.join().unwrap());
        assert!(had_read, "reads waited for the thaw");
        assert!(!were_changed, "a change didn't wait");
    });
    for number in 0..CHANGES {
        assert_eq!(fs::metadata(changed(number)).unwrap().permissions().mode() & 0o777, 0o600);
    }
    // As many threads as before serve the mount, and go on.
    thread::scope(|scope| {
        for number in 0..CHANGES {
            scope.spawn(move || fs::remove_file(changed(number)).unwrap());
        }
    });
}
