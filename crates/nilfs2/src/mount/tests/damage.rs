//! Damage fails the change that meets it, and the log goes on.

use super::*;
use drystone_nilfs2_format::cpfile::{Checkpoint, CpfileHeader, place_of};
use drystone_nilfs2_format::dat::{DatEntry, ENTRY_BYTES};
use drystone_vfs::{Errno, InodeNumber as Number};

/// What a block of a file leads to.
fn pointer_of(fs: &Nilfs2, inode: &Inode, block: u64) -> VirtualBlock {
    VirtualBlock(inode.map.read().get(FileBlock(block), &fs.engine.source()).unwrap())
}

/// Changes an entry of the DAT, and whether its bit is set, behind the log writer's back.
fn damage_entry(fs: &Nilfs2, number: VirtualBlock, entry: DatEntry, is_used: bool) {
    let volume = &fs.engine.volume;
    let mut dat = fs.engine.dat.write();
    let [entries, bits, _] = dat.blocks_of(number);
    let at = number.0 as usize % (BLOCK_BYTES / ENTRY_BYTES) * ENTRY_BYTES;
    let block = dat.file.edit_zeroed(entries, volume).unwrap();
    block[at..at + ENTRY_BYTES].copy_from_slice(&entry.encode());
    let bit = number.0 as usize % (8 * BLOCK_BYTES);
    let byte = &mut dat.file.edit_zeroed(bits, volume).unwrap()[bit / 8];
    let others = *byte & !(1 << (bit % 8));
    *byte = others | u8::from(is_used) << (bit % 8);
}

/// A volume like [`volume`] where the entry of the second block of `a` was damaged, with nothing in memory.
fn with_damaged_entry(
    damage: impl Fn(DatEntry) -> (DatEntry, bool),
) -> (FaultyMemory, Nilfs2, Number) {
    let (device, fs, [a, _]) = volume();
    let number = pointer_of(&fs, &a, 1);
    let entry = fs.engine.dat.write().entry(number, &fs.engine.volume).unwrap();
    let (entry, is_used) = damage(entry);
    damage_entry(&fs, number, entry, is_used);
    fs.unmount().unwrap();
    let fs = mount(&device);
    let a = fs.lookup(&RequestContext::superuser(), fs.root(), b"a").unwrap().inode;
    (device, fs, a)
}

/// The log writer couldn't end such a block any more, or would end it again.
#[test]
fn a_file_with_a_block_that_is_free_or_has_ended_is_left_as_it_is() {
    type Damage = fn(DatEntry) -> (DatEntry, bool);
    let free: Damage = |_| (DatEntry::default(), false);
    let freed_in_part: Damage = |entry| (DatEntry { block: PhysicalBlock(0), ..entry }, false);
    let zeroed: Damage = |_| (DatEntry::default(), true);
    let ended: Damage =
        |entry| (DatEntry { end: CheckpointNumber(entry.start.0 + 1), ..entry }, true);
    let context = RequestContext::superuser();
    for damage in [free, freed_in_part, zeroed, ended] {
        let (device, fs, a) = with_damaged_entry(damage);
        let written = fs.write(&context, a, BLOCK_BYTES as u64, &[2; BLOCK_BYTES]);
        assert_eq!(written.unwrap_err().errno, Errno::EUCLEAN);
        let shorter = SetAttributes { size: Some(0), ..SetAttributes::default() };
        assert_eq!(fs.set_attributes(&context, a, &shorter).unwrap_err().errno, Errno::EUCLEAN);
        assert_eq!(fs.unlink(&context, fs.root(), b"a").unwrap_err().errno, Errno::EUCLEAN);
        fs.create(&context, fs.root(), b"c", NewNode::Regular, 0o644).unwrap();
        fs.write_all(&context, a, 0, &[3; BLOCK_BYTES]).unwrap();
        fs.sync().unwrap();
        fs.unmount().unwrap();
        let fs = mount(&device);
        assert_eq!((first_byte(&fs, b"a"), first_byte(&fs, b"b")), (3, 1));
        fs.lookup(&context, fs.root(), b"c").unwrap();
    }
}

