//! Sets of inodes that are few runs.

use crate::inode_list::InodeList;
use drystone_ext4_format::InodeNumber;

/// Inodes in a row, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeRun {
    pub first: u32,
    pub last: u32,
}

/// Runs of inodes in order, with others between them.
#[derive(Debug, Default)]
pub(crate) struct InodeRuns(Vec<InodeRun>);

impl InodeRuns {
    pub fn new(mut runs: Vec<InodeRun>) -> Self {
        runs.sort_unstable_by_key(|run| run.first);
        runs.dedup_by(|next, run| {
            let meets = next.first <= run.last.saturating_add(1);
            if meets {
                run.last = run.last.max(next.last);
            }
            meets
        });
        Self(runs)
    }

    pub fn iter(&self) -> impl Iterator<Item = InodeRun> {
        self.0.iter().copied()
    }

    pub fn contain(&self, inode: u32) -> bool {
        self.meet(InodeRun { first: inode, last: inode })
    }

    /// Of inodes in rising order, those that are in none of the runs.
    pub fn rest_of(
        &self,
        inodes: impl Iterator<Item = InodeNumber>,
    ) -> impl Iterator<Item = InodeNumber> {
        let mut runs = self.0.iter().peekable();
        inodes.filter(move |inode| {
            while runs.next_if(|run| run.last < inode.get()).is_some() {}
            runs.peek().is_none_or(|run| run.first > inode.get())
        })
    }

    /// Whether an inode of a run is in one of these.
    pub fn meet(&self, run: InodeRun) -> bool {
        let at = self.0.partition_point(|own| own.last < run.first);
        self.0.get(at).is_some_and(|own| own.first <= run.last)
    }

    /// Whether one of these inodes is in one of the runs.
    pub fn have_any(&self, inodes: &InodeList) -> bool {
        let Some((first, last)) = inodes.bounds() else { return false };
        let from = self.0.partition_point(|run| run.last < first);
        let mut runs = self.0[from..].iter().take_while(|run| run.first <= last).peekable();
        runs.peek().is_some()
            && inodes.iter().any(|inode| {
                while runs.next_if(|run| run.last < inode).is_some() {}
                runs.peek().is_some_and(|run| run.first <= inode)
            })
    }
}
