//! No program takes an archive that was given up for a complete one.

use super::*;
use crate::transfer::{Endpoint, copy};
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_testkit::model::{Configuration, MemoryFileSystem};
use std::process::{Command, Stdio};

/// Asks for the end when it has been asked so many times whether it does.
struct CancelAfter(AtomicU64);

impl CopyMonitor for CancelAfter {
    fn problem(&self, problem: &CopyProblem) {
        panic!("{problem}");
    }

    fn is_cancelled(&self) -> bool {
        let left = |left: u64| Some(left.saturating_sub(1));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left) == Ok(0)
    }
}

/// Whether `tar` takes it for an archive.
fn is_taken(archive: &[u8]) -> bool {
    let mut tar = Command::new("tar");
    let tar = tar.args(["-tf", "-"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut tar = tar.stdin(Stdio::piped()).spawn().unwrap();
    // It ends as soon as it has seen enough.
    let _ = tar.stdin.take().unwrap().write_all(archive);
    tar.wait().unwrap().success()
}

#[test]
fn what_is_given_up_is_no_whole_archive() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("directory")).unwrap();
    // Lengths that leave nothing, and something, to be filled up; more than a buffer.
    for (name, length) in [("a", 0), ("b", 512), ("directory/c", 700), ("d", 3 << 20)] {
        std::fs::write(folder.path().join(name), vec![7; length]).unwrap();
    }
    let image = MemoryFileSystem::new(Configuration::default());
    let item = CopyItem { path: folder.path().to_path_buf(), name: None };
    let options = CopyOptions::default();
    let never = CancelAfter(AtomicU64::new(u64::MAX));
    copy(Endpoint::Host, &[item], Endpoint::Image(&image), Path::new("/"), &options, &never)
        .unwrap();
    let top = CopyItem { path: "/".into(), name: None };
    for patience in 0.. {
        let mut out = Vec::new();
        let monitor = CancelAfter(AtomicU64::new(patience));
        match archive(&image, &top, &mut out, &options, &monitor) {
            Ok(_) => {
                assert!(patience > 8 && is_taken(&out), "{patience}");
                break;
            }
            Err(problem) => assert!(problem.is_cut_short(), "{problem}"),
        }
        assert!(!is_taken(&out), "patience {patience}: {} bytes", out.len());
    }
}