/// What is in memory is changed without another look at the DAT.
#[test]
fn a_block_in_memory_may_have_ended_or_be_free_when_it_is_logged() {
    let context = RequestContext::superuser();
    let (device, fs, [a, b]) = volume();
    let number = Number(a.number.0);
    fs.write_all(&context, number, 0, &[1; 200 * BLOCK_BYTES]).unwrap();
    fs.sync().unwrap();
    let source = fs.engine.source();
    let node = |key| a.map.read().node_pointer(1, FileBlock(key), &source).unwrap();
    let node = (0..=100).rev().map(node).find(|pointer| *pointer != 0).unwrap();
    let ended = pointer_of(&fs, &b, 1);
    let entry = fs.engine.dat.write().entry(ended, &fs.engine.volume).unwrap();
    let entry = DatEntry { end: CheckpointNumber(entry.start.0 + 1), ..entry };
    damage_entry(&fs, VirtualBlock(node), DatEntry::default(), false);
    damage_entry(&fs, pointer_of(&fs, &a, 100), DatEntry::default(), false);
    damage_entry(&fs, ended, entry, true);
    for (number, block) in [(number, 100), (Number(b.number.0), 1)] {
        fs.write_all(&context, number, block * BLOCK_BYTES as u64, &[2]).unwrap();
    }
    fs.sync().unwrap();
    let known = fs.engine.dat.write().entry(ended, &fs.engine.volume).unwrap();
    assert_eq!(known, entry, "history was written anew");
    fs.unmount().unwrap();
    let fs = mount(&device);
    for name in [b"a", b"b"] {
        let found = fs.lookup(&context, fs.root(), name).unwrap().inode;
        let block = if name == b"a" { 100 } else { 1 };
        let mut bytes = [0; 2];
        fs.read(found, block * BLOCK_BYTES as u64, &mut bytes).unwrap();
        assert_eq!(bytes, [2, 1]);
    }
}

/// A part of such a block can be written.
#[test]
fn what_was_synced_is_recovered_though_its_old_block_has_ended() {
    let context = RequestContext::superuser();
    let ended =
        |entry: DatEntry| (DatEntry { end: CheckpointNumber(entry.start.0 + 1), ..entry }, true);
    let (device, fs, a) = with_damaged_entry(ended);
    fs.write_all(&context, a, BLOCK_BYTES as u64, &[2]).unwrap();
    fs.sync_inode(a, true).unwrap();
    let fs = mount(&crashed(&device));
    let a = fs.lookup(&context, fs.root(), b"a").unwrap().inode;
    let mut bytes = [0; 2];
    fs.read(a, BLOCK_BYTES as u64, &mut bytes).unwrap();
    assert_eq!(bytes, [2, 1]);
}

/// Two files would lead to the new block.
#[test]
fn an_entry_that_is_marked_free_by_mistake_is_not_given_to_another_block() {
    let context = RequestContext::superuser();
    let (device, fs, _) = with_damaged_entry(|entry| (entry, false));
    let b = fs.lookup(&context, fs.root(), b"b").unwrap().inode;
    fs.write_all(&context, b, 0, &[2; 20 * BLOCK_BYTES]).unwrap();
    fs.sync().unwrap();
    fs.unmount().unwrap();
    let fs = mount(&device);
    let a = fs.lookup(&context, fs.root(), b"a").unwrap().inode;
    let mut byte = [0];
    fs.read(a, BLOCK_BYTES as u64, &mut byte).unwrap();
    assert_eq!(byte, [1]);
}

/// A volume like [`volume`] whose log has gone on from segment 0, which has `b`.
fn with_full_segment() -> (FaultyMemory, Nilfs2, Arc<Inode>) {
    let (device, fs, [a, _]) = volume();
    for byte in 2..5 {
        let number = Number(a.number.0);
        fs.write_all(&RequestContext::superuser(), number, 0, &[byte; 60 * BLOCK_BYTES]).unwrap();
        fs.sync().unwrap();
    }
    // They keep the segments that they lead to from being cleaned.
    fs.engine.log.lock().superblocks.write_both(&fs.engine.volume).unwrap();
    (device, fs, a)
}

const FULL: SegmentNumber = SegmentNumber(0);

fn usage(fs: &Nilfs2, segment: SegmentNumber) -> SegmentUsage {
    let source = fs.engine.source();
    fs.engine.log.lock().segments.usage(segment, &fs.engine.volume, &source).unwrap()
}

