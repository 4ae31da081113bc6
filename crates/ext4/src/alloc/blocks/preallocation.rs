//! Preallocation windows: blocks set aside for the files that are likely to need them next.
//!
//! # State
//! A *window* is a run that is taken in its group's map, but free on disk and in the count of free
//! clusters. A large file has a window of its own, for the blocks after its last ones; its length
//! grows with the file. Small files share one per core, so that they lie together. Blocks leave a
//! window from its start, claimed and marked like any others.
//!
//! While little space is free, no windows are made. Before an allocation fails for lack of space,
//! all windows are given back.
//!
//! # Locking
//! The window of a large file is in the slot of the core that put it there last, which the file
//! remembers; a core's window for small files has a slot of its own. A thread that uses a window
//! takes it out, so that it never holds the lock of a slot together with a group's.
//!
//! # Crash
//! A window is in memory only.

use super::super::group::BlockGroupState;
use super::super::groups::BlockGroups;
use super::take::Taken;
use super::{BlockAllocator, BlockRequest, BlockRun, FileRequest, FileSpace, RunWish};
use crate::error::{Error, Result};
use crate::lock_classes;
use crate::number_map::NumberMap;
use drystone_ext4_format::{GroupNumber, InodeNumber};
use drystone_jbd2::Handle;
use drystone_sync::atomic::{Ordering, fence};
use drystone_sync::{Arc, PerCore, PerCoreCounter, SpinLock, thread};
use std::ops::Range;

/// The smallest and the largest window of a large file, in bytes.
const FILE_WINDOW_BYTES: (u64, u64) = (64 << 10, 8 << 20);
/// The window of a core for small files, in clusters.
const SHARED_WINDOW_CLUSTERS: u32 = 512;

/// A preallocation window.
#[derive(Debug)]
struct PreallocationWindow {
    group: GroupNumber,
    bits: Range<u32>,
    /// The cluster of the file that the run starts with; 0 for small files.
    logical: u64,
}

type FileWindows = NumberMap<InodeNumber, PreallocationWindow>;

/// All windows.
pub(crate) struct PreallocationWindows {
    groups: Arc<BlockGroups>,
    files: PerCore<SpinLock<FileWindows>>,
    shared: PerCore<SpinLock<Option<PreallocationWindow>>>,
    /// The streams of the cores' small files, for groups without room near the files.
    streams: PerCore<FileSpace>,
    /// Clusters in windows.
    clusters: PerCoreCounter,
}

impl PreallocationWindows {
    pub fn new(groups: Arc<BlockGroups>) -> PreallocationWindows {
        PreallocationWindows {
            groups,
            files: PerCore::new(|_| {
                SpinLock::new(&lock_classes::PREALLOCATION, FileWindows::default())
            }),
            shared: PerCore::new(|_| SpinLock::new(&lock_classes::PREALLOCATION, None)),
            // The highest inode numbers. If an inode has one too, the two streams are only kept
            // apart less well.
            streams: PerCore::new(|slot| FileSpace::new(InodeNumber::new(u32::MAX - slot as u32))),
            clusters: PerCoreCounter::new(0),
        }
    }

    /// The stream of the current core's small files.
    pub(super) fn stream(&self) -> &FileSpace {
        self.streams.current()
    }

    fn remove(&self, file: &FileRequest<'_>) -> Option<PreallocationWindow> {
        if file.is_large {
            self.remove_from(file.space.window_slot()?, file.space.inode)
        } else {
            self.shared.current().lock().take()
        }
    }

    fn remove_from(&self, slot: usize, inode: InodeNumber) -> Option<PreallocationWindow> {
        self.files.slot(slot).lock().remove(&inode)
    }

