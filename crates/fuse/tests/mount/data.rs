//! Content of files.

use crate::support::{IMAGE_BYTES, Mounted, errno, have, run};
use drystone_sync::thread;
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

fn read_write(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Makes the kernel forget what it has of a file's content.
fn drop_cache(file: &File) {
    file.sync_all().unwrap();
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

pub fn content_is_kept(mounted: &Mounted) {
    let path = mounted.path("f");
    let file = read_write(&path);
    let mut expected = pattern(1, 3 << 20);
    file.write_all_at(&expected, 0).unwrap();
    let mut random = fastrand::Rng::with_seed(2);
    for round in 0..200 {
        let at = random.usize(..expected.len() - 70_000);
        let data = pattern(round, random.usize(1..70_000));
        expected[at..at + data.len()].copy_from_slice(&data);
        file.write_all_at(&data, at as u64).unwrap();
        if round % 50 == 0 {
            drop_cache(&file);
        }
    }
    assert_eq!(file.metadata().unwrap().size(), expected.len() as u64);
    assert!(fs::read(&path).unwrap() == expected);
    drop_cache(&file);
    assert!(fs::read(&path).unwrap() == expected);
    // Far beyond the end: a hole, and a size that survives the cache.
    file.write_all_at(b"end", 1 << 30).unwrap();
    drop_cache(&file);
    assert_eq!(fs::metadata(&path).unwrap().size(), (1 << 30) + 3);
    assert!(fs::metadata(&path).unwrap().blocks() * 512 < 4 << 20);
    let mut tail = [9; 8];
    assert_eq!(file.read_at(&mut tail, (1 << 30) - 5).unwrap(), 8);
    assert_eq!(&tail, b"\0\0\0\0\0end");
}

pub fn appends_and_cuts(mounted: &Mounted) {
    let path = mounted.path("log");
    let mut first = File::options().append(true).create(true).open(&path).unwrap();
    let mut second = File::options().append(true).open(&path).unwrap();
    for number in 0..100 {
        writeln!(first, "first {number}").unwrap();
        writeln!(second, "second {number}").unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 200);
    assert!(text.ends_with("first 99\nsecond 99\n"));
    first.set_len(10).unwrap();
    writeln!(second, "!").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"first 0\nse!\n");
    second.set_len(20).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"first 0\nse!\n\0\0\0\0\0\0\0\0");
    let emptied = File::options().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(emptied.metadata().unwrap().size(), 0);
    assert_eq!(fs::read(&path).unwrap(), b"");
    // What was cut off does not come back.
    let file = read_write(&mounted.path("cut"));
    file.write_all_at(&[7; 10_000], 0).unwrap();
    file.set_len(100).unwrap();
    file.set_len(10_000).unwrap();
    drop_cache(&file);
    let content = fs::read(mounted.path("cut")).unwrap();
    assert!(content[..100].iter().all(|byte| *byte == 7));
    assert!(content[100..].iter().all(|byte| *byte == 0));
    assert_eq!(errno(file.set_len(1 << 50)), Errno::FBIG);
}

