//! What is known of the names in a directory without looking into its blocks.
//!
//! # State
//! A directory in memory has a table of names and what they stand for: an inode, or nothing. It says
//! nothing that the blocks don't; what it doesn't say is looked for there. It grows with use, within
//! a budget that all directories share, and is dropped when others need the room.
//!
//! # Locking
//! The table has a lock of its own, inside the directory's content lock. A look at it needs no other
//! lock, so what a name stands for is used while the table is locked: a look-up that finds an inode
//! takes a reference before the name can go, and the inode can't be freed before that. The tables that may be dropped are in a list, behind a lock
//! that is taken when one grows; a table is locked there without waiting.
//!
//! The table of a directory that was made since the mount has all its names, until one is forgotten or
//! doesn't fit: then what isn't in the table isn't in the directory.
//!
//! # Invariants
//! - A name is learned with the content lock held, shared or exclusively, and after the change that
//!   made it true has succeeded, so nothing that is no longer true is learned late.
//! - A name is dropped with the content lock held exclusively, before the blocks change. A name that
//!   goes, or comes to a directory that didn't have it, may be taken for absent until the change
//!   returns. While a name is replaced or moved, and when a change has failed, nothing is concluded
//!   from a name that isn't in the table.
//! - So with the content lock free, a name in the table stands for what the blocks say.

mod slots;
mod table;

pub(crate) use table::DentryReader;

use crate::lock_classes;
use crate::sequence_count::SequenceRead;
use drystone_ext4_format::InodeNumber;
use drystone_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use drystone_sync::{Arc, Mutex, RwLock, Weak};
use std::collections::VecDeque;
use table::DentryTable;

/// Tables that are looked at for one that wants to grow.
const SWEEP_LENGTH: usize = 8;
/// Tables that are looked at for one that is added: more than one, so that the list stays short.
const ENTER_LENGTH: usize = 2;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DentryTarget {
    /// An inode.
    Inode(InodeNumber),
    /// Nothing: there is no such name.
    Nothing,
}

/// The memory of all tables.
#[derive(Debug)]
pub(crate) struct DentryBudget {
    bytes_max: usize,
    bytes: AtomicUsize,
    /// Tables with memory, in the order in which a sweep meets them.
    tables: Mutex<VecDeque<Weak<SharedDentries>>>,
}

/// What a directory and the list of tables share.
#[derive(Debug)]
struct SharedDentries {
    table: RwLock<DentryTable>,
    /// Used since a sweep has last met it.
    is_used: AtomicBool,
    budget: Arc<DentryBudget>,
}

/// The names that are known of one directory.
#[derive(Debug)]
pub(crate) struct DentryCache(Arc<SharedDentries>);

impl DentryBudget {
    /// Tables may take up to `bytes_max` in all.
    pub fn new(bytes_max: usize) -> Arc<DentryBudget> {
        Arc::new(DentryBudget {
            bytes_max,
            bytes: AtomicUsize::new(0),
            tables: Mutex::new(&lock_classes::DENTRY_TABLES, VecDeque::new()),
        })
    }

