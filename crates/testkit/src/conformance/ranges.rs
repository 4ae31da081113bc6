//! Holes and reserved space.

use drystone_vfs::{FallocateMode, InodeNumber, Result, SeekFrom};

const ALLOCATE: FallocateMode = FallocateMode::Allocate { keep_size: false };
const ALLOCATE_KEEP: FallocateMode = FallocateMode::Allocate { keep_size: true };
const ZERO: FallocateMode = FallocateMode::ZeroRange { keep_size: false };
const ZERO_KEEP: FallocateMode = FallocateMode::ZeroRange { keep_size: true };

fn range(
    t: &super::fixture::Fixture<'_>,
    inode: InodeNumber,
    mode: FallocateMode,
    offset: u64,
    length: u64,
) -> Result<()> {
    t.fs.fallocate(&t.root, inode, mode, offset, length)
}

/// A file of blocks that are filled with 1, 2, 3, …
fn numbered(t: &super::fixture::Fixture<'_>, name: &str, unit: u64, count: u8) -> InodeNumber {
    let file = t.file(name);
    for n in 0..count {
        t.write(file, u64::from(n) * unit, &vec![n + 1; unit as usize]);
    }
    file
}

/// The first byte of each unit.
fn units(t: &super::fixture::Fixture<'_>, file: InodeNumber, unit: u64) -> Vec<u8> {
    t.content(file).chunks(unit as usize).map(|chunk| chunk[0]).collect()
}

