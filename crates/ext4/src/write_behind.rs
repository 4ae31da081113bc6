//! Data that was written and has no blocks yet: delayed allocation.
//!
//! # State
//! An inode's [`Buffered`] holds whole blocks of data by their place in the file; each is a delayed
//! extent in the [cache of extents](crate::extent_status), and a block that is claimed from the free
//! ones, as are the nodes that mapping them may take. So writing them later never lacks space. The
//! mount's [`WriteBehind`] bounds how many there are, and knows the inodes that have some. A thread of
//! the mount ([`Ext4`](crate::mount::Ext4)) writes them after a time, or when they get many.
//!
//! # Locking
//! An inode's data changes with its content lock held exclusively; the lock inside is for readers
//! side by side. The list of inodes has a lock of its own, held for a push. Who writes all that waits
//! holds `flushing`, which comes before the content locks.
//!
//! # Crash
//! What waits here is lost in a crash, and with it the growth of the file: the size on disk moves with
//! the data.

use crate::inode::Inode;
use crate::lock_classes;
use drystone_sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering};
use drystone_sync::{Arc, Condvar, Mutex, OnceLock, RwLock};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::time::Duration;

/// Inodes that may wait, whatever they hold: bounds those that are kept in memory for it.
const INODES_MAX: usize = 4096;

type Blocks = BTreeMap<u32, Box<[u8]>>;

/// Data of an inode that waits for blocks.
#[derive(Debug, Default)]
pub(crate) struct Buffered {
    count: AtomicU32,
    /// The file was emptied: what is written now replaces what it held.
    replaces: AtomicBool,
    /// Few inodes of many have any data that waits.
    data: OnceLock<Box<Data>>,
}

#[derive(Debug)]
struct Data {
    /// Blocks that are claimed for nodes of the mapping.
    nodes: AtomicU32,
    /// Blocks of data are being mapped: only that may take nodes.
    is_mapped: AtomicBool,
    listed: AtomicBool,
    blocks: RwLock<Blocks>,
}

impl Data {
    fn new() -> Box<Data> {
        Box::new(Data {
            nodes: AtomicU32::new(0),
            is_mapped: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            blocks: RwLock::new(&lock_classes::DELAYED, Blocks::new()),
        })
    }
}

impl Buffered {
    fn data(&self) -> &Data {
        self.data.get_or_init(Data::new)
    }

    /// Whether any data waits.
    pub fn is_any(&self) -> bool {
        self.count() > 0
    }

    /// Blocks of data that wait.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Notes that the file was emptied.
    pub fn note_replacement(&self) {
        self.replaces.store(true, Ordering::Relaxed);
    }

    /// Whether the file was emptied since this was asked last.
    pub fn take_replacement(&self) -> bool {
        self.replaces.load(Ordering::Relaxed) && self.replaces.swap(false, Ordering::Relaxed)
    }

    /// Whether data of a range waits.
    pub fn is_any_in(&self, from: u32, to: u64) -> bool {
        self.is_any() && self.run_from(from).is_some_and(|(first, _)| u64::from(first) < to)
    }

    /// Puts bytes into blocks from `first` on, `within` bytes into it. Returns how many of the blocks
    /// are new.
    pub fn write(&self, first: u32, within: usize, mut piece: &[u8], block_size: usize) -> u32 {
        let mut blocks = self.data().blocks.write();
        let before = blocks.len();
        let (mut block, mut within) = (first, within);
        while !piece.is_empty() {
            let length = piece.len().min(block_size - within);
            let bytes = blocks.entry(block).or_insert_with(|| vec![0; block_size].into());
            bytes[within..within + length].copy_from_slice(&piece[..length]);
            piece = &piece[length..];
            (block, within) = (block + 1, 0);
        }
        // A file has fewer than 2^32 blocks.
        self.count.store(blocks.len() as u32, Ordering::Relaxed);
        (blocks.len() - before) as u32
    }