    /// Bytes that all tables have.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes memory; false, and nothing taken, if there is not enough.
    pub fn take(&self, bytes: usize) -> bool {
        let fits = |held: usize| held.checked_add(bytes).filter(|&sum| sum <= self.bytes_max);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Gives memory back.
    pub fn give(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Adds a table to the list, and takes out some of those that are gone.
    fn enter(&self, table: Weak<SharedDentries>) {
        let mut tables = self.tables.lock();
        for _ in 0..ENTER_LENGTH.min(tables.len()) {
            tables.rotate_left(1);
            if tables.back().is_some_and(|last| last.strong_count() == 0) {
                tables.pop_back();
            }
        }
        tables.push_back(table);
    }

    /// Empties some tables that were not used since the last sweep.
    fn sweep(&self) {
        let mut tables = self.tables.lock();
        for _ in 0..SWEEP_LENGTH.min(tables.len()) {
            let Some(weak) = tables.pop_front() else { return };
            let Some(shared) = weak.upgrade() else { continue };
            let is_used = shared.is_used.swap(false, Ordering::Relaxed);
            match shared.table.try_write() {
                Some(mut table) if !is_used => self.give(table.reset()),
                _ => tables.push_back(weak),
            }
        }
    }
}

impl DentryCache {
    /// Nothing is known.
    pub fn new(budget: &Arc<DentryBudget>) -> DentryCache {
        DentryCache(Arc::new(SharedDentries {
            table: RwLock::new(&lock_classes::DENTRY_CACHE, DentryTable::default()),
            is_used: AtomicBool::new(false),
            budget: Arc::clone(budget),
        }))
    }

    /// Passes on what is known of a name, while nobody can change it. Don't wait in `found`.
    #[inline]
    pub fn look<T>(&self, name: &[u8], found: impl FnOnce(DentryTarget) -> T) -> Option<T> {
        let table = self.0.table.read();
        let meaning = table.get(name)?;
        self.note_use();
        Some(found(meaning))
    }

    /// As [`look`](Self::look), unless that takes a wait. Most often the reader has the places of the
    /// table, and nothing is locked: then `found` gets a [`SequenceRead`], by which it is to ask whether
    /// what it was told is so still, and is to conclude nothing if it isn't.
    ///
    /// If it is while the shard of the inode that the name stands for is locked, the inode stays until
    /// that is let go of: who frees it has changed the name before, and locks the shard after that.
    #[inline]
    pub fn try_look<T>(
        &self,
        reader: &mut DentryReader,
        name: &[u8],
        found: impl FnOnce(DentryTarget, Option<SequenceRead<'_>>) -> Option<T>,
    ) -> Option<T> {
        if let Some((meaning, read)) = reader.read(name) {
            let meaning = meaning?;
            self.note_use();
            return found(meaning, Some(read));
        }
        let table = self.0.table.try_read()?;
        reader.update(&table);
        let meaning = table.get(name)?;
        self.note_use();
        found(meaning, None)
    }

    #[inline]
    fn note_use(&self) {
        // Most often it is set: then its line stays shared.
        if !self.0.is_used.load(Ordering::Relaxed) {
            self.0.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// What a name stands for; see the rules for who may learn it.
    pub fn learn(&self, name: &[u8], meaning: DentryTarget) {
        if !DentryTable::can_hold(name) {
            return;
        }
        self.add(&mut self.0.table.write(), name, meaning);
    }

    /// What a name stands for that the directory did not have. If it can't be kept, not all names are
    /// known any more.
    pub fn learn_added(&self, name: &[u8], inode: InodeNumber) {
        self.add(&mut self.0.table.write(), name, DentryTarget::Inode(inode));
    }

    fn add(&self, table: &mut DentryTable, name: &[u8], meaning: DentryTarget) {
        if DentryTable::can_hold(name) && table.wants_room(name) {
            self.grow(table, name);
        }
        table.set(name, meaning);
    }

    /// The directory is new and has no names: from now on all of them are learned.
    pub fn start_empty(&self) {
        self.0.table.write().set_complete();
    }

    /// What a name stands for is about to change.
    pub fn begin_change(&self, name: &[u8]) {
        self.0.table.write().begin_change(name);
    }

    /// A name is about to be removed: nothing is known of it from here on but that it is not there,
    /// where all names are known. If the removal fails a change is to begin that does not end.
    pub fn forget(&self, name: &[u8]) {
        self.0.table.write().remove(name);
    }

    /// A change that began has succeeded, and the name stands for an inode now.
    pub fn end_change(&self, name: &[u8], inode: InodeNumber) {
        let mut table = self.0.table.write();
        self.add(&mut table, name, DentryTarget::Inode(inode));
        table.end_change(name);
    }

    /// Nothing is known any more.
    pub fn clear(&self) {
        let mut table = self.0.table.write();
        self.0.budget.give(table.reset());
    }

    fn grow(&self, table: &mut DentryTable, name: &[u8]) {
        let budget = &self.0.budget;
        let Some(bytes) = table.growth_bytes(name) else { return };
        if !budget.take(bytes) {
            budget.sweep();
            if !budget.take(bytes) {
                table.refused(name);
                return;
            }
        }
        if table.grow(name) {
            budget.enter(Arc::downgrade(&self.0));
        }
    }
}

impl Drop for SharedDentries {
    fn drop(&mut self) {
        let bytes = self.table.get_mut().reset();
        self.budget.give(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u32) -> Vec<u8> {
        format!("name-{number}").into_bytes()
    }

    fn fill(names: &DentryCache, count: u32) {
        for number in 0..count {
            names.learn(&name(number), DentryTarget::Inode(InodeNumber::new(number + 1)));
        }
    }

    fn known(names: &DentryCache, count: u32) -> u32 {
        let is_known = |number: &u32| {
            let expected = DentryTarget::Inode(InodeNumber::new(number + 1));
            names.look(&name(*number), |meaning| assert_eq!(meaning, expected)).is_some()
        };
        (0..count).filter(is_known).count() as u32
    }

    #[test]
    fn memory_is_bounded_and_comes_back() {
        let budget = DentryBudget::new(1 << 20);
        let first = DentryCache::new(&budget);
        fill(&first, 100_000);
        assert!(budget.bytes() <= 1 << 20, "{} bytes", budget.bytes());
        assert!(known(&first, 100_000) > 4000);
        let second = DentryCache::new(&budget);
        fill(&second, 5000);
        fill(&second, 5000);
        assert!(known(&second, 5000) > 4000, "an idle directory keeps the room");
        assert!(budget.bytes() <= 1 << 20, "{} bytes", budget.bytes());
        drop(first);
        second.clear();
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn directories_that_are_gone_leave_the_list() {
        let budget = DentryBudget::new(1 << 20);
        let kept = DentryCache::new(&budget);
        fill(&kept, 10);
        for _ in 0..1000 {
            fill(&DentryCache::new(&budget), 10);
        }
        assert!(budget.tables.lock().len() < 10);
        assert_eq!(known(&kept, 10), 10);
    }

    #[test]
    fn an_added_name_that_is_not_kept_may_be_there() {
        let names = DentryCache::new(&DentryBudget::new(1 << 20));
        names.start_empty();
        names.learn_added(b"a", InodeNumber::new(7));
        assert_eq!(names.look(b"b", |meaning| meaning), Some(DentryTarget::Nothing));
        names.forget(b"a");
        assert_eq!(names.look(b"a", |meaning| meaning), Some(DentryTarget::Nothing));
        names.learn_added(&[b'x'; 255], InodeNumber::new(8));
        assert_eq!(names.look(&[b'x'; 255], |meaning| meaning), None);
        assert_eq!(names.look(&[b'y'; 255], |meaning| meaning), None);
    }

    #[test]
    fn names_of_all_lengths_are_known() {
        let budget = DentryBudget::new(1 << 20);
        let names = DentryCache::new(&budget);
        names.start_empty();
        let inode = |length: usize| InodeNumber::new(length as u32);
        for length in 1..=56 {
            names.learn_added(&vec![b'x'; length], inode(length));
        }
        for length in 1..=56 {
            let known = names.look(&vec![b'x'; length], |meaning| meaning);
            assert_eq!(known, Some(DentryTarget::Inode(inode(length))));
        }
        // One that is too long concerns the long ones only.
        names.learn_added(&[b'x'; 57], inode(57));
        assert_eq!(names.look(b"y", |meaning| meaning), Some(DentryTarget::Nothing));
        assert_eq!(names.look(&[b'y'; 40], |meaning| meaning), None);
        assert_eq!(names.look(&[b'x'; 57], |meaning| meaning), None);
        assert_eq!(budget.tables.lock().len(), 1);
        names.clear();
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn names_come_and_go() {
        let budget = DentryBudget::new(1 << 20);
        let names = DentryCache::new(&budget);
        assert_eq!(names.look(b"a", |meaning| meaning), None);
        names.learn(b"a", DentryTarget::Nothing);
        assert_eq!(names.look(b"a", |meaning| meaning), Some(DentryTarget::Nothing));
        let inode = DentryTarget::Inode(InodeNumber::new(7));
        names.learn(b"a", inode);
        assert_eq!(names.look(b"a", |meaning| meaning), Some(inode));
        names.begin_change(b"b");
        names.begin_change(b"a");
        assert_eq!(names.look(b"a", |meaning| meaning), None);
        names.learn(&[b'x'; 255], inode);
        assert_eq!(names.look(&[b'x'; 255], |meaning| meaning), None);
        names.begin_change(&[b'x'; 255]);
    }
}
