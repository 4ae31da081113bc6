//! What each variant of the record does for one orphan.
#![allow(clippy::unwrap_used, reason = "a test")]

use super::file::start_block;
use super::*;
use crate::policy::Policy;
use crate::{Ext4, MountOptions, credits};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::InodeNumber;
use drystone_mkfs::{MkfsOptions, make};
use drystone_sync::atomic::Ordering;
use drystone_sync::{current_core, thread};
use drystone_vfs::{FileSystem, NewNode, RequestContext, SetAttributes};

const SIZE_BYTES: u64 = 64 << 20;

fn open(orphans: Option<OrphanPolicy>) -> Ext4 {
    let device = Arc::new(MemoryDevice::new(SIZE_BYTES));
    let options = MkfsOptions::new(SIZE_BYTES, [7; 16], [1, 2, 3, 4], 1_700_000_000);
    make(&*device, &options, true).unwrap();
    let policy = Policy { orphans, ..Policy::SCALABLE };
    let options = MountOptions { policy, ..MountOptions::default() };
    Ext4::open(device as Arc<dyn BlockDevice>, options).unwrap()
}

fn new_file(fs: &Ext4, name: &str) -> Arc<Inode> {
    let context = RequestContext::superuser();
    let file = fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644).unwrap();
    fs.write(&context, file.inode, 0, &[1; 100]).unwrap();
    fs.held(file.inode).unwrap()
}

fn cut(fs: &Ext4, inode: &Inode) {
    let changes = SetAttributes { size: Some(inode.size_bytes() - 1), ..SetAttributes::default() };
    let number = drystone_vfs::InodeNumber(u64::from(inode.number.get()));
    fs.set_attributes(&RequestContext::superuser(), number, &changes).unwrap();
}

/// Records an inode for a cut, looks at the record, and takes it off again.
fn during_a_cut<T>(fs: &Ext4, inode: &Arc<Inode>, look: impl FnOnce() -> T) -> T {
    let mut handle = fs.volume.start(credits::CUT).unwrap();
    fs.orphans.add_cut(fs, &mut handle, inode).unwrap();
    let seen = look();
    fs.orphans.remove(fs, &mut handle, inode).unwrap();
    fs.orphans.end_cut(inode);
    handle.stop().unwrap();
    seen
}

/// The free slots that each block counts.
fn free(fs: &Ext4) -> Vec<i32> {
    let file = fs.orphans.file().unwrap();
    (0..file.block_count()).map(|index| file.slots(index).free.load(Ordering::Relaxed)).collect()
}

/// Slots that aren't zero: taken, or set aside.
fn used(fs: &Ext4) -> Vec<(usize, usize)> {
    let file = fs.orphans.file().unwrap();
    let mut used = Vec::new();
    for block in 0..file.block_count() {
        for (place, slot) in file.slots(block).slots.iter().enumerate() {
            if slot.load(Ordering::Relaxed) != 0 {
                used.push((block, place));
            }
        }
    }
    used
}

#[test]
fn cores_begin_thirteen_blocks_apart() {
    assert_eq!([0, 1, 2, 3].map(|core| start_block(core, 32)), [0, 13, 26, 7]);
    assert_eq!([0, 1, 2].map(|core| start_block(core, 5)), [0, 3, 1]);
    assert_eq!(start_block(100, 1), 0);
}

/// The published variants take a new slot for each cut, and keep none.
#[test]
fn the_published_files_take_a_slot_for_each_cut() {
    for policy in [OrphanPolicy::File, OrphanPolicy::FileLocked] {
        let fs = open(Some(policy));
        let inode = new_file(&fs, "file");
        let all = free(&fs);
        for _ in 0..20 {
            cut(&fs, &inode);
            assert_eq!((free(&fs), used(&fs)), (all.clone(), vec![]), "{}: kept", policy.name());
        }
        for _ in 0..20 {
            let (now, slots) = during_a_cut(&fs, &inode, || (free(&fs), used(&fs)));
            let taken: i32 = all.iter().zip(&now).map(|(before, now)| before - now).sum();
            assert_eq!(taken, 1, "{}: the counter promises the slot", policy.name());
            assert_eq!(slots.len(), 1);
            assert_eq!(slots[0].1, 0, "{}: the first slot that is zero", policy.name());
        }
        fs.close().unwrap();
    }
}

