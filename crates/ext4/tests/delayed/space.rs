//! Space: waiting data has claimed its blocks, and gives back claims that it turns out not to need.

use super::*;
use drystone_vfs::{Errno, FallocateMode};

/// Fills an image with small writes. Returns how many bytes were written.
fn fill(fs: &Ext4, files: u64) -> u64 {
    let context = RequestContext::superuser();
    let mut written = 0;
    for number in 0..files {
        let file = new_file(fs, &format!("f{number}"));
        let mut offset = 0;
        loop {
            match fs.write(&context, file, offset, &[9; BLOCK as usize]) {
                Ok(length) => written += length as u64,
                Err(error) => {
                    assert_eq!(error, Errno::ENOSPC.into());
                    break;
                }
            }
            offset += BLOCK * (1 + number % 2);
            if number + 1 < files && offset > 40 * BLOCK {
                break;
            }
        }
    }
    written
}

#[test]
fn space_ends_where_it_ends_without() {
    let mut amounts = Vec::new();
    for delayed in [false, true] {
        let device = image(16);
        let fs = open_with(&device, delayed);
        let free = fs.statistics().unwrap().blocks_free;
        let written = fill(&fs, 20);
        fs.sync().unwrap();
        assert_eq!(fs.statistics().unwrap().blocks_available, 0, "delayed: {delayed}");
        amounts.push(written);
        let context = RequestContext::superuser();
        for number in 0..20 {
            let name = format!("f{number}");
            let file = fs.lookup(&context, fs.root(), name.as_bytes()).unwrap().inode;
            let data = read_all(&fs, file);
            let blocks = data.chunks(BLOCK as usize).step_by(1 + number % 2);
            assert!(blocks.flatten().all(|byte| *byte == 9), "{name}");
            fs.forget(file, 2);
            fs.unlink(&context, fs.root(), name.as_bytes()).unwrap();
        }
        fs.sync().unwrap();
        assert_eq!(fs.statistics().unwrap().blocks_free, free, "delayed: {delayed}");
        fs.close().unwrap();
        judge(&device, "after it was full");
    }
    // The number of nodes of the mappings may differ.
    assert!(amounts[1].abs_diff(amounts[0]) <= 16 * BLOCK, "{amounts:?}");
}

#[test]
fn what_is_deleted_gives_its_claims_back() {
    let device = image(64);
    let fs = open(&device);
    let context = RequestContext::superuser();
    let free = fs.statistics().unwrap().blocks_free;
    for round in 0..3 {
        let file = new_file(&fs, "f");
        fs.write(&context, file, 0, &[3; 50_000]).unwrap();
        if round == 1 {
            let changes = SetAttributes { size: Some(5000), ..SetAttributes::default() };
            fs.set_attributes(&context, file, &changes).unwrap();
        }
        if round == 2 {
            new_file(&fs, "g");
            let none = RenameFlags::empty();
            fs.rename(&context, fs.root(), b"f", fs.root(), b"g", none).unwrap();
            fs.unlink(&context, fs.root(), b"g").unwrap();
        } else {
            fs.unlink(&context, fs.root(), b"f").unwrap();
        }
        fs.forget(file, 1);
    }
    fs.sync().unwrap();
    assert_eq!(fs.statistics().unwrap().blocks_free, free);
    fs.close().unwrap();
    judge(&device, "after deletions");
}

/// A server learns a little later than a program that a file is gone for good.
#[test]
fn a_file_without_names_is_waited_for() {
    let device = image(16);
    let fs = open_with(&device, false);
    let context = RequestContext::superuser();
    let is_written = (0..20).any(|round| {
        let name = format!("gone {round}");
        let file = new_file(&fs, &name);
        let length = (20 - round) * 10 * BLOCK;
        fs.fallocate(&context, file, FallocateMode::Allocate { keep_size: true }, 0, length)
            .unwrap();
        let filler = new_file(&fs, &format!("filler {round}"));
        let full = (0..).find_map(|block| {
            fs.write(&context, filler, block * BLOCK, &[1; BLOCK as usize]).err()
        });
        assert_eq!(full, Some(Errno::ENOSPC.into()));
        fs.unlink(&context, fs.root(), name.as_bytes()).unwrap();
        let written = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(2));
                fs.forget(file, 1);
            });
            fs.write(&context, filler, 1 << 30, &[1; BLOCK as usize])
        });
        written.is_ok()
    });
    // The other thread may be late, but not always.
    assert!(is_written);
    fs.close().unwrap();
    judge(&device, "after a file was waited for");
}