pub fn space_is_managed(mounted: &Mounted) {
    let path = mounted.path("f");
    let file = read_write(&path);
    let change = |mode, offset, length| rustix::fs::fallocate(&file, mode, offset, length);
    change(FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 0);
    assert_eq!(file.metadata().unwrap().blocks() * 512, 1 << 20);
    change(FallocateFlags::empty(), 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 1 << 20);
    let mut expected = pattern(3, 1 << 20);
    file.write_all_at(&expected, 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    change(punch, 10_000, 100_000).unwrap();
    expected[10_000..110_000].fill(0);
    assert!(fs::read(&path).unwrap() == expected);
    change(FallocateFlags::ZERO_RANGE, 200_000, 50_000).unwrap();
    expected[200_000..250_000].fill(0);
    assert!(fs::read(&path).unwrap() == expected);
    drop_cache(&file);
    assert!(fs::read(&path).unwrap() == expected);
    // The kernel doesn't send these to the server.
    assert_eq!(change(FallocateFlags::COLLAPSE_RANGE, 8192, 16384), Err(Errno::OPNOTSUPP));
    assert_eq!(change(FallocateFlags::INSERT_RANGE, 8192, 16384), Err(Errno::OPNOTSUPP));
    assert_eq!(change(punch, 0, 0), Err(Errno::INVAL));
    assert_eq!(change(FallocateFlags::empty(), 0, IMAGE_BYTES * 2), Err(Errno::NOSPC));
}

pub fn holes_are_found(mounted: &Mounted) {
    let path = mounted.path("f");
    let file = read_write(&path);
    file.write_all_at(&[1; 4096], 64 << 10).unwrap();
    file.set_len(256 << 10).unwrap();
    let seek = |from| rustix::fs::seek(&file, from);
    // The kernel is made to write what it has before it asks.
    assert_eq!(seek(SeekFrom::Data(0)), Ok(64 << 10));
    file.write_all_at(&[1; 4096], 128 << 10).unwrap();
    assert_eq!(seek(SeekFrom::Hole(64 << 10)), Ok(68 << 10));
    assert_eq!(seek(SeekFrom::Data(68 << 10)), Ok(128 << 10));
    file.set_len(68 << 10).unwrap();
    file.set_len(256 << 10).unwrap();
    drop(file);
    let file = File::open(&path).unwrap();
    let seek = |from| rustix::fs::seek(&file, from);
    assert_eq!(seek(SeekFrom::Data(0)), Ok(64 << 10));
    assert_eq!(seek(SeekFrom::Hole(0)), Ok(0));
    assert_eq!(seek(SeekFrom::Hole(64 << 10)), Ok(68 << 10));
    assert_eq!(seek(SeekFrom::Data(100 << 10)), Err(Errno::NXIO));
    assert_eq!(seek(SeekFrom::Hole(256 << 10)), Err(Errno::NXIO));
    if have("cp") {
        run("cp", &["--sparse=auto", "f", "g"], &mounted.root());
        assert!(fs::read(&path).unwrap() == fs::read(mounted.path("g")).unwrap());
        assert!(fs::metadata(mounted.path("g")).unwrap().blocks() * 512 <= 8192);
        // A file that is being written is copied as programs see it.
        let writer = File::options().write(true).open(&path).unwrap();
        writer.write_all_at(&[2; 4096], 128 << 10).unwrap();
        writer.write_all_at(&[3; 1], 300 << 10).unwrap();
        run("cp", &["--sparse=auto", "f", "g"], &mounted.root());
        assert!(fs::read(&path).unwrap() == fs::read(mounted.path("g")).unwrap());
    }
}

/// More threads ask at once than a transport can put aside: each gets what it has written, or is
/// told that holes aren't known, and none waits forever.
pub fn holes_are_found_by_many(mounted: &Mounted) {
    const BLOCK: u64 = 4096;
    thread::scope(|scope| {
        for worker in 0..24 {
            let file = read_write(&mounted.path(&format!("f{worker}")));
            scope.spawn(move || {
                for round in 1..20_u64 {
                    let at = 2 * round * BLOCK;
                    file.write_all_at(&[1; BLOCK as usize], at).unwrap();
                    match rustix::fs::seek(&file, SeekFrom::Data(at - BLOCK)) {
                        Ok(found) => assert_eq!(found, at),
                        Err(error) => assert_eq!(error, Errno::INVAL),
                    }
                }
            });
        }
    });
}

pub fn ranges_are_copied(mounted: &Mounted) {
    let (from, to) = (read_write(&mounted.path("from")), read_write(&mounted.path("to")));
    let data = pattern(5, 2 << 20);
    from.write_all_at(&data, 0).unwrap();
    to.write_all_at(b"begin", 0).unwrap();
    let (mut at, mut into, mut left) = (100, 5, (2 << 20) - 100);
    while left > 0 {
        let copied =
            rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut into), left).unwrap();
        assert!(copied > 0);
        left -= copied;
    }
    let copy = fs::read(mounted.path("to")).unwrap();
    assert!(&copy[..5] == b"begin" && copy[5..] == data[100..]);
    let copied = rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut into), 10);
    assert_eq!(copied, Ok(0));
}

