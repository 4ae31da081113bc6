//! All parts of a mounted volume, and the steps that operations are made of.

use crate::dat::{DatFile, Translated};
use crate::error::{Error, Result};
use crate::gate::{Gate, GatePass};
use crate::ifile::Ifile;
use crate::inode::{Fields, Inode, InodeTable, Record};
use crate::lock_classes::{DIRTY_INODES, LOG, NAMELESS, RENAME};
use crate::log::LogState;
use crate::log_requests::LogRequests;
use crate::space::{Space, SpaceClaim};
use crate::volume::{BlockBytes, Volume};
use drystone_nilfs2_format::map::node_entries_max;
use drystone_nilfs2_format::{FileBlock, InodeNumber, VirtualBlock};
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use drystone_sync::{Arc, Mutex, MutexGuard, PerCore, PerCoreCounter, RwLock, thread};
use drystone_vfs::{Errno, Timestamp};
use std::collections::VecDeque;

/// Dirty blocks above which a log is written, in bytes.
const DIRTY_BYTES_MAX: u64 = 128 << 20;

/// Blocks that a change which adds nothing makes dirty: of directories, nodes above them, and records.
const REMOVAL_BLOCKS: u64 = 6;

/// Nodes of a map that are read before a cut at most.
const WARMED_NODES_MAX: u64 = 4096;

/// A mounted volume.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) volume: Volume,
    pub(crate) dat: RwLock<DatFile>,
    pub(crate) ifile: Ifile,
    pub(crate) inodes: InodeTable,
    pub(crate) gate: Gate,
    pub(crate) log: Mutex<LogState>,
    pub(crate) requests: LogRequests,
    /// Nothing may be changed: a snapshot, or a mount that was asked for so.
    pub(crate) is_read_only: bool,
    pub(crate) rename: Mutex<()>,
    pub(crate) dirty_inodes: PerCore<Mutex<Vec<Arc<Inode>>>>,
    pub(crate) space: Space,
    /// Inodes without names or users that wait for room to be deleted.
    pub(crate) nameless: Mutex<VecDeque<Arc<Inode>>>,
    /// Inodes in use: the root and those that aren't reserved.
    pub(crate) inodes_used: PerCoreCounter,
    /// Both halves of the volume's identity.
    pub(crate) identity: (u64, u64),
    /// Each core's next generation. Those of a core differ by the number of cores.
    generations: PerCore<AtomicU64>,
    /// Recovery couldn't read where inodes without names may be.
    pub(crate) has_unread_inodes: AtomicBool,
}

/// A change is under way while a thread holds this, and has claimed space.
#[derive(Debug)]
pub(crate) struct ChangeGuard<'a> {
    requests: &'a LogRequests,
    _pass: GatePass<'a>,
    _claim: SpaceClaim<'a>,
}

impl Drop for ChangeGuard<'_> {
    /// Half of a change isn't logged.
    fn drop(&mut self) {
        if thread::panicking() {
            self.requests.fail(Error::LogStopped("a change has panicked".to_owned()));
        }
    }
}

/// What a mount has read before the engine is put together.
#[derive(Debug)]
pub(crate) struct EngineParts {
    pub(crate) volume: Volume,
    pub(crate) dat: RwLock<DatFile>,
    pub(crate) ifile: Ifile,
    pub(crate) log: LogState,
    pub(crate) is_read_only: bool,
    pub(crate) identity: (u64, u64),
    pub(crate) inodes_used: u64,
}

impl Engine {
    pub(crate) fn new(parts: EngineParts) -> Self {
        let dat_blocks = parts.dat.read().file.blocks_mapped();
        let ifile_blocks = parts.ifile.file.read().blocks_mapped();
        let space = Space::new(parts.volume.geometry, &parts.log, dat_blocks, ifile_blocks);
        let first_generation = parts.volume.wall_s();
        let generation = |core| AtomicU64::new(first_generation + core as u64);
        // Which core a thread runs on can't be repeated.
        let generations = match parts.volume.is_reproducible() {
            true => PerCore::with_slots(1, generation),
            false => PerCore::new(generation),
        };
        Self {
            generations,
            has_unread_inodes: AtomicBool::new(false),
            volume: parts.volume,
            dat: parts.dat,
            ifile: parts.ifile,
            inodes: InodeTable::new(),
            gate: Gate::new(),
            log: Mutex::new(&LOG, parts.log),
            requests: LogRequests::new(),
            is_read_only: parts.is_read_only,
            rename: Mutex::new(&RENAME, ()),
            dirty_inodes: PerCore::new(|_| Mutex::new(&DIRTY_INODES, Vec::new())),
            space,
            nameless: Mutex::new(&NAMELESS, VecDeque::new()),
            identity: parts.identity,
            inodes_used: PerCoreCounter::new(parts.inodes_used.cast_signed()),
        }
    }

