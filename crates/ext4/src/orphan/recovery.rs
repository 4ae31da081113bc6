//! Reading the orphan record at mount.

use super::{LIST, Orphans, SLOT};
use crate::error::Result;
use crate::inode::{Inode, InodeStore};
use drystone_ext4_format::{Corrupt, InodeNumber};
use drystone_sync::Arc;
use std::collections::HashSet;

impl Orphans {
    /// Finds the inodes on the record. Each inode notes its place there, until it leaves memory.
    pub fn load(&self, fs: &InodeStore) -> Result<Vec<Arc<Inode>>> {
        let mut orphans = self.load_list(fs)?;
        orphans.extend(self.load_file(fs)?);
        Ok(orphans)
    }

    /// Walks the list on disk, head first.
    fn load_list(&self, fs: &InodeStore) -> Result<Vec<Arc<Inode>>> {
        let mut orphans = Vec::new();
        let mut seen = HashSet::new();
        let mut newer = None;
        let mut next = fs.volume.with_superblock(|superblock| superblock.last_orphan());
        while let Some(number) = next {
            if !seen.insert(number) {
                return Err(Corrupt::OrphanTwice { inode: number }.into());
            }
            let inode = load(fs, number)?;
            next = InodeNumber::from_field(inode.fields().disk.deletion_time);
            inode.orphan.set(LIST);
            self.list.note_oldest(&inode, newer);
            newer = Some(number);
            orphans.push(inode);
        }
        Ok(orphans)
    }

    fn load_file(&self, fs: &InodeStore) -> Result<Vec<Arc<Inode>>> {
        let Some(file) = self.file() else { return Ok(Vec::new()) };
        let mut orphans = Vec::new();
        for (slot, number) in file.orphans() {
            let inode = load(fs, number)?;
            if inode.orphan.get() != super::NONE {
                return Err(Corrupt::OrphanTwice { inode: number }.into());
            }
            inode.orphan.set(SLOT + slot);
            orphans.push(inode);
        }
        Ok(orphans)
    }
}

/// An orphan by number, if it can be one: neither free nor the file system's own.
fn load(fs: &InodeStore, number: InodeNumber) -> Result<Arc<Inode>> {
    let ordinary = number != InodeNumber::ROOT && fs.volume.check_recoverable(number).is_ok();
    if !ordinary || !fs.allocator.inodes.is_allocated(number)? {
        return Err(Corrupt::OrphanInode { inode: number }.into());
    }
    fs.orphan_inode(number)
}
