//! Dentry cache: names of directories in memory, with the inodes they lead to.
//!
//! # State
//! A directory in memory has a table of names and their targets: an inode, or nothing. The table
//! agrees with the directory's blocks; a name that it doesn't have is looked up there. It grows
//! with use, within a budget that all directories share, and is dropped when others need the
//! memory.
//!
//! The table of a directory that was created since the mount is *complete*, until a name is evicted
//! or doesn't fit: a name that isn't in a complete table isn't in the directory.
//!
//! # Locking
//! The table has a lock of its own, inside the directory's content lock; a large one consists of several
//! ([`DentryTables`]). A look-up needs no other lock, so it uses the target while the table is locked: it
//! takes a reference to the inode before the name can be removed, and so before the inode can be freed. The
//! list of tables with memory has a lock that is taken when a table grows; under it tables are only
//! try-locked.
//!
//! # Invariants
//! - A thread adds a name with the name locked, by the content lock or by that of its leaf
//!   (`dir::lock_name`), and only after the change that made it true has succeeded; so no outdated name
//!   is added.
//! - A thread drops a name with the name locked against all others, before the blocks change. A name
//!   that is being removed or added may be taken for absent until the change returns. While a name
//!   is replaced or moved, and after a failed change, the table doesn't count as complete.
//! - So while no thread has a name locked, its target in the table is the one in the blocks.

mod slots;
mod table;
mod tables;

pub(crate) use table::DentryReader;

use crate::lock_classes;
use crate::sequence_count::SequenceRead;
use drystone_ext4_format::InodeNumber;
use drystone_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use drystone_sync::{Arc, Mutex, RwLockWriteGuard, Weak};
use std::collections::VecDeque;
use table::DentryTable;
use tables::DentryTables;

/// Tables that one sweep looks at, to free memory for a table that grows.
const SWEEP_LENGTH: usize = 8;
/// Tables that are checked for each one that is added: more than one, so that the list stays short.
const ENTER_LENGTH: usize = 2;

/// The target of a name.
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
    /// Tables with memory, in the order in which they are swept.
    tables: Mutex<VecDeque<Weak<SharedDentries>>>,
}

/// The part that a directory and the list of tables share.
#[derive(Debug)]
struct SharedDentries {
    tables: DentryTables,
    /// It is in the list, or about to be.
    is_listed: AtomicBool,
    /// Used since the last sweep looked at it.
    is_used: AtomicBool,
    budget: Arc<DentryBudget>,
}

/// The dentry cache of one directory.
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

    /// Bytes in use by all tables.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes memory. If there is not enough, takes nothing and returns false.
    pub fn take(&self, bytes: usize) -> bool {
        let fits = |held: usize| held.checked_add(bytes).filter(|&sum| sum <= self.bytes_max);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Gives memory back.
    pub fn give(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Adds a table to the list, and removes some that no longer exist.
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
            if shared.is_used.swap(false, Ordering::Relaxed) {
                tables.push_back(weak);
                continue;
            }
            // A table that gets memory again from here on is listed again.
            shared.is_listed.store(false, Ordering::Relaxed);
            let mut is_empty = true;
            for table in shared.tables.all() {
                match table.try_write() {
                    Some(mut table) => self.give(table.reset()),
                    None => is_empty = false,
                }
            }
            if !is_empty && !shared.is_listed.swap(true, Ordering::Relaxed) {
                tables.push_back(weak);
            }
        }
    }
}

impl DentryCache {
    /// An empty cache.
    pub fn new(budget: &Arc<DentryBudget>) -> DentryCache {
        DentryCache(Arc::new(SharedDentries {
            tables: DentryTables::new(),
            is_listed: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
            budget: Arc::clone(budget),
        }))
    }

    /// Calls `found` with the target of a name, if that is known, while the table is locked.
    /// `found` must not wait.
    #[inline]
    pub fn look<T>(&self, name: &[u8], found: impl FnOnce(DentryTarget) -> T) -> Option<T> {
        let table = self.0.tables.of(name).read();
        let meaning = table.get(name)?;
        self.note_use();
        Some(found(meaning))
    }

