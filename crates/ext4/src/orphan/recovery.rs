//! Cleaning up at mount: what a crash left half done.
//!
//! # Crash
//! Each orphan is finished in handles of its own, and leaves the record in the last of them; a crash
//! here is finished by the next mount.

use super::{LIST, Orphans, SLOT};
use crate::engine::Engine;
use crate::error::Result;
use crate::inode::Inode;
use drystone_ext4_format::{Corrupt, InodeNumber};
use drystone_sync::Arc;
use drystone_sync::atomic::Ordering;
use std::collections::HashSet;

impl Engine {
    /// Finishes all orphans: frees those without names, cuts the others to their recorded size.
    /// Returns how many there were.
    pub(crate) fn clean_orphans(&self) -> Result<u64> {
        let orphans = self.load_orphans()?;
        let count = orphans.len() as u64;
        for orphan in orphans {
            if orphan.fields().disk.links_count == 0 {
                self.delete_if_unused(&orphan)?;
            } else {
                crate::file::finish_cut(self, &orphan)?;
            }
        }
        Ok(count)
    }

    /// Finds out who is on the record. That is forgotten when the inodes leave memory.
    pub(crate) fn load_orphans(&self) -> Result<Vec<Arc<Inode>>> {
        let mut orphans = self.orphans.load_list(self)?;
        orphans.extend(self.orphans.load_file(self)?);
        Ok(orphans)
    }
}

impl Orphans {
    /// Walks the list on disk, head first.
    fn load_list(&self, fs: &Engine) -> Result<Vec<Arc<Inode>>> {
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
            inode.orphan.0.store(LIST, Ordering::Relaxed);
            self.list.note_oldest(&inode, newer);
            newer = Some(number);
            orphans.push(inode);
        }
        Ok(orphans)
    }

    fn load_file(&self, fs: &Engine) -> Result<Vec<Arc<Inode>>> {
        let Some(file) = self.file() else { return Ok(Vec::new()) };
        let mut orphans = Vec::new();
        for (slot, number) in file.orphans() {
            let inode = load(fs, number)?;
            if inode.orphan.0.load(Ordering::Relaxed) != super::NONE {
                return Err(Corrupt::OrphanTwice { inode: number }.into());
            }
            inode.orphan.0.store(SLOT + slot, Ordering::Relaxed);
            orphans.push(inode);
        }
        Ok(orphans)
    }
}

/// An orphan by number, if it can be one: neither free nor reserved.
fn load(fs: &Engine, number: InodeNumber) -> Result<Arc<Inode>> {
    let ordinary = number >= fs.volume.layout.first_inode();
    if !ordinary || !fs.allocator.inode_is_allocated(number)? {
        return Err(Corrupt::OrphanInode { inode: number }.into());
    }
    fs.orphan_inode(number)
}
