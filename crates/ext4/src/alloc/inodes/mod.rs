//! Allocates and frees inodes.
//!
//! A new directory goes to the group that `spread` chooses, a file near its directory. Policies
//! decide where the search for a file's inode starts, and how an inode that was found is claimed.
//!
//! # State
//! Inodes at the end of a group's table that were never used may be uninitialised on disk
//! (`lazy_itable_init`). They are taken in order, and a table block is zeroed in the transaction
//! that takes, or sets aside, the first inode in it.
//!
//! An inode that is clear in its group's bitmap may be *withheld*: a core has set it aside
//! (`per_core`), or it was freed a moment ago in an image without a journal (`recent`). When no
//! other inode is left, all withheld inodes that were not given out go back.
//!
//! # Locking
//! A thread locks one group at a time.
//!
//! # Crash
//! Bitmap and descriptor change in the transaction that gives the inode out. With a journal a freed
//! inode may be used again at once: its deletion and its new use are in one transaction, or in two
//! that commit in order.

mod claim;
mod in_group;
mod in_order;
mod per_core;
mod recent;
mod run;

use super::group::{BlockGroup, BlockGroupState};
use super::groups::BlockGroups;
use super::spread::{Spread, Totals};
use super::statistics::Count;
use crate::error::{Error, Result};
use crate::policy::{InodeClaim, InodeSearch, Policy};
use drystone_ext4_format::error::InodeProblem;
use drystone_ext4_format::features::Compat;
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::{Corrupt, GroupNumber, InodeNumber, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;
use drystone_sync::atomic::{AtomicU32, Ordering};
use drystone_sync::{Arc, thread};
use in_order::NextHint;
use per_core::InodeRuns;
use recent::RecentlyFreed;
use std::ops::Range;

/// How often a search is repeated after it has lost every race.
const ATTEMPTS_MAX: u32 = 64;

/// A request for an inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeRequest {
    /// The directory that the inode's first name will be in.
    pub parent: InodeNumber,
    /// Whether it will be a directory.
    pub directory: bool,
    /// Whether it is a directory whose subtree should lie apart from others.
    pub top_level: bool,
    /// The first inode to try. Only its group is sure to be tried.
    pub goal: Option<InodeNumber>,
}

/// Gives out inodes.
pub(crate) struct InodeAllocator {
    groups: Arc<BlockGroups>,
    search: SearchForm,
    claim: InodeClaim,
    recent: RecentlyFreed,
    /// Goes up with every top-level directory, so that equal groups take turns.
    next_top_directory: AtomicU32,
}

enum SearchForm {
    First,
    NextHint(NextHint),
    PerCore(InodeRuns),
}

impl InodeAllocator {
    pub(super) fn new(groups: Arc<BlockGroups>, policy: Policy) -> InodeAllocator {
        let search = match policy.inode_search {
            InodeSearch::First => SearchForm::First,
            InodeSearch::NextHint => SearchForm::NextHint(NextHint::new()),
            InodeSearch::PerCore => SearchForm::PerCore(InodeRuns::new(Arc::clone(&groups))),
        };
        InodeAllocator {
            groups,
            search,
            claim: policy.inode_claim,
            recent: RecentlyFreed::new(),
            next_top_directory: AtomicU32::new(0),
        }
    }