/// Data that is cut off while it waits is never written, and its claims come back.
#[test]
fn what_is_cut_off_needs_no_blocks() {
    let device = image(64);
    let fs = open(&device);
    let context = RequestContext::superuser();
    let file = new_file(&fs, "f");
    fs.sync().unwrap();
    let free = fs.statistics().unwrap().blocks_free;
    for _ in 0..3 {
        fs.write(&context, file, 0, &[5; 50_000]).unwrap();
        let changes = SetAttributes { size: Some(0), ..SetAttributes::default() };
        fs.set_attributes(&context, file, &changes).unwrap();
        assert_eq!(fs.statistics().unwrap().blocks_free, free);
        assert_eq!(fs.attributes(file).unwrap().sectors, 0);
    }
    fs.write(&context, file, 10_000, b"new").unwrap();
    let mut expected = vec![0; 10_000];
    expected.extend_from_slice(b"new");
    assert_eq!(read_all(&fs, file), expected);
    fs.sync().unwrap();
    assert_eq!(read_all(&fs, file), expected);
    fs.close().unwrap();
    judge(&device, "after cuts");
}

/// When little space is left, waiting data doesn't keep other operations from free blocks.
#[test]
fn others_find_the_space_that_was_claimed_and_is_not_needed() {
    let device = image(16);
    let fs = open(&device);
    let context = RequestContext::superuser();
    // Each of many files claims blocks for nodes that it will not need.
    let files: Vec<_> = (0..60).map(|number| new_file(&fs, &format!("f{number}"))).collect();
    let hog = new_file(&fs, "hog");
    let leave = |blocks: u64| {
        let free = fs.statistics().unwrap().blocks_available;
        let mode = FallocateMode::Allocate { keep_size: true };
        fs.fallocate(&context, hog, mode, 0, (free - blocks) * BLOCK).unwrap();
    };
    leave(600);
    for &file in &files {
        fs.write(&context, file, 0, &[1; BLOCK as usize]).unwrap();
    }
    assert!(fs.memory_use().waiting_bytes > 0);
    let mut made = 0;
    let refused = loop {
        match fs.create(
            &context,
            fs.root(),
            format!("d{made}").as_bytes(),
            NewNode::Directory,
            0o755,
        ) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.errno, Errno::ENOSPC);
    assert!(fs.statistics().unwrap().blocks_available <= 4, "{made} directories");
    fs.sync().unwrap();
    for &file in &files {
        assert!(read_all(&fs, file).iter().all(|byte| *byte == 1));
    }
    fs.close().unwrap();
    judge(&device, "after it was full");
}

/// A file's allocated space can be written however full the image is. Writes of 64 KiB here and there
/// split its extents, and take blocks for their tree.
#[test]
fn what_was_allocated_can_be_written_on_a_full_image() {
    for block_size in [1024, 4096] {
        let device = Arc::new(support::image_with(80, |options| {
            options.block_size = Some(block_size);
            options.reserved_percent = 0.0;
        }));
        let fs = open(&device);
        let context = RequestContext::user(1000, 1000, Vec::new());
        let superuser = RequestContext::superuser();
        let (file, filler) = (new_file(&fs, "f"), new_file(&fs, "filler"));
        let piece = 64 << 10;
        let mode = FallocateMode::Allocate { keep_size: false };
        fs.fallocate(&superuser, file, mode, 0, 1024 * piece).unwrap();
        // No blocks are reserved for root.
        while fs.append(&superuser, filler, &[1; 1 << 20]).is_ok_and(|(_, count)| count > 0) {}
        while fs.append(&superuser, filler, &[1; 1024]).is_ok_and(|(_, count)| count > 0) {}
        assert_eq!(fs.statistics().unwrap().blocks_available, 0);
        let mut places: Vec<u64> = (0..512).map(|place| 2 * place * piece).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut places);
        for (number, &place) in places.iter().enumerate() {
            let data = vec![number as u8; piece as usize];
            let written = fs.write(&context, file, place, &data);
            assert_eq!(written.unwrap() as u64, piece, "write {number}, blocks of {block_size}");
        }
        fs.sync().unwrap();
        fs.close().unwrap();
        judge(&device, "a full image that was written to");
    }
}
