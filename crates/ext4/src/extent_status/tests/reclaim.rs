//! The reclaimers, without a mount.

use crate::extent_status::statistics::ReclaimPass;
use crate::extent_status::{CachedExtent, ExtentState, ExtentStatus, InodeExtents};
use crate::policy::ExtentReclaim;
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, clock, thread};

const BUDGET: usize = 1000;

fn status(policy: ExtentReclaim) -> Arc<ExtentStatus> {
    Arc::new(ExtentStatus::new(policy, BUDGET * 32))
}

fn fact(block: u32) -> CachedExtent {
    CachedExtent {
        logical: 2 * block,
        length: 1,
        physical: 1000 + u64::from(block),
        status: ExtentState::Written,
    }
}

/// Checks that every inode is listed if and only if it should be, and that the counts are right.
fn check(status: &ExtentStatus, inodes: &[InodeExtents]) {
    let (mut cached, mut droppable) = (0, 0);
    for inode in inodes {
        let Some(owned) = inode.owned.get() else { continue };
        assert!(status.reclaimer.is_listed_rightly(&owned.cached));
        let tree = owned.cached.tree.read();
        tree.check();
        cached += tree.len() as u64;
        droppable += tree.droppable() as u64;
    }
    let statistics = status.statistics();
    assert_eq!((statistics.cached, statistics.droppable), (cached, droppable));
}

fn each(test: impl Fn(ExtentReclaim)) {
    ExtentReclaim::VALUES.iter().for_each(|policy| test(*policy));
}

#[test]
fn the_budget_is_kept() {
    each(|policy| {
        let status = status(policy);
        let inodes: Vec<_> = (0..50).map(|_| InodeExtents::default()).collect();
        for block in 0..200 {
            for inode in &inodes {
                status.found(inode, fact(block));
            }
            let slack = 64 * drystone_sync::core_slots() as u64;
            assert!(status.statistics().cached <= BUDGET as u64 + slack, "{policy:?}");
        }
        check(&status, &inodes);
        let statistics = status.statistics();
        assert_eq!(statistics.cached + statistics.dropped, 50 * 200, "{policy:?}");
        assert!(statistics.passes > 0 && statistics.longest_pass_us >= statistics.mean_pass_us);
        drop(inodes);
        let statistics = status.statistics();
        assert_eq!((statistics.cached, statistics.droppable), (0, 0));
        assert!(status.reclaimer.listed().is_empty(), "{policy:?}");
    });
}

#[test]
fn lists_hold_exactly_the_right_inodes() {
    each(|policy| {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let status = status(policy);
            let mut inodes: Vec<_> = (0..40).map(|_| InodeExtents::default()).collect();
            for step in 0..3000 {
                let number = random.usize(..inodes.len());
                let block = random.u32(..100);
                match random.u32(..20) {
                    0 => status.forget(&inodes[number], u64::from(block), u64::from(block) + 60),
                    1 => inodes[number] = InodeExtents::default(),
                    2 => status.shrink(),
                    3 => status.convert(&inodes[number], 0, 50, ExtentState::Unwritten),
                    4..8 => {
                        status.lookup(&inodes[number], 2 * block, 1);
                    }
                    _ => status.found(&inodes[number], fact(block)),
                }
                if step % 50 == 0 {
                    check(&status, &inodes);
                }
            }
            check(&status, &inodes);
        }
    });
}

/// Waits for the next tick of the clock that times touches.
fn next_tick() {
    let before = clock::coarse_ns();
    while clock::coarse_ns() == before {
        thread::yield_now();
    }
}