    /// Stores the window of the file, or of the core; returns those that were there.
    fn put(
        &self,
        file: &FileRequest<'_>,
        window: PreallocationWindow,
    ) -> [Option<PreallocationWindow>; 2] {
        if !file.is_large {
            return [self.shared.current().lock().replace(window), None];
        }
        let (slot, inode) = (self.files.current_slot(), file.space.inode);
        let here = self.files.slot(slot).lock().insert(inode, window);
        // Told afterwards: a thread that is told of a slot finds the window there.
        let before = file.space.set_window_slot(slot).filter(|before| *before != slot);
        // The file was used on another core, by this thread or at the same time.
        [here, before.and_then(|before| self.remove_from(before, inode))]
    }

    /// Counts clusters that were put into a window. Their group is locked.
    pub(super) fn note_kept(&self, clusters: u32) {
        self.clusters.add(i64::from(clusters));
    }

    /// Counts clusters out that left a window.
    fn note_not_kept(&self, clusters: u32) {
        // Pairs with the fence in `is_any`: a thread that no longer counts them sees the release
        // before.
        fence(Ordering::Release);
        self.clusters.add(-i64::from(clusters));
    }

    /// Whether there is any window. It may miss one that is made while it counts. But then that
    /// window's clusters became free after the caller had begun its search, and the count of
    /// releases tells.
    pub(super) fn is_any(&self) -> bool {
        let is_any = self.clusters.sum() > 0;
        fence(Ordering::Acquire);
        is_any
    }

    /// Blocks from the window that the request may use, if that has the blocks that come next.
    pub(super) fn take(
        &self,
        handle: &mut Handle<'_>,
        request: &BlockRequest<'_>,
        wish: &RunWish<'_>,
    ) -> Result<Option<BlockRun>> {
        let Some(file) = &request.file else { return Ok(None) };
        if request.below_32_bits && !file.is_large {
            // The core's window may lie above that limit.
            return Ok(None);
        }
        let Some(mut window) = self.remove(file) else { return Ok(None) };
        let logical = self.logical_cluster(file);
        let length = window.bits.len() as u64;
        let fits = if file.is_large {
            (window.logical..window.logical + length).contains(&logical)
        } else {
            // The whole request must fit, so that a small file stays in one run.
            length >= u64::from(wish.needed)
        };
        if !fits {
            self.give_back(window);
            return Ok(None);
        }
        if file.is_large && logical > window.logical {
            // Fits: below the length of the window.
            let middle = window.bits.start + (logical - window.logical) as u32;
            let front = PreallocationWindow { bits: window.bits.start..middle, ..window };
            window = PreallocationWindow { bits: middle..window.bits.end, logical, ..window };
            self.give_back(front);
        }
        let length = wish.needed.min(window.bits.len() as u32);
        match self.take_kept(handle, &window, length, wish) {
            Ok(run) => {
                let taken = self.groups.volume.layout().clusters_for(u64::from(run.length)) as u32;
                let start = window.bits.start + taken;
                if start < window.bits.end {
                    let logical = window.logical + u64::from(taken);
                    let rest =
                        PreallocationWindow { bits: start..window.bits.end, logical, ..window };
                    self.keep(file, rest);
                }
                Ok(Some(run))
            }
            Err(error) => {
                self.give_back(window);
                match error {
                    // The group is out of use; other groups may do.
                    Error::Corrupt(_) => Ok(None),
                    error => Err(error),
                }
            }
        }
    }

    /// Marks the first clusters of a window as in use.
    fn take_kept(
        &self,
        handle: &mut Handle<'_>,
        window: &PreallocationWindow,
        length: u32,
        wish: &RunWish<'_>,
    ) -> Result<BlockRun> {
        let group = &self.groups.at(window.group);
        let mut state = group.state.lock();
        let loaded = state.load(&self.groups.volume, window.group)?;
        let granted = wish.claim(&self.groups.free_space, length);
        if granted == 0 {
            return Err(Error::NoSpace);
        }
        let run = window.bits.start..window.bits.start + granted;
        if let Err(error) =
            self.groups.change(window.group, loaded).mark_clusters(handle, run, true)
        {
            wish.unclaim(&self.groups.free_space, granted);
            self.groups.pending.note_release();
            return Err(error);
        }
        self.note_not_kept(granted);
        Ok(self.groups.block_run(window.group, window.bits.start, granted))
    }

