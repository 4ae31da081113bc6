//! Allocation through a mount with a journal that ends with a close or with a crash.

use super::*;
use crate::{Ext4, MountOptions};
use drystone_testkit::judges::{Judgement, e2fsck_repair};

fn mount(image: &ImageFile) -> Ext4 {
    // Only the test asks for commits, so that the point of the crash is certain.
    let options =
        MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() };
    image.open_with(options)
}

/// Many threads allocate blocks and inodes, and free them in the same handle.
fn churn(fs: &Ext4, rounds: u32, seed: u64) {
    thread::scope(|scope| {
        for worker in 0..THREADS {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed * 100 + worker);
                for _ in 0..rounds {
                    let goal = random.u64(0..fs.volume.layout().blocks_count());
                    let length = random.u32(1..2000);
                    let directory = random.bool();
                    with_space_retry(&fs.volume, || {
                        let mut handle = fs.volume.start(2 * CREDITS).unwrap();
                        let result = once(fs, &mut handle, goal, length, directory);
                        handle.stop().unwrap();
                        result
                    })
                    .unwrap();
                }
            });
        }
    });
}

fn once(fs: &Ext4, handle: &mut Handle<'_>, goal: u64, length: u32, directory: bool) -> Result<()> {
    let allocator = &fs.allocator;
    let run = allocator.blocks.allocate(handle, &request(goal, length))?;
    let parent = InodeNumber::ROOT;
    let wish = InodeRequest { parent, directory, top_level: true, goal: None };
    let inode = allocator.inodes.allocate(handle, &wish)?;
    allocator.inodes.free(handle, inode, directory)?;
    let kind = if directory && run.length < 50 { BlockKind::Metadata } else { BlockKind::Data };
    allocator.blocks.free(handle, run.start, u64::from(run.length), kind)
}

#[test]
fn a_closed_mount_is_clean() {
    let Some(image) = image("-t ext4", 300_000) else { return };
    let fs = mount(&image);
    let before = fs.allocator.groups.free_counts();
    churn(&fs, 300, 1);
    assert_eq!(fs.allocator.groups.free_counts(), before);
    fs.close().unwrap();
    drop(fs);
    image.check("after a close");
    let fs = mount(&image);
    assert_eq!(fs.allocator.groups.free_counts(), before);
    fs.close().unwrap();
}

#[test]
fn a_crash_leaves_what_was_committed() {
    for arguments in ["-t ext4", "-t ext4 -O ^metadata_csum,uninit_bg,^flex_bg", "-t ext3 -b 1024"]
    {
        let Some(image) = image(arguments, 150_000) else { return };
        let fs = mount(&image);
        let before = fs.allocator.groups.free_counts();
        churn(&fs, 100, 2);
        fs.volume.journal.commit_and_wait().unwrap();
        churn(&fs, 100, 3);
        drop(fs);
        let Judgement { code, output } = e2fsck_repair(&image.path).unwrap();
        assert!((0..=1).contains(&code), "{arguments}: {output}");
        for complaint in ["differences", "wrong", "nvalid", "ILLEGAL"] {
            assert!(!output.contains(complaint), "{arguments}: {output}");
        }
        let fs = mount(&image);
        assert_eq!(fs.allocator.groups.free_counts(), before, "{arguments}");
        fs.close().unwrap();
        image.check(arguments);
    }
}

#[test]
fn a_full_image_gives_blocks_again_after_a_commit() {
    let Some(image) = image("-t ext4", 100_000) else { return };
    let fs = mount(&image);
    let runs = allocate_all(&fs.allocator, Reach::All, 4);
    assert!(matches!(allocate(&fs.allocator, &request(0, 1)), Err(Error::NoSpace)));
    free(&fs.allocator, runs[0], BlockKind::Data).unwrap();
    assert!(matches!(allocate(&fs.allocator, &request(0, 1)), Err(Error::CommitFirst)));
    let run = with_space_retry(&fs.volume, || allocate(&fs.allocator, &request(0, 1))).unwrap();
    let freed = runs[0].start.get()..runs[0].start.get() + u64::from(runs[0].length);
    assert!(freed.contains(&run.start.get()), "{run:?}");
    let rest = runs[0].length - 1;
    assert_eq!(fs.allocator.groups.free_counts().blocks, u64::from(rest));
}

/// An inode of a core's run costs no write access, because the commit marks it. Even so, an operation that
/// fails after it must not be committed.
#[test]
fn an_inode_from_a_run_is_a_change() {
    let Some(image) = image("-t ext4", 100_000) else { return };
    let fs = mount(&image);
    let parent = InodeNumber::ROOT;
    let wish = InodeRequest { parent, directory: false, top_level: false, goal: None };
    let accesses = || fs.volume.journal.statistics().write_accesses;
    let mut without_access = 0;
    for _ in 0..50 {
        let before = accesses();
        let mut handle = fs.volume.start(2 * CREDITS).unwrap();
        let inode = fs.allocator.inodes.allocate(&mut handle, &wish).unwrap();
        assert!(handle.has_changed(), "inode {inode} is no change");
        handle.stop().unwrap();
        without_access += u32::from(accesses() == before);
    }
    assert!(without_access > 0, "no inode came from a run");
}
