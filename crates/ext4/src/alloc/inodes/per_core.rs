//! Gives files inodes from runs that are set aside per core.
//!
//! # State
//! A core's run is in memory only: its bits are *withheld* in their group, so that no search finds
//! them, and clear on disk. To give an inode out, a thread does a compare-and-swap on the core's
//! run and sets a bit in the group's set of inodes *given out*. When the transaction closes, that
//! set is written to the bitmap and the descriptor, once per group, so the bit on disk is in the
//! transaction that created the inode.
//!
//! # Locking
//! A group's lock is taken once per run, not per inode, and once by each commit. While few inodes
//! are left, none are set aside, and all runs go back.
//!
//! # Crash
//! Inodes that a core had set aside are free on disk. The first thread to give out an inode of a
//! group in a transaction adds the blocks of bitmap and descriptor to it, so that the commit needs
//! no credits.

use super::InodeRequest;
use super::in_group::free_bit;
use super::run::{InodeRange, InodeRun};
use crate::alloc::group::{BlockGroup, BlockGroupState};
use crate::alloc::group_metadata::descriptor_location;
use crate::alloc::groups::BlockGroups;
use crate::alloc::statistics::Count;
use crate::credits::INODE_RUN_TABLE_BLOCKS;
use crate::error::{Error, Result};
use crate::lock_classes;
use drystone_ext4_format::{GroupNumber, InodeNumber};
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;
use drystone_sync::atomic::{AtomicU32, Ordering};
use drystone_sync::{Arc, Mutex, PerCore, current_core};

/// The most inodes that a core sets aside at once.
const RUN_LENGTH_MAX: u32 = 64;

/// The runs of all cores.
pub(super) struct InodeRuns {
    groups: Arc<BlockGroups>,
    slots: PerCore<CoreRuns>,
    /// Groups with inodes that were given out in the running transaction.
    changed: Mutex<Vec<GroupNumber>>,
}

/// The state of a core.
#[derive(Debug)]
struct CoreRuns {
    run: InodeRun,
    /// The group of the core's last run.
    group: AtomicU32,
}

impl InodeRuns {
    pub fn new(groups: Arc<BlockGroups>) -> InodeRuns {
        InodeRuns {
            groups,
            slots: PerCore::new(|_| CoreRuns { run: InodeRun::new(), group: AtomicU32::new(0) }),
            changed: Mutex::new(&lock_classes::INODE_RUNS, Vec::new()),
        }
    }

    /// An inode from the core's run, or from a new run; `None` if none can be set aside.
    pub(super) fn take(
        &self,
        handle: &mut Handle<'_>,
        request: &InodeRequest,
    ) -> Result<Option<InodeNumber>> {
        let core = current_core();
        let slot = self.slots.slot(core);
        if let Some(inode) = slot.run.take() {
            self.give_out(handle, inode)
                .inspect_err(|_| self.give_back(InodeRange { first: inode, count: 1 }))?;
            return Ok(Some(inode));
        }
        let enough = i64::from(RUN_LENGTH_MAX) * 2 * self.slots.slot_count() as i64;
        if self.groups.free_inodes.sum() < enough {
            self.give_all_back();
            return Ok(None);
        }
        let parent = self.groups.volume.layout().group_of_inode(request.parent)?;
        let Some(run) = self.set_aside(handle, parent, core, slot)? else { return Ok(None) };
        self.groups.counts.note(Count::InodeRun);
        self.give_out(handle, run.first).inspect_err(|_| self.give_back(run))?;
        // Another thread on this core may have stored a run first.
        if let Some(left) = slot.run.replace(run.rest()) {
            self.give_back(left);
        }
        Ok(Some(run.first))
    }

    /// Gives out an inode that was set aside. Nothing changes on an error.
    fn give_out(&self, handle: &mut Handle<'_>, inode: InodeNumber) -> Result<()> {
        let (number, bit) = self.groups.volume.layout().bit_of_inode(inode)?;
        let group = &self.groups.at(number);
        let transaction = handle.tid();
        // Once per transaction: a block that has joined it stays in it.
        let is_first = group.given_out_in.load(Ordering::Acquire) != transaction;
        if is_first {
            let (descriptor_block, _) = descriptor_location(self.groups.volume.layout(), number);
            handle.access(&self.groups.volume.read(group.inode_bitmap)?, None)?;
            self.groups.counts.note(Count::InodeWriteAccess);
            handle.access(&self.groups.volume.read(descriptor_block)?, None)?;
        }
        // The bitmap is written when the transaction closes.
        handle.note_change();
        group.given_out().set(bit);
        if is_first && group.given_out_in.swap(transaction, Ordering::AcqRel) != transaction {
            self.changed.lock().push(number);
        }
        self.groups.note_inode();
        Ok(())
    }