/// Inodes are reclaimed in the order of their touches, not of their insertion; and an inode that
/// was touched after the list was sorted goes to its end.
#[test]
fn the_list_is_sorted_by_the_last_touch() {
    const FACTS: usize = 100;
    for policy in [ExtentReclaim::LruSorted, ExtentReclaim::LruReclaimable] {
        let status = status(policy);
        let inodes: Vec<_> = (0..4).map(|_| InodeExtents::default()).collect();
        for inode in &inodes {
            (0..FACTS as u32).for_each(|block| status.found(inode, fact(block)));
        }
        for touched in [2, 0, 3, 1] {
            next_tick();
            assert!(status.lookup(&inodes[touched], 0, 1).is_some());
        }
        let left = || {
            let lengths =
                inodes.iter().map(|inode| inode.any().map_or(0, |cached| cached.tree.read().len()));
            lengths.collect::<Vec<_>>()
        };
        assert_eq!(status.reclaimer.pass().dropped, 128);
        assert_eq!(left(), [FACTS - 28, FACTS, 0, FACTS], "{policy:?}");
        // The third was touched after the sort now, and is skipped.
        next_tick();
        assert!(status.lookup(&inodes[3], 0, 1).is_some());
        assert_eq!(status.reclaimer.pass().dropped, 128);
        assert_eq!(left(), [0, FACTS - 56, 0, FACTS], "{policy:?}");
        let listed = status.reclaimer.listed();
        let newest = &inodes[3].owned.get().unwrap().cached;
        assert!(Arc::ptr_eq(listed.last().unwrap(), newest), "{policy:?}");
        // The direct calls of `pass` have not counted the extents that they dropped.
        status.counts.pass(&ReclaimPass { dropped: 256, ..ReclaimPass::default() }, 0, 0);
        check(&status, &inodes);
    }
}

#[test]
fn the_least_recently_touched_go_first() {
    for policy in [ExtentReclaim::LruSorted, ExtentReclaim::LruReclaimable] {
        let status = status(policy);
        let inodes: Vec<_> = (0..10).map(|_| InodeExtents::default()).collect();
        for inode in &inodes {
            (0..90).for_each(|block| status.found(inode, fact(block)));
        }
        // All inodes were touched since the list was sorted, so this sorts it again.
        status.shrink();
        next_tick();
        for inode in &inodes[..9] {
            status.lookup(inode, 178, 1);
        }
        let before = status.statistics().dropped;
        status.shrink();
        // Only the last inode was not touched since: its extents are gone, those of all others
        // remain.
        assert_eq!(status.statistics().dropped - before, 90, "{policy:?}");
        assert!(inodes[9].any().is_none());
    }
}

#[test]
fn a_pass_of_the_ring_skips_who_is_busy_and_is_bounded() {
    let status = status(ExtentReclaim::RoundRobin);
    let inodes: Vec<_> = (0..3).map(|_| InodeExtents::default()).collect();
    for inode in &inodes {
        (0..200).for_each(|block| status.found(inode, fact(block)));
    }
    let busy = inodes[0].any().unwrap().tree.read();
    status.shrink();
    let statistics = status.statistics();
    assert_eq!(statistics.passes, 1);
    assert_eq!((statistics.skipped_busy, statistics.scanned), (1, 127));
    drop(busy);
    // The next pass begins with the next inode.
    status.shrink();
    assert_eq!(inodes[1].any().unwrap().tree.read().len(), 200 - 127);
    assert_eq!(inodes[2].any().unwrap().tree.read().len(), 200 - 128);
    check(&status, &inodes);
}

#[test]
fn threads_reclaim_side_by_side() {
    each(|policy| {
        let status = status(policy);
        let inodes: Vec<_> = (0..64).map(|_| InodeExtents::default()).collect();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|worker| {
                    let (status, inodes) = (&status, &inodes);
                    scope.spawn(move || {
                        let mut random = fastrand::Rng::with_seed(worker);
                        for _ in 0..20_000 {
                            let inode = &inodes[random.usize(..inodes.len())];
                            let block = random.u32(..300);
                            match status.lookup(inode, 2 * block, 1) {
                                Some(found) => assert_eq!(
                                    found.physical.unwrap().get(),
                                    1000 + u64::from(block)
                                ),
                                None => status.found(inode, fact(block)),
                            }
                            if random.u32(..50) == 0 {
                                status.forget(inode, u64::from(block), 600);
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    status.shrink();
                    drop(InodeExtents::default());
                }
            });
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            done.store(true, Ordering::Relaxed);
        });
        check(&status, &inodes);
    });
}
