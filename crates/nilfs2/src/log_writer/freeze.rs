//! Takes all dirty inodes and blocks, while no change is under way.

use super::LogWriter;
use crate::error::Result;
use crate::ifile::FrozenGroup;
use crate::inode::{FrozenPages, Inode, InodeTable, Record};
use drystone_nilfs2_format::FileBlock;
use drystone_sync::Arc;

/// An inode as it is to be logged.
#[derive(Debug)]
pub(crate) struct FrozenInode {
    pub(crate) inode: Arc<Inode>,
    pub(crate) record: Record,
    pub(crate) pages: FrozenPages,
    pub(crate) is_deleted: bool,
}

/// Everything that was dirty at one moment.
#[derive(Debug, Default)]
pub(crate) struct FrozenSet {
    /// In the order of numbers.
    pub(crate) inodes: Vec<FrozenInode>,
    pub(crate) groups: Vec<FrozenGroup>,
    /// Inodes in use.
    pub(crate) inodes_used: u64,
    /// Dirty blocks, as the engine counts them.
    pub(crate) dirty_blocks: i64,
}

impl FrozenSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.inodes.is_empty() && self.groups.is_empty()
    }

    /// All of it is in a durable log.
    pub(crate) fn settle(&self, table: &InodeTable) {
        for frozen in &self.inodes {
            frozen.settle();
            if frozen.is_deleted {
                table.remove(&frozen.inode);
            }
        }
    }
}

impl FrozenInode {
    fn of(inode: Arc<Inode>) -> Self {
        let mut fields = inode.fields.lock();
        fields.is_dirty = false;
        fields.needs_checkpoint = false;
        fields.in_flight = true;
        fields.is_logged = true;
        let (record, is_deleted) = (fields.record.clone(), fields.is_deleted);
        let pages = inode.pages.lock().freeze();
        drop(fields);
        Self { inode, record, pages, is_deleted }
    }

    fn settle(&self) {
        let keys: Vec<FileBlock> = self.pages.blocks.iter().map(|(key, _)| *key).collect();
        self.inode.pages.lock().settle(&keys);
        self.inode.fields.lock().in_flight = false;
    }
}

impl LogWriter<'_> {
    /// Takes everything that is dirty.
    pub(super) fn freeze_dirty(&self) -> Result<FrozenSet> {
        let closed = self.gate.close();
        // A change that has failed halfway isn't logged.
        self.requests.check_running()?;
        let mut dirty = Vec::new();
        for list in self.dirty_inodes.iter() {
            dirty.append(&mut list.lock());
        }
        let records = dirty.len();
        let mut inodes = Vec::with_capacity(records);
        for inode in dirty {
            let (is_deleted, is_logged) = {
                let fields = inode.fields.lock();
                (fields.is_deleted, fields.is_logged)
            };
            if is_deleted {
                self.ifile.free(inode.number, self.source())?;
            }
            match is_deleted && !is_logged {
                // No log has to delete what none knows.
                true => self.inodes.remove(&inode),
                false => inodes.push(inode),
            }
        }
        let mut inodes: Vec<FrozenInode> = inodes.into_iter().map(FrozenInode::of).collect();
        let groups = self.ifile.freeze_groups();
        let dirty_blocks = inodes.iter().map(|frozen| frozen.pages.counted).sum::<usize>();
        let dirty_blocks = (dirty_blocks + records) as i64;
        let inodes_used = self.inodes_used.sum().max(0).cast_unsigned();
        drop(closed);
        inodes.sort_by_key(|frozen| frozen.inode.number);
        Ok(FrozenSet { inodes, groups, inodes_used, dirty_blocks })
    }

    /// Takes the dirty blocks of one inode, unless it has other changes that only a checkpoint can log.
    pub(super) fn freeze_data(&self, inode: &Arc<Inode>) -> Option<FrozenPages> {
        // The freezer may wait for this log: nothing is changed here.
        let _inside = self.gate.pass();
        let _content = inode.content.read();
        let mut fields = inode.fields.lock();
        if fields.needs_checkpoint {
            return None;
        }
        fields.in_flight = true;
        let pages = inode.pages.lock().freeze();
        Some(pages)
    }
}
