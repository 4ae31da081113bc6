//! Files of the host that are replaced after they were found, and before they are opened.

use crate::transfer::ends::{CopySource, EndResult};
use crate::transfer::host_source::HostSource;
use drystone_sync::{clock, thread};
use drystone_vfs::Errno;
use rustix::fs::{CWD, Mode, OFlags, mknodat};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

/// Opens `name` in `folder`, which `swap` replaces once it was found. Returns what of it can be read.
fn open_swapped(folder: &Path, name: &str, swap: impl FnOnce(&Path)) -> EndResult<Vec<u8>> {
    let source = HostSource::new();
    let (root, _) = source.start(folder).unwrap();
    let (mut node, facts) = source.find(&root, OsStr::new(name)).unwrap();
    swap(&folder.join(name));
    source.open(&mut node, &facts)?;
    let mut bytes = vec![0; 100];
    let length = source.read(&node, 0, &mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

#[test]
fn what_is_swapped_in_is_not_copied() {
    let folder = tempfile::tempdir().unwrap();
    let [root, outside] = ["root", "outside"].map(|name| folder.path().join(name));
    for directory in [&root, &outside] {
        fs::create_dir_all(directory.join("directory")).unwrap();
        fs::write(directory.join("directory/file"), "secret").unwrap();
        fs::write(directory.join("file"), "secret").unwrap();
    }
    let file = || fs::write(root.join("file"), "content").unwrap();
    file();
    assert_eq!(open_swapped(&root, "file", |_| ()).unwrap(), b"content");

    let linked = open_swapped(&root, "file", |path| {
        fs::remove_file(path).unwrap();
        symlink("../outside/file", path).unwrap();
    });
    assert!(linked.as_ref().is_err_and(|cause| cause.is(Errno::ELOOP)), "{linked:?}");
    // Readable now for whoever may read the first.
    fs::remove_file(root.join("file")).unwrap();
    file();
    let other = open_swapped(&root, "file", |path| {
        fs::rename(outside.join("file"), path).unwrap();
    });
    assert!(other.as_ref().is_err_and(|cause| cause.is(Errno::ESTALE)), "{other:?}");
    let linked = open_swapped(&root, "directory", |path| {
        fs::rename(path, folder.path().join("away")).unwrap();
        symlink("../outside/directory", path).unwrap();
    });
    assert!(linked.as_ref().is_err_and(|cause| cause.is(Errno::ENOTDIR)), "{linked:?}");
}

/// Opening a pipe would wait for its other end.
#[test]
fn a_pipe_that_is_swapped_in_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("file");
    fs::write(&pipe, "content").unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            open_swapped(folder.path(), "file", |path| {
                fs::remove_file(path).unwrap();
                mknodat(CWD, path, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
            })
        });
        let limit = clock::now() + Duration::from_secs(20);
        while !reader.is_finished() && clock::now() < limit {
            thread::sleep(Duration::from_millis(1));
        }
        let has_waited = !reader.is_finished();
        if has_waited {
            drop(rustix::fs::open(&pipe, OFlags::WRONLY, Mode::empty()).unwrap());
        }
        let read = reader.join().unwrap();
        assert!(!has_waited, "the reader waited for the other end of a pipe: {read:?}");
        assert!(read.as_ref().is_err_and(|cause| cause.is(Errno::ESTALE)), "{read:?}");
    });
}