    fn keep(&self, file: &FileRequest<'_>, window: PreallocationWindow) {
        for other in self.put(file, window).into_iter().flatten() {
            self.give_back(other);
        }
    }

    fn logical_cluster(&self, file: &FileRequest<'_>) -> u64 {
        file.logical >> self.groups.volume.layout().log_cluster_ratio()
    }

    fn give_back(&self, window: PreallocationWindow) {
        let group = &self.groups.at(window.group);
        let clusters = window.bits.len() as u32;
        let mut state = group.state.lock();
        match &mut *state {
            BlockGroupState::Loaded(loaded) => {
                if let Some(map) = &mut loaded.map {
                    map.release(window.bits);
                    self.groups.note_map(group, map);
                }
            }
            BlockGroupState::Damaged(..) => self.groups.free_space.withdraw(clusters),
            BlockGroupState::Unloaded => unreachable!("a window in a group that was never used"),
        }
        // In this order: a thread that sees no window must also see the release.
        self.groups.pending.note_release();
        self.note_not_kept(clusters);
    }

    /// Gives back all windows. Returns whether there were any.
    pub fn discard(&self) -> bool {
        let mut windows: Vec<PreallocationWindow> = Vec::new();
        for slot in self.files.iter() {
            windows.extend(slot.lock().drain().map(|(_, window)| window));
        }
        windows.extend(self.shared.iter().filter_map(|slot| slot.lock().take()));
        let is_any = !windows.is_empty();
        for window in windows {
            self.give_back(window);
        }
        is_any
    }
}

impl BlockAllocator {
    /// How many clusters to look for when `wanted` are needed now: as many as the file is likely to
    /// need, going by its size.
    pub(super) fn normalised(&self, file: &FileRequest<'_>, wanted: u32) -> u32 {
        if self.groups.free_space.is_low() {
            return wanted;
        }
        let layout = self.groups.volume.layout();
        let most = layout.clusters_per_group() / 2;
        let length = if file.is_large {
            let (least, limit) = FILE_WINDOW_BYTES;
            let bytes = file.size_bytes.next_power_of_two().clamp(least, limit);
            // Fits: at most `limit`.
            (bytes / layout.block_size() as u64) as u32 >> layout.log_cluster_ratio()
        } else {
            SHARED_WINDOW_CLUSTERS
        };
        length.min(most).max(wanted)
    }

    /// Makes a window of the clusters that were taken beyond the need, and notes where a large
    /// file's blocks end.
    pub(super) fn keep(&self, file: &FileRequest<'_>, wish: &RunWish<'_>, taken: &Taken) {
        if let Some(stream) = wish.stream {
            self.enter_group(stream, taken.group);
        }
        if let Some(space) = wish.stream.or(file.is_large.then_some(file.space)) {
            self.goals.set(space, (taken.group.get(), taken.kept.end));
        }
        if !taken.kept.is_empty() {
            let logical = self.windows.logical_cluster(file) + u64::from(taken.clusters);
            let window =
                PreallocationWindow { group: taken.group, bits: taken.kept.clone(), logical };
            self.windows.keep(file, window);
        }
    }

    /// Gives back all windows, also those that another thread is about to give back. Nothing allocates
    /// meanwhile.
    pub fn discard_windows(&self) {
        while self.windows.is_any() {
            if !self.windows.discard() {
                thread::yield_now();
            }
        }
    }

    /// Gives back the window of a file that is no longer used.
    pub fn forget_file(&self, file: &FileSpace) {
        // Most files never have one.
        if !file.has_window() {
            return;
        }
        self.leave_group(file);
        let window =
            file.take_window_slot().and_then(|slot| self.windows.remove_from(slot, file.inode));
        if let Some(window) = window {
            self.windows.give_back(window);
        }
    }
}