#[test]
fn the_lockless_file_begins_at_the_cores_block_and_goes_around() {
    let fs = open(Some(OrphanPolicy::File));
    let inode = new_file(&fs, "file");
    let file = fs.orphans.file().unwrap();
    let blocks = file.block_count();
    assert!(blocks > 26, "room for two cores");
    // The thread may move to another core at any time.
    let block = || loop {
        let core = current_core();
        let slots = during_a_cut(&fs, &inode, || used(&fs));
        if core == current_core() {
            break (core, slots[0].0);
        }
    };
    let (core, at) = block();
    assert_eq!(at, start_block(core, blocks));
    // All but the block before the first core's are full: the search goes around the end.
    let last = start_block(0, blocks).checked_sub(1).unwrap_or(blocks - 1);
    for index in (0..blocks).filter(|index| *index != last) {
        while file.slots(index).take_free() {}
    }
    assert_eq!(block().1, last);
    let left = (last + 5) % blocks;
    while file.slots(last).take_free() {}
    file.slots(left).give_free();
    assert_eq!(block().1, left);
    // With no counter above zero, the list is next.
    assert!(file.slots(left).take_free());
    during_a_cut(&fs, &inode, || {
        assert_eq!(used(&fs), []);
        assert_eq!(inode.orphan.get(), LIST);
    });
    for index in 0..blocks {
        while free(&fs)[index] < file.slots(index).slots.len() as i32 {
            file.slots(index).give_free();
        }
    }
    fs.close().unwrap();
}

#[test]
fn the_locked_file_begins_with_the_first_block() {
    let fs = open(Some(OrphanPolicy::FileLocked));
    let fs = &fs;
    thread::scope(|scope| {
        for worker in 0..4 {
            scope.spawn(move || {
                let inode = new_file(fs, &format!("file{worker}"));
                for _ in 0..50 {
                    cut(fs, &inode);
                }
            });
        }
    });
    let inode = new_file(fs, "file");
    assert_eq!(during_a_cut(fs, &inode, || used(fs)), [(0, 0)]);
    while fs.orphans.file().unwrap().slots(0).take_free() {}
    assert_eq!(during_a_cut(fs, &inode, || used(fs)), [(1, 0)]);
}

/// Ours: from its second cut on a thread uses the slot that it keeps, which stays counted as taken.
#[test]
fn per_core_keeps_a_slot_for_the_cuts_of_a_thread() {
    for policy in [Some(OrphanPolicy::PerCore), None] {
        let fs = open(policy);
        let inode = new_file(&fs, "file");
        let all: i32 = free(&fs).iter().sum();
        cut(&fs, &inode);
        let kept = used(&fs);
        assert_eq!(kept.len(), 1);
        for _ in 0..10 {
            let (now, slots) = during_a_cut(&fs, &inode, || (free(&fs), used(&fs)));
            assert_eq!((now.iter().sum::<i32>(), slots), (all - 1, kept.clone()));
        }
        fs.close().unwrap();
    }
}

/// All variants are asked to record the same inodes, also when an inode without blocks or references
/// loses its name: a comparison of variants compares what a record costs, not how many there are.
#[test]
fn all_forms_are_asked_for_the_same() {
    for &policy in OrphanPolicy::VALUES {
        let fs = open(Some(policy));
        let context = RequestContext::superuser();
        let handles = |what: &dyn Fn(u32)| {
            (0..20).for_each(what);
            let before = fs.engine_statistics().journal.handles_started;
            (20..40).for_each(what);
            fs.engine_statistics().journal.handles_started - before
        };
        let root = fs.root();
        let unlinked = handles(&|number| {
            let name = format!("bare{number}");
            let file = fs.create(&context, root, name.as_bytes(), NewNode::Regular, 0o644).unwrap();
            fs.forget(file.inode, 1);
            fs.unlink(&context, root, name.as_bytes()).unwrap();
        });
        // One to create the file, one to unlink and free it.
        assert_eq!(unlinked, 40, "{}", policy.name());
        let inode = new_file(&fs, "cut");
        assert_eq!(handles(&|_| cut(&fs, &inode)), 20, "{}", policy.name());
        fs.close().unwrap();
    }
}

#[test]
fn a_promise_without_write_access_is_given_back() {
    for policy in [OrphanPolicy::File, OrphanPolicy::FileLocked] {
        let fs = open(Some(policy));
        let all = free(&fs);
        let mut handle = fs.volume.start(credits::CUT).unwrap();
        fs.volume.journal.abort("a test");
        let number = InodeNumber::new(100);
        let added = match &fs.orphans.form {
            OrphanForm::Lockless(file) => file.add(&mut handle, number),
            OrphanForm::Locked(file) => file.add(&mut handle, number),
            form => unreachable!("{form:?}"),
        };
        assert!(added.is_err(), "an aborted journal gives no write access");
        assert!(handle.stop().is_err());
        assert_eq!((free(&fs), used(&fs)), (all, vec![]), "{}", policy.name());
    }
}