    /// Sets a run aside, in a group of the directory's region or else from the group of the core's
    /// last run on.
    fn set_aside(
        &self,
        handle: &mut Handle<'_>,
        parent: GroupNumber,
        core: usize,
        slot: &CoreRuns,
    ) -> Result<Option<InodeRange>> {
        let count = self.groups.count();
        let per_region = self.groups.volume.layout().groups_per_flex().min(count);
        let region = parent.get() / per_region * per_region;
        let length = per_region.min(count - region);
        // Each core starts at another group of the directory's region.
        let offset = (parent.get() - region + core as u32) % length;
        let near = (0..length).map(|step| region + (offset + step) % length);
        let last = slot.group.load(Ordering::Relaxed);
        let far = (0..count).map(|step| (last + step) % count);
        for index in near.chain(far) {
            let group = &self.groups.at(GroupNumber::new(index));
            if group.free_inodes.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if let Some(run) = self.set_aside_in(handle, group)? {
                slot.group.store(index, Ordering::Relaxed);
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    fn set_aside_in(
        &self,
        handle: &mut Handle<'_>,
        group: &BlockGroup,
    ) -> Result<Option<InodeRange>> {
        let Some(buffer) = self.groups.ready_bitmap(handle, group)? else { return Ok(None) };
        let state = group.state.lock();
        self.groups.counts.note(Count::InodeLockTake);
        if !matches!(*state, BlockGroupState::Loaded(_)) {
            return Ok(None);
        }
        let bytes = buffer.read();
        let range =
            self.groups.inode_bits(group, &(0..self.groups.volume.layout().inodes_per_group()));
        let hint = group.next_inode.load(Ordering::Relaxed).clamp(range.start, range.end);
        let found = free_bit(group, &bytes, hint..range.end)
            .or_else(|| free_bit(group, &bytes, range.start..hint));
        let Some(start) = found else { return Ok(None) };
        let per_block = self.groups.volume.layout().inodes_per_block();
        let ready = group.table_ready.load(Ordering::Relaxed).next_multiple_of(per_block);
        let limit = (ready.max(start / per_block * per_block) + INODE_RUN_TABLE_BLOCKS * per_block)
            .min(self.groups.volume.layout().inodes_per_group())
            .min(start + RUN_LENGTH_MAX);
        let is_free = |bit: &u32| !bitmap::test(&bytes, *bit as usize) && !group.is_withheld(*bit);
        let end = start + (start..limit).take_while(is_free).count() as u32;
        drop(bytes);
        self.groups.zero_table_blocks(handle, group, start..end)?;
        for bit in start..end {
            group.withheld().set(bit);
        }
        group.next_inode.store(end, Ordering::Relaxed);
        group.free_inodes.fetch_sub(end - start, Ordering::Relaxed);
        Ok(Some(InodeRange { first: self.groups.inode_at(group, start), count: end - start }))
    }

    /// Lets searches find inodes again that were set aside.
    fn give_back(&self, run: InodeRange) {
        let Ok((number, first)) = self.groups.volume.layout().bit_of_inode(run.first) else {
            return;
        };
        let group = &self.groups.at(number);
        let state = group.state.lock();
        for bit in first..first + run.count {
            self.groups.stop_withholding(group, &state, bit);
        }
        group.next_inode.fetch_min(first, Ordering::Relaxed);
    }

    /// Takes back the runs of all cores.
    pub(super) fn give_all_back(&self) {
        for slot in self.slots.iter() {
            if let Some(left) = slot.run.replace(None) {
                self.give_back(left);
            }
        }
    }

    /// Writes the inodes that were given out to bitmaps and descriptors. No other handle is open.
    pub(super) fn record(&self, handle: &mut Handle<'_>) -> Result<()> {
        let groups = std::mem::take(&mut *self.changed.lock());
        for number in groups {
            let group = &self.groups.at(number);
            let mut state = group.state.lock();
            let bits = group.given_out().take();
            if bits.is_empty() {
                continue;
            }
            let loaded = match &mut *state {
                // A group that was taken out of use meanwhile gave these inodes out before: they
                // are in use.
                BlockGroupState::Loaded(loaded) | BlockGroupState::Damaged(_, Some(loaded)) => {
                    loaded
                }
                BlockGroupState::Damaged(corrupt, None) => {
                    return Err(Error::Corrupt((**corrupt).clone()));
                }
                BlockGroupState::Unloaded => {
                    unreachable!("group {number} gave out inodes unloaded")
                }
            };
            let buffer = loaded.inode_bitmap(&self.groups.volume, number)?;
            {
                let mut bytes = handle.write(&buffer, None)?;
                for &bit in &bits {
                    let was_set = bitmap::set(&mut bytes, bit as usize);
                    assert!(!was_set, "inode {bit} of group {number} was given out twice");
                }
            }
            self.groups.change(number, loaded).record_used_inodes(handle, &bits, false)?;
            for bit in bits {
                group.withheld().clear(bit);
            }
        }
        Ok(())
    }
}