    /// How blocks of files are read.
    pub(crate) fn source(&self) -> Translated<'_> {
        Translated { volume: &self.volume, dat: &self.dat }
    }

    /// The state of the log of a volume that isn't frozen; waits until it is thawed.
    pub(crate) fn lock_thawed_log(&self) -> MutexGuard<'_, LogState> {
        loop {
            let log = self.log.lock();
            if !self.gate.is_frozen() {
                return log;
            }
            drop(log);
            self.gate.wait_until_thawed();
        }
    }

    /// Tells changes how many segments the log has left.
    pub(crate) fn note_clean_segments(&self, log: &LogState) {
        let dat_blocks = self.dat.read().file.blocks_mapped();
        let ifile_blocks = self.ifile.file.read().blocks_mapped();
        self.space.note_log(log, dat_blocks, ifile_blocks);
    }

    /// The time that changes are stamped with.
    pub(crate) fn now(&self) -> Timestamp {
        self.volume.now()
    }

    /// What tells a new inode from others that had its number.
    pub(crate) fn next_generation(&self) -> u64 {
        let step = self.generations.slot_count() as u64;
        self.generations.current().fetch_add(step, Ordering::Relaxed)
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only { Err(Errno::EROFS.into()) } else { Ok(()) }
    }

    /// Begins a change that adds nothing.
    pub(crate) fn enter(&self) -> Result<ChangeGuard<'_>> {
        self.enter_with(REMOVAL_BLOCKS, || !self.space.is_exhausted())
    }

    /// Begins a change that adds up to so many blocks of content.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room for it, and the cleaner doesn't make some.
    pub(crate) fn enter_adding(&self, blocks: u64) -> Result<ChangeGuard<'_>> {
        self.enter_with(blocks, || self.space.has_room(0))
    }

    fn enter_with(&self, blocks: u64, has_room: impl Fn() -> bool) -> Result<ChangeGuard<'_>> {
        self.check_writable()?;
        self.requests.check_running()?;
        self.throttle();
        let mut claim = self.space.claim(blocks);
        while !has_room() {
            // Claims of those who wait take nothing from the cleaner.
            drop(claim);
            let was_frozen = self.gate.is_frozen();
            self.requests.make_space(blocks)?;
            claim = self.space.claim(blocks);
            if has_room() {
                break;
            }
            if !was_frozen && !self.gate.is_frozen() {
                return Err(Errno::ENOSPC.into());
            }
            // The cleaner may have done nothing.
            drop(claim);
            self.gate.wait_until_thawed();
            claim = self.space.claim(blocks);
        }
        let requests = &self.requests;
        Ok(ChangeGuard { requests, _pass: self.gate.enter(), _claim: claim })
    }

    /// Has a log written if much is dirty, and waits for it if far too much is.
    fn throttle(&self) {
        if self.volume.is_reproducible() {
            return;
        }
        let blocks_max = DIRTY_BYTES_MAX / self.volume.block_bytes() as u64;
        // Near the end of the space it has to be known how much there is.
        if !self.space.has_plenty(blocks_max) {
            self.requests.wake();
            if self.space.dirty_blocks() > 2 * blocks_max {
                // A failure shows in the next change.
                let _ = self.requests.checkpoint();
            }
        }
    }

    /// An inode that a name or a caller refers to, loaded if need be.
    pub(crate) fn inode(&self, number: InodeNumber, references: u64) -> Result<Arc<Inode>> {
        self.inode_if(number, references, |_| Ok(()))
    }

    /// As [`inode`](Self::inode), unless `check` fails for the record that has to be loaded.
    pub(crate) fn inode_if(
        &self,
        number: InodeNumber,
        references: u64,
        check: impl FnOnce(&Record) -> Result<()>,
    ) -> Result<Arc<Inode>> {
        self.inodes.get(number, references, || {
            let record = self.ifile.record(number, self.source())?;
            check(&record)?;
            Inode::new(number, record, true, self.volume.block_bytes())
        })
    }

    /// An inode that a caller holds a reference to.
    pub(crate) fn held(&self, number: drystone_vfs::InodeNumber) -> Result<Arc<Inode>> {
        let number = InodeNumber(number.0);
        if number == InodeNumber::ROOT {
            return self.inode(number, 0);
        }
        let held = self.inodes.held(number);
        // The lock is taken only for an inode without references.
        let held = held.filter(|inode| inode.references() > 0 || !inode.fields.lock().is_deleted);
        held.ok_or(Error::Errno(Errno::ESTALE))
    }

    /// Changes the fields of an inode, which the next log will have.
    pub(crate) fn change<T>(&self, inode: &Arc<Inode>, change: impl FnOnce(&mut Fields) -> T) -> T {
        let mut fields = inode.fields.lock();
        let result = change(&mut fields);
        if !std::mem::replace(&mut fields.is_dirty, true) {
            self.dirty_inodes.current().lock().push(Arc::clone(inode));
            self.space.add_dirty(1);
        }
        result
    }

    /// Changes a block of an inode's content, which is locked exclusively.
    pub(crate) fn edit_block(
        &self,
        inode: &Arc<Inode>,
        key: FileBlock,
        edit: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let grows = {
            let mut pages = inode.pages.lock();
            if !pages.blocks.contains_key(&key) {
                drop(pages);
                let loaded = inode.block(key, self.source())?;
                pages = inode.pages.lock();
                if let Some(bytes) = loaded {
                    // The log writer may have dropped it meanwhile.
                    pages.keep(key, || bytes);
                }
            }
            let (bytes, grows) = pages.edit(key, self.volume.block_bytes());
            edit(bytes);
            grows
        };
        self.note_dirty_blocks(inode, grows);
        Ok(())
    }

    /// Replaces a whole block of an inode's content, which is locked exclusively.
    pub(crate) fn replace_block(
        &self,
        inode: &Arc<Inode>,
        key: FileBlock,
        bytes: BlockBytes,
    ) -> Result<()> {
        // What the log writer can't end fails the change, and not the log.
        self.replace_after(inode, key, bytes, |old| self.source().check_entry(old))
    }

    /// The same for what was synced before a crash. The change was admitted then, and the log writer leaves an entry
    /// alone that it can't end.
    pub(crate) fn replace_salvaged(
        &self,
        inode: &Arc<Inode>,
        key: FileBlock,
        bytes: BlockBytes,
    ) -> Result<()> {
        self.replace_after(inode, key, bytes, |old| self.source().warm_entry(old))
    }

    /// Replaces a block after a check of what it led to, while that can't change.
    fn replace_after(
        &self,
        inode: &Arc<Inode>,
        key: FileBlock,
        bytes: BlockBytes,
        check: impl FnOnce(VirtualBlock) -> Result<()>,
    ) -> Result<()> {
        let source = self.source();
        let is_cut = {
            let pages = inode.pages.lock();
            pages.is_cut(key) && !pages.blocks.contains_key(&key)
        };
        let old = if is_cut {
            0
        } else {
            let map = inode.map.read();
            let old = map.get(key, &source)?;
            if old != 0 && !self.is_read_only {
                check(VirtualBlock(old))?;
            }
            old
        };
        let is_new = old == 0;
        let grows = inode.pages.lock().replace(key, bytes, is_new);
        self.note_dirty_blocks(inode, grows);
        Ok(())
    }

    /// Reads what the log writer needs to cut an inode's content off from a block on, so that damage fails the
    /// change, and not the log. If a cut ends more blocks than 4096 nodes of the map lead to, nothing is read: the
    /// log writer waits for the change, and with it all others. Damage there stops the log.
    pub(crate) fn warm_cut(&self, inode: &Inode, from: FileBlock) -> Result<()> {
        if inode.pages.lock().is_cut(from) {
            return Ok(());
        }
        let block_bytes = self.volume.block_bytes();
        let ended_max = {
            let record = &inode.fields.lock().record;
            let after = self.volume.blocks_for(record.size_bytes).saturating_sub(from.0);
            after.min(record.sectors / (block_bytes as u64 / 512))
        };
        if ended_max / node_entries_max(block_bytes) as u64 > WARMED_NODES_MAX {
            return Ok(());
        }
        let source = self.source();
        let mut check = |pointer| source.check_entry(VirtualBlock(pointer));
        inode.map.read().warm_from(from, &source, &mut check)
    }

    /// Reads what the log writer needs to delete an inode when its last name is gone.
    pub(crate) fn warm_deletion(&self, inode: &Inode) -> Result<()> {
        self.ifile.warm(inode.number, self.source())?;
        let is_last = inode.is_directory() || inode.fields.lock().record.links_count <= 1;
        if is_last { self.warm_cut(inode, FileBlock(0)) } else { Ok(()) }
    }

    /// Inodes in memory that have lost their last name, and whose deletion no log has.
    pub(crate) fn nameless_left(&self) -> usize {
        let mut left = 0;
        // One that is deleted stays in the table until a log has the deletion.
        self.inodes.for_each(|inode| {
            left += usize::from(inode.fields.lock().record.links_count == 0);
        });
        left
    }

    /// Cuts off an inode's content from a block on.
    pub(crate) fn cut_off(&self, inode: &Inode, from: FileBlock) {
        let shrinks = inode.pages.lock().cut_off(from);
        self.space.add_dirty(-(shrinks as i64));
    }

    /// Forgets the blocks in memory from one on, as if they had never been written. No log has begun since they were.
    pub(crate) fn discard(&self, inode: &Inode, from: FileBlock) {
        let shrinks = inode.pages.lock().discard(from);
        self.space.add_dirty(-(shrinks as i64));
    }

    fn note_dirty_blocks(&self, inode: &Arc<Inode>, grows: usize) {
        if grows > 0 {
            self.space.add_dirty(grows as i64);
            self.change(inode, |_| ());
        }
    }

    /// Deletes an inode that has neither names nor references. A change is under way, and
    /// [`warm_deletion`](Self::warm_deletion) was called in it or before: the log writer frees the number while no
    /// change is under way, and nothing may be left to read.
    ///
    /// It stays in the table until a log has the deletion: its record in the ifile is out of date until then, and
    /// must not be loaded.
    pub(crate) fn delete_if_unused(&self, inode: &Arc<Inode>) -> Result<()> {
        if inode.fields.lock().record.links_count > 0 {
            return Ok(());
        }
        {
            let mut fields = inode.fields.lock();
            if fields.is_deleted || !self.inodes.is_unused(inode) {
                return Ok(());
            }
            fields.is_deleted = true;
        }
        self.cut_off(inode, FileBlock(0));
        self.inodes_used.add(-1);
        self.change(inode, |fields| fields.needs_checkpoint = true);
        Ok(())
    }

    /// Deletes an inode that nobody refers to any more and that has no names, or notes it for later if a log
    /// that deletes it may have no room. A change is under way.
    pub(crate) fn delete_nameless(&self, inode: &Arc<Inode>) -> Result<()> {
        if !inode.is_nameless() {
            return Ok(());
        }
        let _claim = self.space.claim(REMOVAL_BLOCKS);
        if self.space.is_exhausted() {
            let is_waiting = std::mem::replace(&mut inode.fields.lock().waits_for_room, true);
            if !is_waiting {
                self.nameless.lock().push_back(Arc::clone(inode));
            }
            return Ok(());
        }
        self.warm_deletion(inode)?;
        self.delete_if_unused(inode)
    }

    /// Deletes inodes that waited for room, as many as have some now. Says whether there were any.
    pub(crate) fn delete_waiting(&self) -> bool {
        let mut has_deleted = false;
        loop {
            let _pass = self.gate.pass();
            let _claim = self.space.claim(REMOVAL_BLOCKS);
            if self.space.is_exhausted() {
                return has_deleted;
            }
            let Some(inode) = self.nameless.lock().pop_front() else { return has_deleted };
            inode.fields.lock().waits_for_room = false;
            let warmed = self.warm_deletion(&inode);
            if let Err(error) = warmed.and_then(|()| self.delete_if_unused(&inode)) {
                tracing::error!(
                    "inode {} has no names and can't be freed: {error}",
                    inode.number.0
                );
            }
            has_deleted = true;
        }
    }
}