    /// Reads bytes of blocks that all wait.
    pub fn read(&self, first: u32, within: usize, mut buffer: &mut [u8], block_size: usize) {
        let blocks = self.data().blocks.read();
        let (mut block, mut within) = (first, within);
        while !buffer.is_empty() {
            let length = buffer.len().min(block_size - within);
            let (piece, rest) = buffer.split_at_mut(length);
            match blocks.get(&block) {
                Some(bytes) => piece.copy_from_slice(&bytes[within..within + length]),
                None => piece.fill(0),
            }
            buffer = rest;
            (block, within) = (block + 1, 0);
        }
    }

    /// The first run of blocks at or behind `from`, and its length.
    pub fn run_from(&self, from: u32) -> Option<(u32, u32)> {
        let blocks = self.data.get()?.blocks.read();
        let mut numbers = blocks.range(from..).map(|(number, _)| *number);
        let first = numbers.next()?;
        let more = numbers.zip(first + 1..).take_while(|(number, next)| number == next).count();
        Some((first, 1 + more as u32))
    }

    /// Shows the blocks of a run.
    pub fn with_run<T>(
        &self,
        first: u32,
        length: u32,
        show: impl FnOnce(&[IoSlice<'_>]) -> T,
    ) -> T {
        let blocks = self.data().blocks.read();
        let slices: Vec<IoSlice<'_>> =
            blocks.range(first..first + length).map(|(_, bytes)| IoSlice::new(bytes)).collect();
        show(&slices)
    }

    /// Drops a run that has blocks now.
    pub fn remove(&self, first: u32, length: u32) {
        let mut blocks = self.data().blocks.write();
        let mut rest = blocks.split_off(&first);
        blocks.append(&mut rest.split_off(&(first + length)));
        self.count.store(blocks.len() as u32, Ordering::Relaxed);
    }

    /// Drops everything. Returns how many blocks that was.
    pub fn clear(&self) -> u32 {
        let Some(data) = self.data.get() else { return 0 };
        data.blocks.write().clear();
        self.count.swap(0, Ordering::Relaxed)
    }

    /// Nodes that have to be claimed beside those that are, for `more` blocks more.
    pub fn nodes_missing(&self, more: u32, nodes_least: u32, blocks_per_node: u32) -> u32 {
        let wanted = nodes_least + (self.count() + more) / blocks_per_node;
        wanted.saturating_sub(self.data().nodes.load(Ordering::Relaxed))
    }

    /// Notes that so many blocks were claimed for nodes.
    pub fn add_nodes(&self, count: u32) {
        self.data().nodes.fetch_add(count, Ordering::Relaxed);
    }

    /// Does what maps blocks of data, and may use what is claimed for nodes. The content lock is held
    /// exclusively.
    pub fn mapping<T>(&self, work: impl FnOnce() -> T) -> T {
        let data = self.data();
        data.is_mapped.store(true, Ordering::Relaxed);
        let done = work();
        data.is_mapped.store(false, Ordering::Relaxed);
        done
    }

    /// Takes one of the blocks that are claimed for nodes. The content lock is held exclusively.
    pub fn take_node(&self) -> bool {
        let Some(data) = self.data.get().filter(|data| data.is_mapped.load(Ordering::Relaxed))
        else {
            return false;
        };
        let left = data.nodes.load(Ordering::Relaxed);
        if left > 0 {
            data.nodes.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Takes all of them.
    pub fn take_nodes(&self) -> u32 {
        self.data.get().map_or(0, |data| data.nodes.swap(0, Ordering::Relaxed))
    }
}

/// What waits in a mount.
#[derive(Debug)]
pub(crate) struct WriteBehind {
    /// Whether anything may wait.
    pub is_on: bool,
    blocks: AtomicI64,
    blocks_max: i64,
    /// Inodes on the list.
    inodes: AtomicUsize,
    waiting: Mutex<Waiting>,
    wake: Condvar,
    /// So much waits that it shouldn't for long.
    is_urgent: AtomicBool,
    /// Held by who writes all that waits, so that who comes next knows that it was written.
    pub flushing: Mutex<()>,
}

/// The inodes that have something that waits, or had.
#[derive(Debug, Default)]
struct Waiting {
    inodes: Vec<Arc<Inode>>,
    has_ended: bool,
}

/// Why data has to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// It has waited long enough.
    Old,
    /// There is much of it.
    Urgent,
}

impl WriteBehind {
    /// Nothing waits, and nothing will unless it `is_on`.
    pub fn new(is_on: bool, blocks_max: usize) -> WriteBehind {
        WriteBehind {
            is_on,
            blocks: AtomicI64::new(0),
            blocks_max: i64::try_from(blocks_max).unwrap_or(i64::MAX),
            inodes: AtomicUsize::new(0),
            waiting: Mutex::new(&lock_classes::WRITE_BEHIND, Waiting::default()),
            wake: Condvar::new(),
            is_urgent: AtomicBool::new(false),
            flushing: Mutex::new(&lock_classes::FLUSHING, ()),
        }
    }

    /// Counts blocks of an inode that wait from now on.
    pub fn add(&self, inode: &Arc<Inode>, blocks: u32) {
        let blocks = i64::from(blocks);
        let before = self.blocks.fetch_add(blocks, Ordering::Relaxed);
        let mut wakes = before + blocks > self.blocks_max / 2;
        if !inode.buffered.data().listed.swap(true, Ordering::AcqRel) {
            let mut waiting = self.waiting.lock();
            let is_first = waiting.inodes.is_empty();
            waiting.inodes.push(Arc::clone(inode));
            let count = waiting.inodes.len();
            self.inodes.store(count, Ordering::Relaxed);
            drop(waiting);
            wakes |= count > INODES_MAX / 2;
            if is_first {
                self.wake.notify_all();
            }
        }
        if wakes && !self.is_urgent.swap(true, Ordering::Relaxed) {
            // Who looks whether it is urgent does so with the lock held, and sleeps or sees it.
            drop(self.waiting.lock());
            self.wake.notify_all();
        }
    }

    /// Counts blocks that don't wait any more.
    pub fn remove(&self, blocks: u32) {
        self.blocks.fetch_sub(i64::from(blocks), Ordering::Relaxed);
    }

    /// Whether data waits.
    pub fn is_any(&self) -> bool {
        self.blocks() > 0
    }

    /// Blocks of data that wait.
    pub fn blocks(&self) -> i64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Whether more may wait.
    pub fn has_room(&self) -> bool {
        self.blocks() < self.blocks_max && self.inodes.load(Ordering::Relaxed) < INODES_MAX
    }

    /// The inodes that wait; they are off the list.
    pub fn take_waiting(&self) -> Vec<Arc<Inode>> {
        let inodes = std::mem::take(&mut self.waiting.lock().inodes);
        self.inodes.store(0, Ordering::Relaxed);
        for inode in &inodes {
            inode.buffered.data().listed.store(false, Ordering::Release);
        }
        inodes
    }

    /// Returns when what waits has to be written, and why: when something has waited for `age_max`, or
    /// so much waits that it is urgent, unless what was tried last `has_failed`. Nothing: no more will
    /// wait.
    pub fn wait_until_due(&self, age_max: Duration, has_failed: bool) -> Option<Due> {
        let mut waiting = self.waiting.lock();
        while !waiting.has_ended {
            if !has_failed && self.is_urgent.swap(false, Ordering::Relaxed) {
                return Some(Due::Urgent);
            }
            if waiting.inodes.is_empty() {
                self.wake.wait(&mut waiting);
            } else if self.wake.wait_timeout(&mut waiting, age_max) && !waiting.has_ended {
                return Some(Due::Old);
            }
        }
        None
    }

    /// Ends [`wait_until_due`](Self::wait_until_due).
    pub fn end(&self) {
        self.waiting.lock().has_ended = true;
        self.wake.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn after_a_failure_nothing_is_urgent() {
        let waits = WriteBehind::new(true, 8);
        waits.is_urgent.store(true, Ordering::Relaxed);
        let ended = drystone_sync::thread::scope(|scope| {
            let waiting = scope.spawn(|| waits.wait_until_due(Duration::from_secs(3600), true));
            waits.end();
            waiting.join().unwrap()
        });
        assert_eq!(ended, None);
        let waits = WriteBehind::new(true, 8);
        waits.is_urgent.store(true, Ordering::Relaxed);
        assert_eq!(waits.wait_until_due(Duration::ZERO, false), Some(Due::Urgent));
    }
}