/// Cleans, and expects that the full segment with `b` stays.
fn expect_kept(device: &FaultyMemory, fs: &Nilfs2, everything: bool, damage: &str) {
    let cleaner = Cleaner::new(&fs.engine);
    let cleaned = if everything { cleaner.clean_all(0) } else { cleaner.clean_some(0) };
    cleaned.unwrap();
    assert!(!usage(fs, FULL).is_clean(), "{damage}, everything: {everything}");
    fs.unmount().unwrap();
    assert_eq!(first_byte(&mount(device), b"b"), 1);
}

/// A damaged record may count no blocks, or not all.
#[test]
fn a_segment_with_live_blocks_is_not_freed_because_of_its_record() {
    let first_log = {
        let (_, fs, _) = with_full_segment();
        let geometry = &fs.engine.volume.geometry;
        let start = geometry.segment_start(FULL);
        let first = fs.engine.volume.read_block(start).unwrap();
        LogHeader::check(&first, geometry, start).unwrap().blocks
    };
    for (blocks, everything) in [(0, false), (0, true), (first_log, false), (first_log, true)] {
        let (device, fs, _) = with_full_segment();
        let engine = &fs.engine;
        {
            let mut log = engine.log.lock();
            let damaged = SegmentUsage { modified_s: 0, blocks, flags: UsageFlags::DIRTY };
            let source = engine.source();
            log.segments.set_usage(FULL, damaged, &engine.volume, &source).unwrap();
        }
        expect_kept(&device, &fs, everything, &format!("{blocks} blocks"));
    }
}

#[test]
fn a_segment_with_a_live_block_that_is_marked_free_is_kept() {
    for everything in [false, true] {
        let (device, fs, _) = with_full_segment();
        let engine = &fs.engine;
        let (number, entry) = (1..500)
            .map(VirtualBlock)
            .find_map(|number| {
                let entry = engine.dat.write().find(number, &engine.volume).unwrap()?;
                let is_there = engine.volume.geometry.segment_of(entry.block) == Some(FULL);
                let is_of_b = || engine.volume.read_block(entry.block).unwrap()[0] == 1;
                (is_there && entry.is_live() && is_of_b()).then_some((number, entry))
            })
            .unwrap();
        damage_entry(&fs, number, entry, false);
        expect_kept(&device, &fs, everything, "marked free");
    }
}

/// Linux leaves the bytes of an entry that it frees.
#[test]
fn a_freed_entry_does_not_keep_a_segment() {
    let (_, fs, a) = with_full_segment();
    let newest = fs.checkpoints().unwrap().last().unwrap().number;
    for number in fs.checkpoints().unwrap().iter().map(|found| found.number) {
        if number < newest {
            fs.delete_checkpoint(number).unwrap();
        }
    }
    let old = (1..500).map(VirtualBlock).find_map(|number| {
        let entry = fs.engine.dat.write().find(number, &fs.engine.volume).unwrap()?;
        let segment = fs.engine.volume.geometry.segment_of(entry.block);
        (segment == Some(FULL) && !entry.is_live()).then_some((number, entry))
    });
    let (number, entry) = old.unwrap();
    let last = fs.engine.log.lock().checkpoint;
    damage_entry(&fs, number, DatEntry { end: last, ..entry }, false);
    assert!(Cleaner::new(&fs.engine).clean_all(3600).unwrap() > 0);
    assert!(usage(&fs, FULL).is_clean());
    assert_eq!((first_byte(&fs, b"a"), first_byte(&fs, b"b")), (4, 1));
    drop(a);
}

/// A damaged log may lead to any segment.
#[test]
fn recovery_keeps_the_count_of_a_segment_that_is_used() {
    let (device, fs, a) = with_full_segment();
    let before = usage(&fs, FULL);
    overwrite(&fs, &a, 0, 9);
    let reserved = std::mem::replace(&mut fs.engine.log.lock().segments.position.next, FULL);
    LogWriter::new(&fs.engine).write_data_log(&[a]).unwrap();
    fs.engine.log.lock().segments.position.next = reserved;
    let fs = mount(&crashed(&device));
    assert_eq!(usage(&fs, FULL), before);
    assert_eq!((first_byte(&fs, b"a"), first_byte(&fs, b"b")), (9, 1));
}

