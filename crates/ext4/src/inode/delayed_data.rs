//! Delayed allocation, the inode's side: data that was written and has no blocks yet.
//!
//! # State
//! Whole blocks of data by their logical block number. Each has a delayed extent in the
//! [cache of extents](crate::extent_status), and a claim on a free block. Blocks for the nodes that
//! mapping them may take are claimed as well. So writing it to the
//! device never lacks space.
//!
//! # Locking
//! The data changes with the content lock held exclusively. The lock inside lets readers work side by
//! side.

use crate::lock_classes;
use drystone_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use drystone_sync::{OnceLock, RwLock};
use std::collections::BTreeMap;
use std::io::IoSlice;

type Blocks = BTreeMap<u32, Box<[u8]>>;

/// Data of an inode that waits for blocks.
#[derive(Debug, Default)]
pub(crate) struct DelayedData {
    count: AtomicU32,
    /// The file was emptied: what is written now replaces what it held.
    replaces: AtomicBool,
    /// Allocated at first use: few inodes have data that waits.
    data: OnceLock<Box<DelayedBlocks>>,
}

#[derive(Debug)]
struct DelayedBlocks {
    /// Blocks that are claimed for nodes of the mapping.
    nodes: AtomicU32,
    /// Blocks of data are being mapped. Only then may nodes be taken.
    is_mapped: AtomicBool,
    listed: AtomicBool,
    blocks: RwLock<Blocks>,
}

impl DelayedBlocks {
    fn new() -> Box<DelayedBlocks> {
        Box::new(DelayedBlocks {
            nodes: AtomicU32::new(0),
            is_mapped: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            blocks: RwLock::new(&lock_classes::DELAYED_DATA, Blocks::new()),
        })
    }
}

impl DelayedData {
    fn data(&self) -> &DelayedBlocks {
        self.data.get_or_init(DelayedBlocks::new)
    }

    /// Notes that the mount's queue has the inode. Returns whether it had it before.
    pub fn note_queued(&self) -> bool {
        self.data().listed.swap(true, Ordering::AcqRel)
    }

    /// Notes that the inode has left the mount's queue.
    pub fn note_dequeued(&self) {
        self.data().listed.store(false, Ordering::Release);
    }

    /// Whether any data waits.
    pub fn is_any(&self) -> bool {
        self.count() > 0
    }

    /// Blocks of data that wait. Who sees none sees the transaction that has them, too.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Notes that the file was emptied.
    pub fn note_replacement(&self) {
        self.replaces.store(true, Ordering::Relaxed);
    }

    /// Whether the file was emptied since the last call.
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

    /// The first run of blocks at or after `from`, and its length.
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
        self.count.store(blocks.len() as u32, Ordering::Release);
    }

    /// Drops everything. Returns how many blocks that was.
    pub fn clear(&self) -> u32 {
        let Some(data) = self.data.get() else { return 0 };
        data.blocks.write().clear();
        self.count.swap(0, Ordering::Relaxed)
    }

    /// How many more nodes have to be claimed before `more` blocks are added.
    pub fn nodes_missing(&self, more: u32, nodes_least: u32, blocks_per_node: u32) -> u32 {
        let wanted = nodes_least + (self.count() + more) / blocks_per_node;
        wanted.saturating_sub(self.data().nodes.load(Ordering::Relaxed))
    }

    /// Notes that so many blocks were claimed for nodes.
    pub fn add_nodes(&self, count: u32) {
        self.data().nodes.fetch_add(count, Ordering::Relaxed);
    }

    /// Runs `work`, which maps blocks of data and may use the blocks claimed for nodes. The content lock
    /// is held exclusively.
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

    /// Takes all blocks that are claimed for nodes. Returns how many.
    pub fn take_nodes(&self) -> u32 {
        self.data.get().map_or(0, |data| data.nodes.swap(0, Ordering::Relaxed))
    }
}
