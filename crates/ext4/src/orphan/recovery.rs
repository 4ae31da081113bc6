//! Reading the orphan record at mount.

use super::{LIST, OrphanFile, Orphans, SLOT};
use crate::error::Result;
use crate::inode::{Inode, InodeStore};
use drystone_ext4_format::{Corrupt, InodeNumber};
use drystone_sync::Arc;
use std::collections::HashSet;

impl Orphans {
    /// Finds the inodes on the record, those before and after one that can't be found too. Each inode notes
    /// its place there, and stays in memory.
    ///
    /// # Errors
    /// The first.
    pub fn load(&self, fs: &InodeStore, found: &mut Vec<Arc<Inode>>) -> Result<()> {
        let listed = self.load_list(fs, found);
        let in_file = self.load_file(fs, found);
        listed.and(in_file)
    }

    /// Walks the list on disk, head first.
    fn load_list(&self, fs: &InodeStore, found: &mut Vec<Arc<Inode>>) -> Result<()> {
        let mut seen = HashSet::new();
        let mut newer = None;
        let mut next = fs.volume.with_superblock(|superblock| superblock.last_orphan());
        while let Some(number) = next {
            let loaded = match seen.insert(number) {
                true => load(fs, number),
                false => Err(Corrupt::OrphanTwice { inode: number }.into()),
            };
            let inode = loaded.inspect_err(|_| self.list.note_unread(number, newer))?;
            next = InodeNumber::from_field(inode.fields().disk.deletion_time);
            inode.orphan.set(LIST);
            self.list.note_oldest(&inode, newer);
            newer = Some(number);
            found.push(inode);
        }
        Ok(())
    }

    fn load_file(&self, fs: &InodeStore, found: &mut Vec<Arc<Inode>>) -> Result<()> {
        let mut outcome = Ok(());
        for (slot, number) in self.file().map(OrphanFile::orphans).unwrap_or_default() {
            let inode = load(fs, number).and_then(|inode| match inode.orphan.get() {
                super::NONE => Ok(inode),
                _ => Err(Corrupt::OrphanTwice { inode: number }.into()),
            });
            match inode {
                Ok(inode) => {
                    inode.orphan.set(SLOT + slot);
                    found.push(inode);
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
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