cases! {
    fn hole_is_found_between_data(t) {
        let (file, block) = (t.file("a"), t.block().max(65_536));
        t.write(file, 0, b"x");
        t.write(file, 3 * block, b"y");
        assert_eq!(t.fs.seek(file, SeekFrom::Data(0)).unwrap(), 0);
        assert_eq!(t.fs.seek(file, SeekFrom::Hole(0)).unwrap(), t.block());
        assert_eq!(t.fs.seek(file, SeekFrom::Data(t.block())).unwrap(), 3 * block);
        assert_eq!(t.fs.seek(file, SeekFrom::Hole(2 * block)).unwrap(), 2 * block);
        assert_eq!(t.fs.seek(file, SeekFrom::Hole(3 * block)).unwrap(), 3 * block + 1);
    }

    fn seek_behind_the_end_fails(t) {
        let file = t.file("a");
        fails!(t.fs.seek(file, SeekFrom::Data(0)), ENXIO);
        fails!(t.fs.seek(file, SeekFrom::Hole(0)), ENXIO);
        t.write(file, 0, b"12345");
        fails!(t.fs.seek(file, SeekFrom::Data(5)), ENXIO);
        fails!(t.fs.seek(file, SeekFrom::Hole(5)), ENXIO);
        assert_eq!(t.fs.seek(file, SeekFrom::Hole(4)).unwrap(), 5);
        t.resize(file, 10 * t.block()).unwrap();
        fails!(t.fs.seek(file, SeekFrom::Data(5 * t.block())), ENXIO);
    }

    fn allocate_extends_with_zeros(t) {
        if !t.of.extents {
            return;
        }
        let (file, block) = (t.file("a"), t.block());
        t.write(file, 0, b"x");
        range(t, file, ALLOCATE, 0, 3 * block + 5).unwrap();
        let content = t.content(file);
        assert_eq!((content.len() as u64, content[0]), (3 * block + 5, b'x'));
        assert!(content[1..].iter().all(|&byte| byte == 0));
        assert!(t.stat(file).sectors * 512 >= 3 * block + 5);
    }

    fn allocate_can_keep_the_size(t) {
        if !t.of.extents {
            return;
        }
        let (file, block) = (t.file("a"), t.block());
        range(t, file, ALLOCATE_KEEP, 0, 4 * block).unwrap();
        assert_eq!(t.stat(file).size, 0);
        assert!(t.stat(file).sectors * 512 >= 4 * block);
        t.resize(file, 2 * block).unwrap();
        assert!(t.content(file).iter().all(|&byte| byte == 0));
    }

    fn allocate_keeps_content(t) {
        if !t.of.extents {
            return;
        }
        let block = t.block();
        let file = numbered(t, "a", block, 4);
        range(t, file, ALLOCATE, block / 2, 6 * block).unwrap();
        assert_eq!(units(t, file, block), [1, 2, 3, 4, 0, 0, 0]);
    }

    fn reserved_space_is_a_hole_until_written(t) {
        if !t.of.extents {
            return;
        }
        let (file, block) = (t.file("a"), t.block());
        range(t, file, ALLOCATE, 0, 64 * block).unwrap();
        fails!(t.fs.seek(file, SeekFrom::Data(0)), ENXIO);
        t.write(file, 32 * block, &vec![1; block as usize]);
        t.fs.sync_inode(file, false).unwrap();
        assert_eq!(t.fs.seek(file, SeekFrom::Data(0)).unwrap(), 32 * block);
        assert_eq!(t.fs.seek(file, SeekFrom::Hole(32 * block)).unwrap(), 33 * block);
    }

    fn punch_makes_a_hole(t) {
        let block = t.block();
        let file = numbered(t, "a", block, 5);
        range(t, file, FallocateMode::PunchHole, block, 2 * block).unwrap();
        assert_eq!(units(t, file, block), [1, 0, 0, 4, 5]);
        assert_eq!(t.fs.seek(file, SeekFrom::Hole(0)).unwrap(), block);
        assert_eq!(t.fs.seek(file, SeekFrom::Data(block)).unwrap(), 3 * block);
        assert_eq!(t.stat(file).size, 5 * block);
    }

    fn punch_inside_a_block_only_zeroes(t) {
        let (file, block) = (t.file("a"), t.block());
        t.write(file, 0, &vec![1; block as usize]);
        range(t, file, FallocateMode::PunchHole, 10, 20).unwrap();
        let content = t.content(file);
        assert_eq!((content[9], content[30]), (1, 1));
        assert!(content[10..30].iter().all(|&byte| byte == 0));
        assert_eq!(t.fs.seek(file, SeekFrom::Data(0)).unwrap(), 0);
    }

    fn punch_across_blocks_zeroes_the_edges(t) {
        let block = t.block() as usize;
        let file = numbered(t, "a", block as u64, 4);
        range(t, file, FallocateMode::PunchHole, block as u64 - 5, 2 * block as u64 + 10).unwrap();
        let content = t.content(file);
        assert!(content[..block - 5].iter().all(|&byte| byte == 1));
        assert!(content[block - 5..3 * block + 5].iter().all(|&byte| byte == 0));
        assert!(content[3 * block + 5..].iter().all(|&byte| byte == 4));
    }

    fn punch_behind_the_end_keeps_the_size(t) {
        let (file, block) = (t.file("a"), t.block());
        t.write(file, 0, b"12345");
        range(t, file, FallocateMode::PunchHole, 10 * block, block).unwrap();
        range(t, file, FallocateMode::PunchHole, 3, 10 * block).unwrap();
        assert_eq!(t.content(file), b"123\0\0");
    }

    fn zero_range_reads_as_zeros(t) {
        if !t.of.extents {
            return;
        }
        let block = t.block() as usize;
        let file = numbered(t, "a", block as u64, 4);
        range(t, file, ZERO, block as u64 + 7, 2 * block as u64 - 14).unwrap();
        let content = t.content(file);
        assert_eq!(content.len(), 4 * block);
        assert!(content[block + 7..3 * block - 7].iter().all(|&byte| byte == 0));
        assert_eq!((content[block + 6], content[3 * block - 7]), (2, 3));
    }

    fn zero_range_extends_unless_told_not_to(t) {
        if !t.of.extents {
            return;
        }
        let (file, block) = (t.file("a"), t.block());
        t.write(file, 0, b"12345");
        range(t, file, ZERO_KEEP, 3, 4 * block).unwrap();
        assert_eq!(t.content(file), b"123\0\0");
        range(t, file, ZERO, 1, 4 * block).unwrap();
        assert_eq!(t.stat(file).size, 4 * block + 1);
        assert_eq!(t.content(file)[..3], *b"1\0\0");
    }

    fn collapse_takes_blocks_out(t) {
        if !t.of.extents {
            return;
        }
        let unit = u64::from(t.of.cluster_size);
        let file = numbered(t, "a", unit, 6);
        range(t, file, FallocateMode::CollapseRange, unit, 2 * unit).unwrap();
        assert_eq!(units(t, file, unit), [1, 4, 5, 6]);
        t.write(file, 0, &vec![9; unit as usize]);
        assert_eq!(units(t, file, unit), [9, 4, 5, 6]);
    }

    fn collapse_must_end_before_the_end(t) {
        if !t.of.extents {
            return;
        }
        let unit = u64::from(t.of.cluster_size);
        let file = numbered(t, "a", unit, 3);
        fails!(range(t, file, FallocateMode::CollapseRange, unit, 2 * unit), EINVAL);
        fails!(range(t, file, FallocateMode::CollapseRange, 4 * unit, unit), EINVAL);
    }

    fn insert_puts_a_hole_in(t) {
        if !t.of.extents {
            return;
        }
        let unit = u64::from(t.of.cluster_size);
        let file = numbered(t, "a", unit, 3);
        range(t, file, FallocateMode::InsertRange, unit, 2 * unit).unwrap();
        assert_eq!(units(t, file, unit), [1, 0, 0, 2, 3]);
        assert_eq!(t.fs.seek(file, SeekFrom::Hole(0)).unwrap(), unit);
    }

    fn insert_must_start_before_the_end(t) {
        if !t.of.extents {
            return;
        }
        let unit = u64::from(t.of.cluster_size);
        let file = numbered(t, "a", unit, 2);
        fails!(range(t, file, FallocateMode::InsertRange, 2 * unit, unit), EINVAL);
    }

    fn insert_moves_no_space_out_of_the_file(t) {
        if !t.of.extents {
            return;
        }
        let unit = u64::from(t.of.cluster_size);
        let file = numbered(t, "a", unit, 2);
        let last = t.of.file_size_max / unit * unit - unit;
        range(t, file, ALLOCATE_KEEP, last, unit).unwrap();
        fails!(range(t, file, FallocateMode::InsertRange, unit, unit), EFBIG);
        assert_eq!(t.stat(file).size, 2 * unit);
        assert_eq!(units(t, file, unit), [1, 2]);
    }

    fn moving_ranges_wants_whole_units(t) {
        if !t.of.extents {
            return;
        }
        let unit = u64::from(t.of.cluster_size);
        let file = numbered(t, "a", unit, 4);
        for mode in [FallocateMode::CollapseRange, FallocateMode::InsertRange] {
            fails!(range(t, file, mode, 1, unit), EINVAL);
            fails!(range(t, file, mode, unit, unit + 1), EINVAL);
        }
    }

    fn ranges_without_length_are_invalid(t) {
        let file = t.file("a");
        for mode in [ALLOCATE, FallocateMode::PunchHole, ZERO, FallocateMode::CollapseRange] {
            fails!(range(t, file, mode, 0, 0), EINVAL);
        }
    }

    fn ranges_have_the_files_limits(t) {
        let (file, most) = (t.file("a"), t.of.file_size_max);
        fails!(range(t, file, ALLOCATE, most, 1), EFBIG);
        fails!(range(t, file, FallocateMode::PunchHole, most - 1, 2), EFBIG);
    }

    fn ranges_want_a_file(t) {
        fails!(range(t, t.dir, ALLOCATE, 0, 10), EISDIR);
        fails!(range(t, t.dir, FallocateMode::PunchHole, 0, 10), EISDIR);
    }

    fn block_maps_can_only_be_punched(t) {
        if t.of.extents {
            return;
        }
        let file = numbered(t, "a", t.block(), 4);
        for mode in [ALLOCATE, ZERO, FallocateMode::CollapseRange, FallocateMode::InsertRange] {
            fails!(range(t, file, mode, 0, t.block()), EOPNOTSUPP);
        }
    }

    fn ranges_clear_set_id_bits(t) {
        let file = numbered(t, "a", t.block(), 2);
        let mut modes = vec![FallocateMode::PunchHole];
        if t.of.extents {
            modes.extend([ALLOCATE, FallocateMode::Allocate { keep_size: true }, ZERO]);
        }
        // Also where there is nothing left to do.
        for mode in modes {
            for offset in [0, t.block(), 9 * t.block()] {
                t.chmod(file, 0o6777);
                t.fs.fallocate(&t.user(1), file, mode, offset, 10).unwrap();
                assert_eq!(t.stat(file).permissions, 0o777, "{mode:?} at {offset}");
            }
        }
    }

    fn extents_cover_the_data(t) {
        let (file, block) = (t.file("a"), t.block().max(4096));
        t.write(file, 0, &vec![1; 2 * block as usize]);
        t.write(file, 8 * block, &vec![1; block as usize]);
        t.fs.sync_inode(file, false).unwrap();
        let covered = |at: u64| {
            let extents = t.fs.extents(file, 0, u64::MAX, 100).unwrap();
            extents.iter().any(|e| e.logical <= at && at < e.logical + e.length)
        };
        assert!(covered(0) && covered(2 * block - 1) && covered(8 * block));
        assert!(!covered(5 * block));
    }

    fn sparse_file_takes_little_space(t) {
        let file = t.file("a");
        let far = (1 << 30).min(t.of.file_size_max / 2);
        t.write(file, far, b"x");
        assert!(t.stat(file).sectors * 512 <= 16 * u64::from(t.of.cluster_size));
        assert_eq!(t.stat(file).size, far + 1);
        t.resize(file, 0).unwrap();
    }
}