    /// Allocates an inode and marks it in the transaction. Its record in the inode table has its
    /// old content, or zeros if it was never used.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if no inode is free.
    pub fn allocate(&self, handle: &mut Handle<'_>, request: &InodeRequest) -> Result<InodeNumber> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(inode) = self.search_inode(handle, request)? {
                return Ok(inode);
            }
            if let SearchForm::PerCore(runs) = &self.search {
                runs.give_all_back();
            }
            self.recent.release(&self.groups, u64::MAX);
            if self.groups.free_inodes.sum() <= 0 {
                break;
            }
            thread::yield_now();
        }
        Err(Error::NoSpace)
    }

    fn search_inode(
        &self,
        handle: &mut Handle<'_>,
        request: &InodeRequest,
    ) -> Result<Option<InodeNumber>> {
        if request.directory || request.goal.is_some() {
            return self.search_spread(handle, request);
        }
        match &self.search {
            SearchForm::First => self.search_from_first(handle, request),
            SearchForm::NextHint(hint) => self.search_from_hint(handle, hint, request),
            SearchForm::PerCore(runs) => match runs.take(handle, request)? {
                Some(inode) => Ok(Some(inode)),
                None => self.search_spread(handle, request),
            },
        }
    }

    /// Claims the first free inode of a group among `bits`.
    fn claim_inode(
        &self,
        handle: &mut Handle<'_>,
        group: &BlockGroup,
        bits: Range<u32>,
        directory: bool,
    ) -> Result<Option<InodeNumber>> {
        let Some(buffer) = self.groups.ready_bitmap(handle, group)? else { return Ok(None) };
        let claimed = match self.claim {
            InodeClaim::TestThenLock => self.claim_testing(handle, group, &buffer, &bits)?,
            InodeClaim::Relock => self.claim_relocking(handle, group, &buffer, &bits)?,
        };
        let Some(bit) = claimed else { return Ok(None) };
        // Both published variants take the lock a second time here.
        let mut state = group.state.lock();
        self.groups.counts.note(Count::InodeLockTake);
        let loaded = match state.load(&self.groups.volume, group.number) {
            Ok(loaded) => loaded,
            Err(Error::Corrupt(_)) => {
                // Another thread has taken the group out of use since: there are others.
                bitmap::clear(&mut handle.write(&buffer, None)?, bit as usize);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.groups.record_inode(handle, group, loaded, bit, directory)?;
        Ok(Some(self.groups.inode_at(group, bit)))
    }

    /// Searches the groups, from the one that `spread` chooses.
    fn search_spread(
        &self,
        handle: &mut Handle<'_>,
        request: &InodeRequest,
    ) -> Result<Option<InodeNumber>> {
        let layout = self.groups.volume.layout();
        let Some(first) = self.choose_group(request)? else { return Ok(None) };
        let goal = match request.goal {
            Some(goal) => Some(layout.bit_of_inode(goal)?),
            None => None,
        };
        let count = self.groups.count();
        let inodes = layout.inodes_per_group();
        for step in 0..count {
            let group = self.groups.at(GroupNumber::new((first.get() + step) % count));
            if group.free_inodes.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let start = match (goal, &self.search) {
                (Some((number, bit)), _) if number == group.number => bit,
                (_, SearchForm::PerCore(_)) => group.next_inode.load(Ordering::Relaxed).min(inodes),
                (_, SearchForm::First | SearchForm::NextHint(_)) => 0,
            };
            for bits in [start..inodes, 0..start] {
                if let Some(inode) = self.claim_inode(handle, group, bits, request.directory)? {
                    return Ok(Some(inode));
                }
            }
        }
        Ok(None)
    }

    fn choose_group(&self, request: &InodeRequest) -> Result<Option<GroupNumber>> {
        let layout = self.groups.volume.layout();
        if let Some(goal) = request.goal {
            return Ok(Some(layout.group_of_inode(goal)?));
        }
        let parent = layout.group_of_inode(request.parent)?;
        let mut spread = Spread {
            groups: layout.group_count(),
            groups_per_region: layout.groups_per_flex(),
            inodes_per_group: layout.inodes_per_group(),
            clusters_per_group: layout.clusters_per_group(),
            image: Totals::default(),
            counts: |group: GroupNumber| self.groups.at(group).counts(),
        };
        if !request.directory {
            return Ok(spread.file(parent, request.parent.get()));
        }
        spread.image = Totals {
            free_inodes: self.groups.free_inodes.sum().max(0) as u64,
            free_clusters: self.groups.free_space.sum(),
            directories: self.groups.directories.sum().max(0) as u64,
        };
        Ok(if request.top_level {
            spread.top_directory(self.next_top_directory.fetch_add(1, Ordering::Relaxed))
        } else {
            spread.directory(parent)
        })
    }

    /// Frees an inode; `directory` says whether it was one. If the inode bitmap is damaged, the
    /// inode stays marked as in use until the image is repaired.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is free already, reserved, or does not exist; then nothing has
    /// changed.
    pub fn free(&self, handle: &mut Handle<'_>, inode: InodeNumber, directory: bool) -> Result<()> {
        let layout = self.groups.volume.layout();
        let (number, bit) = layout.bit_of_inode(inode)?;
        if inode < layout.first_inode() {
            return Err(not_in_use(inode));
        }
        let group = &self.groups.at(number);
        let waits = !self.groups.volume.features.compat.contains(Compat::HAS_JOURNAL);
        {
            let mut state = group.state.lock();
            let is_damaged = matches!(*state, BlockGroupState::Damaged(..));
            let loaded = match state.load_for_inodes(&self.groups.volume, number) {
                Ok(loaded) => loaded,
                Err(Error::Corrupt(damage)) => {
                    self.groups.take_out(group, &mut state, damage);
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            if loaded.descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
                return Err(not_in_use(inode));
            }
            if !directory && group.is_given_out(bit) {
                // The inode was given out by this transaction; the bitmap doesn't have it yet.
                group.given_out().clear(bit);
                if !waits {
                    self.groups.stop_withholding(group, &state, bit);
                }
            } else {
                let withholds = waits && !group.withheld().set(bit);
                let marked =
                    self.groups.change(number, loaded).record_free_inode(handle, inode, directory);
                if let Err(error) = marked {
                    if withholds {
                        group.withheld().clear(bit);
                    }
                    let Error::Corrupt(
                        damage @ (Corrupt::BitmapChecksum { .. } | Corrupt::BitmapCount { .. }),
                    ) = error
                    else {
                        return Err(error);
                    };
                    self.groups.take_out(group, &mut state, damage);
                    return Ok(());
                }
                match (waits, is_damaged) {
                    (true, _) => {}
                    (false, true) => self.groups.free_inodes.add(-1),
                    (false, false) => {
                        group.free_inodes.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            self.groups.free_inodes.add(1);
            group.next_inode.fetch_min(bit, Ordering::Relaxed);
            if directory {
                group.directories.fetch_sub(1, Ordering::Relaxed);
                self.groups.directories.add(-1);
            }
        }
        if waits {
            self.recent.add(handle.tid(), inode);
        }
        if let SearchForm::NextHint(hint) = &self.search {
            hint.note_freed(inode);
        }
        Ok(())
    }

    /// Updates the bitmaps before a transaction closes.
    pub(super) fn record(&self, handle: &mut Handle<'_>) -> Result<()> {
        match &self.search {
            SearchForm::First | SearchForm::NextHint(_) => Ok(()),
            SearchForm::PerCore(runs) => runs.record(handle),
        }
    }

    /// Called after a transaction's commit: releases freed inodes that waited for it, and resets
    /// the hint.
    pub(super) fn committed(&self, transaction: u64) {
        self.recent.release(&self.groups, transaction);
        if let SearchForm::NextHint(hint) = &self.search {
            hint.reset();
        }
    }

    /// Whether an inode is in use.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such inode, or its group is damaged.
    pub fn is_allocated(&self, inode: InodeNumber) -> Result<bool> {
        let (number, bit) = self.groups.volume.layout().bit_of_inode(inode)?;
        let group = &self.groups.at(number);
        let mut state = group.state.lock();
        let loaded = state.load(&self.groups.volume, number)?;
        if group.is_given_out(bit) {
            return Ok(true);
        }
        if loaded.descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(false);
        }
        let buffer = loaded.inode_bitmap(&self.groups.volume, number)?;
        let bytes = buffer.read();
        Ok(bitmap::test(&bytes, bit as usize))
    }

    /// The block of the inode table that holds an inode, and the inode's offset there in bytes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such inode, or its group's descriptor is damaged.
    pub fn table_block(&self, inode: InodeNumber) -> Result<(PhysicalBlock, usize)> {
        let layout = self.groups.volume.layout();
        let number = layout.group_of_inode(inode)?;
        let group = &self.groups.at(number);
        if group.inode_table.get() == 0 {
            return Err(group.state.lock().load(&self.groups.volume, number).err().unwrap_or_else(
                || {
                    // Unreachable: without a table the group is damaged, and it stays damaged.
                    not_in_use(inode)
                },
            ));
        }
        Ok(layout.inode_location(inode, group.inode_table)?)
    }
}

fn not_in_use(inode: InodeNumber) -> Error {
    Corrupt::Inode { inode, problem: InodeProblem::NotInUse }.into()
}
