//! The orphan list: it starts in the superblock, and the field of the deletion time in each inode holds
//! the next inode.
//!
//! # State
//! In memory the list is doubly linked by inode number. It keeps its inodes in memory. In a damaged image its
//! oldest number may be that of an inode that can't be read, and isn't in memory.
//!
//! # Locking
//! One mutex, held while the superblock or the neighbour's inode changes.

use crate::error::Result;
use crate::inode::{Inode, InodeStore};
use crate::lock_classes;
use crate::number_map::NumberMap;
use drystone_ext4_format::InodeNumber;
use drystone_jbd2::Handle;
use drystone_sync::{Arc, Mutex};

#[derive(Debug)]
struct OrphanLink {
    inode: Arc<Inode>,
    /// Added after this one; `None` for the head.
    newer: Option<InodeNumber>,
    /// Added before this one: the next on disk.
    older: Option<InodeNumber>,
}

#[derive(Debug, Default)]
struct OrphanChain {
    head: Option<InodeNumber>,
    links: NumberMap<InodeNumber, OrphanLink>,
}

/// The list of a mounted image.
#[derive(Debug)]
pub(super) struct OrphanList {
    chain: Mutex<OrphanChain>,
}

impl OrphanList {
    pub fn new() -> OrphanList {
        OrphanList { chain: Mutex::new(&lock_classes::ORPHAN, OrphanChain::default()) }
    }

    pub fn is_empty(&self) -> bool {
        self.chain.lock().head.is_none()
    }

    /// Puts an inode at the head.
    pub fn add(&self, fs: &InodeStore, handle: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        let mut chain = self.chain.lock();
        let older = chain.head;
        set_next(fs, handle, inode, older)?;
        fs.volume.update_superblock(handle, |superblock| {
            superblock.set_last_orphan(Some(inode.number));
        })?;
        chain.push(inode, older);
        Ok(())
    }

    /// Notes an inode that is in the list on disk, after all noted before.
    pub fn note_oldest(&self, inode: &Arc<Inode>, newer: Option<InodeNumber>) {
        let mut chain = self.chain.lock();
        match newer.and_then(|newer| chain.links.get_mut(&newer)) {
            Some(link) => link.older = Some(inode.number),
            None => chain.head = Some(inode.number),
        }
        chain
            .links
            .insert(inode.number, OrphanLink { inode: Arc::clone(inode), newer, older: None });
    }

    /// Notes that the list on disk goes on with an inode that can't be read. It stays behind all that are added.
    pub fn note_unread(&self, number: InodeNumber, newer: Option<InodeNumber>) {
        let mut chain = self.chain.lock();
        match newer.and_then(|newer| chain.links.get_mut(&newer)) {
            Some(link) => link.older = Some(number),
            None => chain.head = Some(number),
        }
    }

    /// Takes an inode out.
    pub fn remove(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        inode: &Arc<Inode>,
    ) -> Result<()> {
        let mut chain = self.chain.lock();
        let Some(link) = chain.links.get(&inode.number) else {
            unreachable!("inode {} is not in the orphan list", inode.number);
        };
        let (newer, older) = (link.newer, link.older);
        match newer.and_then(|newer| chain.links.get(&newer)) {
            Some(neighbour) => set_next(fs, handle, &neighbour.inode, older)?,
            None => fs.volume.update_superblock(handle, |superblock| {
                superblock.set_last_orphan(older);
            })?,
        }
        set_next(fs, handle, inode, None)?;
        chain.unlink(inode.number, newer, older);
        Ok(())
    }
}

impl OrphanChain {
    fn push(&mut self, inode: &Arc<Inode>, older: Option<InodeNumber>) {
        if let Some(link) = older.and_then(|older| self.links.get_mut(&older)) {
            link.newer = Some(inode.number);
        }
        self.head = Some(inode.number);
        self.links
            .insert(inode.number, OrphanLink { inode: Arc::clone(inode), newer: None, older });
    }

    fn unlink(
        &mut self,
        number: InodeNumber,
        newer: Option<InodeNumber>,
        older: Option<InodeNumber>,
    ) {
        self.links.remove(&number);
        match newer.and_then(|newer| self.links.get_mut(&newer)) {
            Some(link) => link.older = older,
            None => self.head = older,
        }
        if let Some(link) = older.and_then(|older| self.links.get_mut(&older)) {
            link.newer = newer;
        }
    }
}

fn set_next(
    fs: &InodeStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    next: Option<InodeNumber>,
) -> Result<()> {
    inode.update(fs, handle, |fields| {
        fields.disk.deletion_time = next.map_or(0, InodeNumber::get);
        Ok(())
    })
}