    /// Like [`look`](Self::look), but never waits. Most often the reader has the slots of the
    /// table, and no lock is taken: then `found` gets a [`SequenceRead`], must ask it afterwards
    /// whether the target is still valid, and return nothing if it isn't.
    ///
    /// If the target is valid while `found` holds the lock of the inode's shard, the inode can't be
    /// freed before that lock is released: a thread that frees the inode changes the name first,
    /// and locks the shard afterwards.
    #[inline]
    pub fn try_look<T>(
        &self,
        reader: &mut DentryReader,
        name: &[u8],
        found: impl FnOnce(DentryTarget, Option<SequenceRead<'_>>) -> Option<T>,
    ) -> Option<T> {
        let number = self.0.tables.number_of(name);
        let reader = reader.of(number);
        if let Some((meaning, read)) = reader.read(name) {
            let meaning = meaning?;
            self.note_use();
            return found(meaning, Some(read));
        }
        let table = self.0.tables.get(number).try_read()?;
        reader.update(&table);
        let meaning = table.get(name)?;
        self.note_use();
        found(meaning, None)
    }

    #[inline]
    fn note_use(&self) {
        // Most often it is set; then the cache line stays shared.
        if !self.0.is_used.load(Ordering::Relaxed) {
            self.0.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// Adds a name with its target. See the module's invariants for when this is allowed.
    pub fn learn(&self, name: &[u8], meaning: DentryTarget) {
        if !DentryTable::can_hold(name) {
            return;
        }
        drop(self.add(name, meaning));
    }

    /// Adds a name that is new in the directory. If it doesn't fit, the table is no longer
    /// complete.
    pub fn learn_added(&self, name: &[u8], inode: InodeNumber) {
        drop(self.add(name, DentryTarget::Inode(inode)));
    }

    /// Adds a name, and returns its table, which is locked.
    fn add(&self, name: &[u8], meaning: DentryTarget) -> RwLockWriteGuard<'_, DentryTable> {
        let mut table = self.0.tables.write(name);
        if self.0.tables.spread(&mut table, &self.0.budget) {
            drop(table);
            table = self.0.tables.write(name);
        }
        if DentryTable::can_hold(name) && table.wants_room(name) {
            self.grow(&mut table, name);
        }
        table.set(name, meaning);
        table
    }

    /// Makes the table complete: the directory is new and has no names.
    pub fn start_empty(&self) {
        self.0.tables.get(0).write().set_complete();
    }

    /// Begins a change of a name's target.
    pub fn begin_change(&self, name: &[u8]) {
        self.0.tables.write(name).begin_change(name);
    }

    /// Drops a name that is about to be removed; a complete table then says that it is absent. If
    /// the removal fails, the caller must call [`begin_change`](Self::begin_change) and never end
    /// that change.
    pub fn forget(&self, name: &[u8]) {
        self.0.tables.write(name).remove(name);
    }

    /// Ends a change that has succeeded: the name's target is now `inode`.
    pub fn end_change(&self, name: &[u8], inode: InodeNumber) {
        self.add(name, DentryTarget::Inode(inode)).end_change(name);
    }

    /// Forgets all names.
    pub fn clear(&self) {
        for table in self.0.tables.all() {
            self.0.budget.give(table.write().reset());
        }
    }

    fn grow(&self, table: &mut DentryTable, name: &[u8]) {
        let budget = &self.0.budget;
        let Some(bytes) = table.growth_bytes(name) else { return };
        if !budget.take(bytes) {
            // The others' memory is wanted.
            self.note_use();
            budget.sweep();
            if !budget.take(bytes) {
                table.refused(name);
                return;
            }
        }
        if table.grow(name) && !self.0.is_listed.swap(true, Ordering::Relaxed) {
            budget.enter(Arc::downgrade(&self.0));
        }
    }
}

impl Drop for SharedDentries {
    fn drop(&mut self) {
        let bytes = self.tables.reset();
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
    fn many_names_are_spread() {
        let budget = DentryBudget::new(8 << 20);
        let names = DentryCache::new(&budget);
        names.start_empty();
        let shards = || names.0.tables.all().count() - 1;
        let mut number = 0;
        // With many threads there is always a name that changes.
        let changing = [&b"changing"[..], &[b'c'; 40], &[b'c'; 99]];
        for name in changing {
            names.begin_change(name);
        }
        while shards() == 0 {
            names.learn_added(&name(number), InodeNumber::new(number + 1));
            number += 1;
            assert!(number < 5000);
        }
        assert_eq!(known(&names, number), number);
        let look = |name: &[u8]| names.look(name, |meaning| meaning);
        let absent = |name: u32| look(format!("absent-{name}").as_bytes());
        // The shards of names that change aren't complete, until all changes have ended there.
        let complete = || (0..5000).filter(|&name| absent(name).is_some()).count();
        assert!((4900..5000).contains(&complete()), "{}", complete());
        for (name, inode) in changing.into_iter().zip(1 << 20..) {
            assert_eq!(look(name), None);
            names.end_change(name, InodeNumber::new(inode));
        }
        let inode = |number| Some(DentryTarget::Inode(InodeNumber::new(number)));
        assert_eq!(changing.map(look), [inode(1 << 20), inode((1 << 20) + 1), None]);
        assert_eq!(complete(), 5000);
        names.begin_change(&name(7));
        assert!(complete() < 5000);
        names.forget(&name(8));
        assert_ne!(look(&name(8)), Some(DentryTarget::Inode(InodeNumber::new(9))));
        names.clear();
        assert_eq!((budget.bytes(), known(&names, number)), (0, 0));
    }

    /// Names are read without a lock while they move to shards.
    #[test]
    fn readers_see_no_old_names_after_the_move() {
        let names = DentryCache::new(&DentryBudget::new(8 << 20));
        let mut reader = DentryReader::default();
        let mut look = |name: &[u8]| {
            names.try_look(&mut reader, name, |meaning, read| {
                read.is_none_or(|read| read.holds()).then_some(meaning)
            })
        };
        let mut number = 0;
        while names.0.tables.all().count() == 1 {
            names.learn(&name(number), DentryTarget::Inode(InodeNumber::new(number + 1)));
            assert!(look(&name(number)).is_some());
            number += 1;
        }
        for number in 0..number {
            let expected = DentryTarget::Inode(InodeNumber::new(number + 1));
            assert_eq!(look(&name(number)), Some(expected));
            names.forget(&name(number));
            assert_eq!(look(&name(number)), None);
        }
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
        // A name that is too long makes only the part for long names incomplete.
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