pub fn mapped_and_direct_files(mounted: &Mounted) {
    let path = mounted.path("f");
    fs::write(&path, pattern(6, 100_000)).unwrap();
    let direct = File::options()
        .read(true)
        .write(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(&path)
        .unwrap();
    // Any alignment works.
    direct.write_all_at(&[8; 4096], 4096).unwrap();
    assert_eq!(fs::read(&path).unwrap()[4096..8192], [8; 4096]);
    let mut page = [0; 4096];
    direct.read_exact_at(&mut page, 4096).unwrap();
    assert_eq!(page, [8; 4096]);
    if have("python3") {
        let script = "
import mmap
with open('f', 'r+b') as file:
    view = mmap.mmap(file.fileno(), 0)
    assert view[4096:4100] == b'\\x08' * 4
    view[50000:50005] = b'shared'[:5]
    view.flush()
    file.seek(50000)
    assert file.read(5) == b'share'
    view[99999:100000] = b'!'
    view.close()
";
        run("python3", &["-c", script], &mounted.root());
        let content = fs::read(&path).unwrap();
        assert_eq!(content.len(), 100_000);
        assert!(&content[50_000..50_005] == b"share" && content[99_999] == b'!');
    }
}

pub fn syncs_mean_it(mounted: &Mounted) {
    let file = read_write(&mounted.path("f"));
    file.write_all_at(&[1; 10_000], 0).unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    File::open(mounted.root()).unwrap().sync_all().unwrap();
    rustix::fs::syncfs(&file).unwrap();
    let count = |kind| mounted.counters.requests(kind);
    assert_eq!(count(drystone_fuse::CountedOperation::Fsync), 2);
    assert_eq!(count(drystone_fuse::CountedOperation::FsyncDirectory), 1);
    assert!(count(drystone_fuse::CountedOperation::Write) >= 1);
}

pub fn locks_are_kept(mounted: &Mounted) {
    let path = mounted.path("f");
    let (first, second) = (read_write(&path), read_write(&path));
    rustix::fs::flock(&first, FlockOperation::LockExclusive).unwrap();
    let refused = rustix::fs::flock(&second, FlockOperation::NonBlockingLockShared);
    assert_eq!(refused, Err(Errno::WOULDBLOCK));
    rustix::fs::flock(&first, FlockOperation::Unlock).unwrap();
    rustix::fs::flock(&second, FlockOperation::NonBlockingLockShared).unwrap();
    rustix::fs::fcntl_lock(&first, FlockOperation::NonBlockingLockExclusive).unwrap();
    if have("python3") {
        let script = "
import fcntl
with open('f', 'r+b') as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print('refused')
";
        assert_eq!(run("python3", &["-c", script], &mounted.root()), "refused\n");
    }
}

pub fn who_fills_an_image_is_told(mounted: &Mounted) {
    let path = mounted.path("endless");
    let mut file = read_write(&path);
    let chunk = vec![1; 1 << 20];
    let write_more_than_fits = |file: &mut File| {
        (0..2 * IMAGE_BYTES / chunk.len() as u64).try_for_each(|_| file.write_all(&chunk))
    };
    // The kernel accepts writes that don't fit until it sends their pages. Any close sends them.
    let told = write_more_than_fits(&mut file).and_then(|()| {
        drop(File::open(&path).unwrap());
        file.write_all(&chunk)
    });
    assert_eq!(told.map_err(|error| Errno::from_io_error(&error)), Err(Some(Errno::NOSPC)));
    // A program that makes room isn't refused because of earlier writes.
    file.set_len(0).unwrap();
    file.rewind().unwrap();
    file.write_all(&chunk).unwrap();
    drop(file);
    fs::remove_file(&path).unwrap();
}

pub fn full_images_say_so(mounted: &Mounted) {
    let path = mounted.path("big");
    let mut file = read_write(&path);
    let chunk = vec![1; 1 << 20];
    let mut written = 0;
    let failed = loop {
        // With a write-back cache it is the sync that fails.
        match file.write_all(&chunk).and_then(|()| file.sync_data()) {
            Ok(()) => written += chunk.len() as u64,
            Err(error) => break Errno::from_io_error(&error).unwrap(),
        }
        assert!(written < IMAGE_BYTES);
    };
    assert_eq!(failed, Errno::NOSPC);
    assert!(written > IMAGE_BYTES / 2);
    drop(file);
    fs::remove_file(&path).unwrap();
    fs::write(mounted.path("small"), "fits again").unwrap();
    let mut text = String::new();
    File::open(mounted.path("small")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "fits again");
}
