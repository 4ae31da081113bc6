//! Blocks that are free on disk but may not be used before a commit.
//!
//! A block belongs to its old owner until the transaction that frees it has committed: if it were
//! given out before, a crash could leave new data in the old file. Until then its bit is clear in
//! the on-disk bitmap and set in the group's map in memory; this module records which bits wait,
//! and for which transaction.
//!
//! # State
//! [`PendingRuns`], one per group: disjoint runs; neighbours freed by one transaction are merged.
//! [`PendingGroups`], one per mount: which groups to visit when a transaction has committed.
//!
//! # Locking
//! The runs are under their group's lock. The list of groups has a lock of its own, taken inside a
//! group's, once per group and transaction.

use crate::lock_classes;
use drystone_ext4_format::GroupNumber;
use drystone_sync::atomic::{Ordering, fence};
use drystone_sync::{Mutex, PerCoreCounter};
use std::collections::BTreeMap;
use std::ops::Range;

/// A transaction's number.
pub(super) type Transaction = u64;

/// The waiting runs of one group, by their first bit.
#[derive(Debug, Default)]
pub(super) struct PendingRuns {
    runs: BTreeMap<u32, (u32, Transaction)>,
    /// The transaction whose list this group was last entered in.
    listed: Option<Transaction>,
}

impl PendingRuns {
    /// Adds `run`, freed by `transaction`; it must not overlap a waiting run. Returns whether the
    /// caller has to enter the group in the list of that transaction.
    #[must_use]
    pub fn add(&mut self, transaction: Transaction, run: Range<u32>) -> bool {
        let Range { mut start, mut end } = run;
        if let Some((&before, &(length, owner))) = self.runs.range(..start).next_back()
            && before + length == start
            && owner == transaction
        {
            start = before;
        }
        if let Some(&(length, owner)) = self.runs.get(&end)
            && owner == transaction
        {
            self.runs.remove(&end);
            end += length;
        }
        self.runs.insert(start, (end - start, transaction));
        self.listed.replace(transaction) != Some(transaction)
    }

    /// How many clusters wait.
    pub fn clusters(&self) -> u32 {
        self.runs.values().map(|&(length, _)| length).sum()
    }

    /// Removes and returns the runs that `transaction` freed.
    pub fn take(&mut self, transaction: Transaction) -> Vec<Range<u32>> {
        let mut taken = Vec::new();
        self.runs.retain(|&start, &mut (length, owner)| {
            if owner == transaction {
                taken.push(start..start + length);
            }
            owner != transaction
        });
        if self.listed == Some(transaction) {
            self.listed = None;
        }
        taken
    }
}

/// Which groups wait for which transaction, and how many clusters wait in all.
#[derive(Debug)]
pub(super) struct PendingGroups {
    /// Two transactions at most: the running one and the one that commits.
    lists: Mutex<Vec<(Transaction, Vec<GroupNumber>)>>,
    /// Clusters that wait. Each free changes it, and only a search without a result reads it.
    clusters: PerCoreCounter,
    /// Counts releases, so that such a search can tell whether it missed one.
    releases: PerCoreCounter,
}

impl PendingGroups {
    pub fn new() -> Self {
        Self {
            lists: Mutex::new(&lock_classes::PENDING_FREES, Vec::new()),
            clusters: PerCoreCounter::new(0),
            releases: PerCoreCounter::new(0),
        }
    }

    /// Enters a group in the list of a transaction.
    pub fn enter(&self, transaction: Transaction, group: GroupNumber) {
        let mut lists = self.lists.lock();
        match lists.iter_mut().find(|(listed, _)| *listed == transaction) {
            Some((_, groups)) => groups.push(group),
            None => lists.push((transaction, vec![group])),
        }
    }

    /// Removes and returns the list of a transaction.
    pub fn take(&self, transaction: Transaction) -> Vec<GroupNumber> {
        let mut lists = self.lists.lock();
        match lists.iter().position(|&(listed, _)| listed == transaction) {
            Some(place) => lists.swap_remove(place).1,
            None => Vec::new(),
        }
    }

    /// Notes that `clusters` more wait.
    pub fn wait(&self, clusters: u32) {
        self.clusters.add(i64::from(clusters));
    }

    /// Notes that `clusters` waiting clusters were released; their bits must be clear by now.
    pub fn release(&self, clusters: u32) {
        // In this order: a thread that sees that nothing waits must also see the release.
        self.note_release();
        self.clusters.add(-i64::from(clusters));
    }

    /// Notes that clusters became usable without having waited. Who sees what the caller does next sees this too,
    /// in [`releases`](Self::releases).
    pub fn note_release(&self) {
        // It comes after what made the clusters usable, and before what the caller does next.
        fence(Ordering::Release);
        self.releases.add(1);
        fence(Ordering::Release);
    }

    /// How many clusters wait.
    pub fn waiting(&self) -> i64 {
        self.clusters.sum()
    }

    /// A number that changes whenever clusters become usable.
    pub fn releases(&self) -> i64 {
        // It comes after the search that was made, and before the next.
        fence(Ordering::Acquire);
        let releases = self.releases.sum();
        fence(Ordering::Acquire);
        releases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vec_of(run: Range<u32>) -> Vec<Range<u32>> {
        std::iter::once(run).collect()
    }

    #[test]
    fn merges_neighbours_of_one_transaction_only() {
        let mut pending = PendingRuns::default();
        assert!(pending.add(7, 10..20));
        assert!(!pending.add(7, 30..40));
        assert!(!pending.add(7, 20..30));
        assert!(pending.add(8, 40..50));
        assert_eq!(pending.runs.len(), 2);
        assert_eq!(pending.clusters(), 40);
        assert_eq!(pending.take(7), vec_of(10..40));
        assert_eq!(pending.take(7), []);
        assert_eq!(pending.take(8), vec_of(40..50));
        assert!(pending.add(8, 1..2), "entered again after it was taken");
    }

    #[test]
    fn groups_are_listed_by_transaction() {
        let groups = PendingGroups::new();
        groups.enter(1, GroupNumber::new(5));
        groups.enter(2, GroupNumber::new(6));
        groups.enter(1, GroupNumber::new(7));
        assert_eq!(groups.take(1), [GroupNumber::new(5), GroupNumber::new(7)]);
        assert_eq!(groups.take(1), []);
        assert_eq!(groups.take(2), [GroupNumber::new(6)]);
    }
}