/// Snapshots are in a list with their neighbours.
#[test]
fn a_damaged_list_of_snapshots_fails_the_change() {
    let (_, fs, [a, _]) = volume();
    for byte in 2..8 {
        overwrite(&fs, &a, 0, byte);
        fs.sync().unwrap();
    }
    let numbers: Vec<u64> = fs.checkpoints().unwrap().iter().map(|found| found.number).collect();
    let [plain, first, middle, last] = [1, 2, 3, 4].map(|index| numbers[index]);
    for number in [first, middle, last] {
        fs.set_snapshot(number, true).unwrap();
    }
    let source = fs.engine.source();
    let change_header = |change: &dyn Fn(&mut CpfileHeader)| {
        let mut log = fs.engine.log.lock();
        let block = log.cpfile.edit_zeroed(FileBlock(0), &source).unwrap();
        let mut header = CpfileHeader::read(block).unwrap();
        change(&mut header);
        header.encode_into(block);
    };
    let change_record = |number, change: &dyn Fn(&mut Checkpoint)| {
        let mut log = fs.engine.log.lock();
        let number = CheckpointNumber(number);
        let (key, offset) = place_of(number, BLOCK_BYTES);
        let block = log.cpfile.edit_zeroed(key, &source).unwrap();
        let mut record = Checkpoint::check(&block[offset..], number, BLOCK_BYTES).unwrap();
        change(&mut record);
        record.encode_into(&mut block[offset..]);
    };
    let refused = |number, is_snapshot| {
        let failed = fs.set_snapshot(number, is_snapshot).unwrap_err();
        assert_eq!(failed.errno(), Errno::EUCLEAN, "{failed}");
        fs.sync().unwrap();
    };
    let far = CheckpointNumber(1 << 40);
    let next = fs.engine.log.lock().checkpoint;
    for not_there in [far, next] {
        change_header(&|header| header.last_snapshot = not_there);
        refused(plain, true);
        change_header(&|header| header.last_snapshot = CheckpointNumber(last));
        for damaged in [CheckpointNumber(plain), CheckpointNumber(middle), not_there] {
            change_record(middle, &|record| record.next_snapshot = damaged);
            refused(middle, false);
        }
        change_record(middle, &|record| record.next_snapshot = CheckpointNumber(last));
        for damaged in [CheckpointNumber(plain), CheckpointNumber(middle), not_there] {
            change_record(middle, &|record| record.previous_snapshot = damaged);
            refused(middle, false);
        }
        change_record(middle, &|record| record.previous_snapshot = CheckpointNumber(first));
    }
    // What nobody has made is still what the caller asks for.
    assert_eq!(fs.set_snapshot(far.0, true).unwrap_err().errno(), Errno::ENOENT);
    for number in [plain, middle] {
        fs.set_snapshot(number, number == plain).unwrap();
    }
    let listed = fs.checkpoints().unwrap();
    let snapshots: Vec<u64> =
        listed.iter().filter(|found| found.is_snapshot).map(|found| found.number).collect();
    assert_eq!(snapshots, [plain, first, last]);
}

/// The log writer writes the record of a new inode into a block with those of others.
#[test]
fn an_inode_is_made_elsewhere_if_the_block_of_its_record_is_damaged() {
    let context = RequestContext::superuser();
    for search in InodeSearch::ALL {
        let (device, fs, _) = volume();
        let make = |fs: &Nilfs2, name: &str| {
            fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644)
        };
        let made: Vec<_> = (0..20).map(|n| make(&fs, &format!("{n}")).unwrap().inode).collect();
        fs.unlink(&context, fs.root(), b"10").unwrap();
        fs.forget(made[10], 1);
        fs.sync().unwrap();
        let key_of = |number: Number| fs.engine.ifile.layout.entry(number.0).0;
        let key = key_of(made[10]);
        let pointer = fs.engine.ifile.file.read().map.get(key, &fs.engine.source()).unwrap();
        damage_entry(&fs, VirtualBlock(pointer), DatEntry::default(), false);
        fs.unmount().unwrap();
        let held = Arc::clone(&device) as Arc<dyn BlockDevice>;
        let fs = Nilfs2::mount(held, &MountOptions::default().inode_search(search)).unwrap();
        for n in 0..100 {
            let number = make(&fs, &format!("new{n}")).unwrap().inode;
            assert_ne!(key_of(number), key, "{search:?}");
        }
        fs.sync().unwrap();
        make(&fs, "last").unwrap();
        fs.unmount().unwrap();
        let fs = mount(&device);
        for name in ["new0", "new99", "last"] {
            fs.lookup(&context, fs.root(), name.as_bytes()).unwrap();
        }
    }
}
