//! One usage file: a tree of records in the blocks of a hidden inode.

use super::limits::{QuotaAccount, QuotaLimits, SpaceClaim};
use super::{Owners, QuotaDemand, UsageChange};
use crate::error::{Error, Result};
use crate::inode::{Inode, InodeStore};
use crate::lock_classes;
use drystone_cache::Seal;
use drystone_ext4_format::quota::{
    BLOCK_LENGTH, QuotaBlock, QuotaBlocks, QuotaEntry, QuotaFile, QuotaInfo, QuotaKind,
};
use drystone_ext4_format::{Corrupt, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::{Arc, Mutex};
use drystone_vfs::Errno;
use std::collections::HashMap;

/// The most blocks of the quota format that a new record takes: three levels of the tree below its
/// root, and the record's own.
const RECORD_BLOCKS_MAX: u32 = 4;

/// The usage file of one kind of owner.
#[derive(Debug)]
pub(crate) struct UsageFile {
    kind: QuotaKind,
    inode: Arc<Inode>,
    state: Mutex<UsageState>,
}

/// Where the file's content is.
#[derive(Debug)]
pub(crate) struct UsageContent {
    /// The file's blocks in order.
    pub blocks: Vec<PhysicalBlock>,
    /// The file's size, which may end within its last block.
    pub size_bytes: u64,
}

impl UsageContent {
    /// Blocks of the quota format.
    fn length(&self) -> u32 {
        u32::try_from(self.size_bytes / BLOCK_LENGTH as u64).unwrap_or(u32::MAX)
    }
}

#[derive(Debug)]
struct UsageState {
    content: UsageContent,
    /// By owner. No claim is empty.
    claims: HashMap<u32, SpaceClaim>,
    /// Whether any record has limits, or had.
    has_limits: bool,
}

impl UsageFile {
    /// The file of an inode with this content. Checks the whole file.
    pub fn new(
        fs: &InodeStore,
        kind: QuotaKind,
        inode: Arc<Inode>,
        content: UsageContent,
    ) -> Result<UsageFile> {
        let state = UsageState { content, claims: HashMap::new(), has_limits: false };
        let file = UsageFile { kind, inode, state: Mutex::new(&lock_classes::QUOTA, state) };
        let (_, entries) = file.report(fs)?;
        let none = QuotaLimits::default();
        file.state.lock().has_limits = entries.iter().any(|entry| QuotaLimits::of(entry) != none);
        Ok(file)
    }

    /// The kind of owner whose usage the file counts.
    pub fn kind(&self) -> QuotaKind {
        self.kind
    }

    /// The hidden inode.
    pub fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// The owner of this file's kind.
    pub fn owner(&self, owners: Owners) -> u32 {
        match self.kind {
            QuotaKind::User => owners[0],
            QuotaKind::Group => owners[1],
            QuotaKind::Project => owners[2],
        }
    }

    fn tree<'a, 'handle>(
        &self,
        fs: &'a InodeStore,
        content: &'a UsageContent,
        handle: Option<&'a mut Handle<'handle>>,
    ) -> Result<QuotaFile<QuotaFileBlocks<'a, 'handle>>> {
        QuotaFile::open(self.kind, QuotaFileBlocks { fs, content, handle })
    }

    /// The content of the header, and all records.
    pub fn report(&self, fs: &InodeStore) -> Result<(QuotaInfo, Vec<QuotaEntry>)> {
        let state = self.state.lock();
        let mut tree = self.tree(fs, &state.content, None)?;
        Ok((*tree.info(), tree.entries()?))
    }

    /// The record of an id.
    pub fn get(&self, fs: &InodeStore, id: u32) -> Result<Option<QuotaEntry>> {
        let state = self.state.lock();
        self.tree(fs, &state.content, None)?.get(id)
    }

    /// The record of an id, with claimed space counted as used.
    pub fn get_with_claim(&self, fs: &InodeStore, id: u32) -> Result<Option<QuotaEntry>> {
        let state = self.state.lock();
        let mut entry = self.tree(fs, &state.content, None)?.get(id)?;
        if let (Some(entry), Some(claim)) = (&mut entry, state.claims.get(&id)) {
            let space = QuotaAccount::space(entry).with_claim(claim);
            entry.space_bytes = space.used;
            entry.space_grace_end_seconds = space.grace_end_seconds;
        }
        Ok(entry)
    }

    /// Fails with `EDQUOT` if an id may not have what it asks for, unless it `is_exempt`.
    pub(super) fn check(
        &self,
        fs: &InodeStore,
        id: u32,
        demand: QuotaDemand,
        is_exempt: bool,
    ) -> Result<()> {
        let mut state = self.state.lock();
        let grace_end_seconds = self.ask(fs, &state, id, demand, is_exempt)?;
        if let Some(claim) = state.claims.get_mut(&id) {
            claim.grace_end_seconds = grace_end_seconds;
        }
        Ok(())
    }

    /// Claims space for an id, whose limits are kept unless it `is_exempt`.
    pub fn claim(&self, fs: &InodeStore, id: u32, bytes: u64, is_exempt: bool) -> Result<()> {
        let mut state = self.state.lock();
        let demand = QuotaDemand { bytes: Some(bytes), inodes: None };
        let grace_end_seconds = self.ask(fs, &state, id, demand, is_exempt)?;
        let claim = state.claims.entry(id).or_default();
        claim.bytes += bytes;
        claim.grace_end_seconds = grace_end_seconds;
        Ok(())
    }

    /// Ends a claim, or a part of it.
    pub fn end_claim(&self, id: u32, bytes: u64) {
        let mut state = self.state.lock();
        if let Some(claim) = state.claims.get_mut(&id) {
            claim.bytes = claim.bytes.saturating_sub(bytes);
            if claim.bytes == 0 {
                state.claims.remove(&id);
            }
        }
    }

    /// Fails with `EDQUOT` if an id may not have what it asks for. Otherwise returns when the grace
    /// period of space ends once the id has it.
    fn ask(
        &self,
        fs: &InodeStore,
        state: &UsageState,
        id: u32,
        demand: QuotaDemand,
        is_exempt: bool,
    ) -> Result<u64> {
        if !state.has_limits {
            return Ok(0);
        }
        let mut tree = self.tree(fs, &state.content, None)?;
        let Some(entry) = tree.get(id)? else { return Ok(0) };
        let now = || now_seconds(fs);
        let claim = state.claims.get(&id).copied().unwrap_or_default();
        let QuotaDemand { bytes, inodes } = demand;
        let space = QuotaAccount::space(&entry).with_claim(&claim).with(bytes.unwrap_or(0));
        let may = (bytes.is_none() || space.is_allowed(now))
            && inodes.is_none_or(|more| QuotaAccount::inodes(&entry).with(more).is_allowed(now));
        if !may && !is_exempt {
            return Err(Error::Errno(Errno::EDQUOT));
        }
        Ok(space.grace_end_seconds(fresh(fs, tree.info()).0))
    }

    /// Changes the usage of an id, and its grace periods with it. Only in an image whose usage is wrong
    /// does the id have no record; then nothing changes.
    pub(super) fn change(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        id: u32,
        change: UsageChange,
    ) -> Result<()> {
        let mut state = self.state.lock();
        let UsageState { content, claims, .. } = &mut *state;
        let mut tree = self.tree(fs, content, Some(handle))?;
        let Some(mut entry) = tree.get(id)? else {
            tracing::warn!(kind = %self.kind, id, "an owner has no usage record");
            return Ok(());
        };
        let claim = claims.get(&id).copied().unwrap_or_default();
        let running = QuotaAccount::space(&entry).with_claim(&claim).grace_end_seconds;
        change.add_to(&mut entry);
        let (space_end, inode_end) = fresh(fs, tree.info());
        entry.space_grace_end_seconds =
            QuotaAccount::space(&entry).with_grace(running).grace_end_seconds(space_end);
        entry.inode_grace_end_seconds = QuotaAccount::inodes(&entry).grace_end_seconds(inode_end);
        tree.set(&entry)?;
        if let Some(claim) = claims.get_mut(&id).filter(|_| running != 0) {
            claim.grace_end_seconds = running;
        }
        Ok(())
    }

    /// Changes the limits of an id, which has a record. If it exceeds one, a grace period begins.
    pub fn set_limits(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        id: u32,
        limits: &QuotaLimits,
    ) -> Result<()> {
        let mut state = self.state.lock();
        state.has_limits = true;
        let UsageState { content, claims, .. } = &mut *state;
        let mut tree = self.tree(fs, content, Some(handle))?;
        let mut entry = tree.get(id)?.unwrap_or(QuotaEntry { id, ..QuotaEntry::default() });
        limits.put(&mut entry);
        entry.space_grace_end_seconds = 0;
        entry.inode_grace_end_seconds = 0;
        let claim = claims.get_mut(&id);
        let claimed = claim.as_deref().copied().unwrap_or_default().bytes;
        let (space_end, inode_end) = fresh(fs, tree.info());
        let space = QuotaAccount::space(&entry);
        entry.space_grace_end_seconds = space.grace_end_seconds(space_end);
        entry.inode_grace_end_seconds = QuotaAccount::inodes(&entry).grace_end_seconds(inode_end);
        if let Some(claim) = claim {
            claim.grace_end_seconds = space.with(claimed).grace_end_seconds(space_end);
        }
        tree.set(&entry)
    }

    /// Changes the lengths of grace periods.
    pub fn set_grace(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        space_seconds: u32,
        inode_seconds: u32,
    ) -> Result<()> {
        let state = self.state.lock();
        self.tree(fs, &state.content, Some(handle))?.set_grace(space_seconds, inode_seconds)
    }

    /// Lets so many seconds pass for all grace periods.
    #[cfg(test)]
    pub fn pass(&self, fs: &InodeStore, handle: &mut Handle<'_>, seconds: u64) -> Result<()> {
        let state = self.state.lock();
        assert!(state.claims.is_empty(), "nothing waits");
        let mut tree = self.tree(fs, &state.content, Some(handle))?;
        for mut entry in tree.entries()? {
            for end in [&mut entry.space_grace_end_seconds, &mut entry.inode_grace_end_seconds] {
                *end = end.saturating_sub(seconds);
            }
            tree.set(&entry)?;
        }
        Ok(())
    }

    /// Adds the record of an id, unless it has one by now.
    pub fn add(&self, fs: &InodeStore, handle: &mut Handle<'_>, id: u32) -> Result<()> {
        let state = self.state.lock();
        let mut tree = self.tree(fs, &state.content, Some(handle))?;
        match tree.get(id)? {
            Some(_) => Ok(()),
            None => tree.set(&QuotaEntry { id, ..QuotaEntry::default() }),
        }
    }

    /// Whether the file has room for a new record.
    pub fn has_room(&self, fs: &InodeStore) -> Result<bool> {
        let state = self.state.lock();
        let used = self.tree(fs, &state.content, None)?.info().blocks;
        let free = state.content.length().saturating_sub(used);
        Ok(free >= RECORD_BLOCKS_MAX)
    }

    /// Number of blocks.
    pub fn length(&self) -> usize {
        self.state.lock().content.blocks.len()
    }

    /// Notes that the file is longer now, and the block that was mapped after the others for that.
    pub fn extend(&self, block: Option<PhysicalBlock>, size_bytes: u64) {
        let content = &mut self.state.lock().content;
        content.blocks.extend(block);
        content.size_bytes = size_bytes;
    }
}

/// When a grace period that begins now would end: for space, and for inodes. Each reads the clock only
/// when it is called.
fn fresh(fs: &InodeStore, info: &QuotaInfo) -> (impl Fn() -> u64 + Copy, impl Fn() -> u64 + Copy) {
    let (space, inode) = (info.space_grace_seconds, info.inode_grace_seconds);
    (move || now_seconds(fs) + u64::from(space), move || now_seconds(fs) + u64::from(inode))
}

fn now_seconds(fs: &InodeStore) -> u64 {
    u64::try_from(fs.now().seconds).unwrap_or(0)
}

/// The file's content as blocks of the quota format, in journaled buffers.
struct QuotaFileBlocks<'a, 'handle> {
    fs: &'a InodeStore,
    content: &'a UsageContent,
    handle: Option<&'a mut Handle<'handle>>,
}

impl QuotaFileBlocks<'_, '_> {
    /// The block that holds a block of the quota format, and the offset in it.
    fn place(&self, block: u32) -> Result<(PhysicalBlock, usize)> {
        let per_block = self.fs.volume.block_size() / BLOCK_LENGTH;
        let index = block as usize / per_block;
        let missing = Corrupt::Missing { feature: "quota", missing: "block of a quota file" };
        let physical = *self.content.blocks.get(index).ok_or(missing)?;
        Ok((physical, block as usize % per_block * BLOCK_LENGTH))
    }
}

impl QuotaBlocks for QuotaFileBlocks<'_, '_> {
    type Error = Error;

    fn length(&self) -> u32 {
        self.content.length()
    }

    fn read(&mut self, block: u32) -> Result<QuotaBlock> {
        let (physical, offset) = self.place(block)?;
        let buffer = self.fs.volume.read(physical)?;
        let mut content = [0; BLOCK_LENGTH];
        content.copy_from_slice(&buffer.read()[offset..offset + BLOCK_LENGTH]);
        Ok(content)
    }

    fn write(&mut self, block: u32, content: &QuotaBlock) -> Result<()> {
        let (physical, offset) = self.place(block)?;
        let buffer = self.fs.volume.read(physical)?;
        let handle = self.handle.as_mut().ok_or(Error::ReadOnly("no handle"))?;
        let mut bytes = handle.write(&buffer, None::<&Arc<dyn Seal>>)?;
        bytes[offset..offset + BLOCK_LENGTH].copy_from_slice(content);
        Ok(())
    }
}
