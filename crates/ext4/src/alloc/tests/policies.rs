//! Under every policy all blocks and inodes can be allocated and freed.

use super::everything::{take_and_free_all_blocks, take_and_free_all_inodes};
use super::*;
use crate::policy::{BlockGoal, GroupLock, GroupScan, InodeClaim, InodeSearch};

/// Both presets, and `scalable` with each single value exchanged.
fn policies() -> Vec<Policy> {
    let scalable = Policy::SCALABLE;
    let mut all = vec![Policy::BASELINE, scalable];
    all.extend(InodeSearch::VALUES.iter().map(|&value| Policy { inode_search: value, ..scalable }));
    all.extend(InodeClaim::VALUES.iter().map(|&value| Policy { inode_claim: value, ..scalable }));
    all.extend(GroupLock::VALUES.iter().map(|&value| Policy { group_lock: value, ..scalable }));
    all.extend(BlockGoal::VALUES.iter().map(|&value| Policy { block_goal: value, ..scalable }));
    all.extend(GroupScan::VALUES.iter().map(|&value| Policy { group_scan: value, ..scalable }));
    all.sort_by_key(ToString::to_string);
    all.dedup();
    all
}

const SHAPE: &str = "-t ext4 -O ^has_journal,^flex_bg -g 8192 -N 20000";
const SIZE_KIB: u64 = 200_000;

#[test]
fn all_inodes_under_every_policy() {
    let Some(image) = image(SHAPE, SIZE_KIB) else { return };
    for policy in policies() {
        let context = policy.to_string();
        take_and_free_all_inodes(&image, 3, policy, &context);
    }
}

#[test]
fn all_blocks_under_every_policy() {
    let Some(image) = image(SHAPE, SIZE_KIB) else { return };
    for policy in policies() {
        let context = policy.to_string();
        take_and_free_all_blocks(&image, 4, policy, &context);
    }
}
