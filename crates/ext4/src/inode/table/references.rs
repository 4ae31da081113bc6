//! The references that callers of the engine hold to inodes.
//!
//! # State
//! The kernel holds references to all files in its dentry cache, perhaps millions. An inode that no
//! thread works with leaves memory all the same. Only its number of references stays, and the inode gets
//! it back when it is loaded again. Directories stay in memory, and so do inodes without names.
//!
//! # Locking
//! The number of references is in the inode, in a cache line that a look-up has read before, and changes
//! with the shard locked: taking a reference or giving it back costs only the lock. A thread that frees
//! an inode claims it with its shard locked, if it sees no references there. A thread that takes the
//! last name notes that before it claims, and a thread that gives back the last reference looks for
//! names with the shard locked. So if two threads do this at once, one of them sees both gone.

use super::{InodeShard, InodeTable};
use crate::inode::Inode;
use drystone_ext4_format::InodeNumber;
use drystone_sync::Arc;
use drystone_sync::atomic::Ordering;
use drystone_vfs::FileType;

/// Where an inode is that callers hold references to.
pub(in crate::inode) enum HeldInode {
    /// In memory.
    Here(Arc<Inode>),
    /// In the image only.
    Parked,
}

impl InodeTable {
    /// The inode of a name if it is in memory, with a reference for the caller of the engine.
    pub fn get_with_reference(&self, number: InodeNumber) -> Option<Arc<Inode>> {
        let shard = self.shard(number).lock();
        // In a damaged image a name may lead to an inode without links, or to an attribute's value.
        let is_named = |inode: &&Arc<Inode>| !inode.holds_value() && !inode.is_nameless();
        let inode = shard.inodes.get(number.get()).filter(is_named)?;
        inode.add_reference();
        Some(Arc::clone(inode))
    }

    /// Gives the caller of the engine a reference to an inode in memory if `found` returns something,
    /// and returns that. `None` if another thread has locked the shard: this never waits, so it may be
    /// called with any lock held. `found` must not wait either.
    #[inline]
    pub fn try_reference<T>(
        &self,
        number: InodeNumber,
        found: impl FnOnce(&Inode) -> Option<T>,
    ) -> Option<T> {
        let shard = self.shard(number).try_lock()?;
        let inode = shard.inodes.get(number.get())?;
        let result = found(inode)?;
        inode.add_reference();
        Some(result)
    }

    /// Gives the caller of the engine one reference.
    pub fn reference(&self, inode: &Inode) {
        let _shard = self.shard(inode.number).lock();
        inode.add_reference();
    }

    /// Gives the caller of the engine one reference, unless the inode has no name: then it may be freed
    /// at any time. For use without a lock that keeps its names.
    pub fn reference_named(&self, inode: &Inode) -> bool {
        let _shard = self.shard(inode.number).lock();
        let is_named = !inode.is_nameless() && !inode.is_claimed.load(Ordering::Relaxed);
        if is_named {
            inode.add_reference();
        }
        is_named
    }

    /// Claims an inode for the thread that frees it. False if callers hold references, or a thread has
    /// claimed it already.
    pub fn claim(&self, inode: &Inode) -> bool {
        let _shard = self.shard(inode.number).lock();
        let is_free = inode.references() == 0 && !inode.is_claimed.load(Ordering::Relaxed);
        if is_free {
            inode.is_claimed.store(true, Ordering::Relaxed);
        }
        is_free
    }

    /// Ends a claim: the inode could not be freed.
    pub fn end_claim(&self, inode: &Inode) {
        let _shard = self.shard(inode.number).lock();
        inode.is_claimed.store(false, Ordering::Relaxed);
    }

    /// Takes `count` references of a caller back. Returns the inode if that leaves something to do.
    #[inline]
    pub fn release(&self, number: InodeNumber, count: u64) -> Option<Arc<Inode>> {
        let mut shard = self.shard(number).lock();
        let is_crowded = shard.inodes.len() > self.shard_length_max;
        let Some(inode) = shard.inodes.get(number.get()) else {
            shard.release_parked(number, count);
            return None;
        };
        let left = less(number, inode.references(), count);
        inode.set_references(left);
        let has_more_to_do = left == 0 && (is_crowded || inode.needs_its_users());
        has_more_to_do.then(|| Arc::clone(inode))
    }

    /// Where an inode is: in memory, or parked with the references to it; `None` if neither.
    pub(in crate::inode) fn held(&self, number: InodeNumber) -> Option<HeldInode> {
        let shard = self.shard(number).lock();
        match shard.inodes.get(number.get()) {
            Some(inode) => Some(HeldInode::Here(Arc::clone(inode))),
            None => shard.parked.contains_key(&number.get()).then_some(HeldInode::Parked),
        }
    }
}

impl InodeShard {
    /// Takes back references to an inode that isn't in memory. It has names then, so nothing is left to
    /// do after the last one. A number that no caller ever got has none.
    #[cold]
    fn release_parked(&mut self, number: InodeNumber, count: u64) {
        let Some(references) = self.parked.get_mut(&number.get()) else { return };
        // No more than before, so they fit.
        *references = less(number, u64::from(*references), count) as u32;
        if *references == 0 {
            self.parked.remove(&number.get());
        }
        if self.parked.len() < self.parked.capacity() / 8 {
            self.parked.shrink_to_fit();
        }
    }
}

/// What is left of the references to an inode.
#[inline]
fn less(number: InodeNumber, references: u64, count: u64) -> u64 {
    let left = references.checked_sub(count);
    left.unwrap_or_else(|| panic!("inode {number}: more references given back than were held"))
}

impl Inode {
    /// The references that callers hold. They change only with the inode's shard locked.
    #[inline]
    pub(super) fn references(&self) -> u64 {
        self.references.load(Ordering::Relaxed)
    }

    #[inline]
    fn add_reference(&self) {
        self.set_references(self.references() + 1);
    }

    #[inline]
    pub(super) fn set_references(&self, count: u64) {
        self.references.store(count, Ordering::Relaxed);
    }

    /// How many references to remember if the inode leaves memory; `None` if it has to stay.
    pub(super) fn references_to_keep(&mut self) -> Option<u32> {
        let may_leave = !self.has_orphan_work() && (self.references() == 0 || self.may_be_parked());
        may_leave.then(|| u32::try_from(self.references()).ok()).flatten()
    }

    /// Whether the inode may leave memory while callers hold references to it.
    fn may_be_parked(&mut self) -> bool {
        self.file_type != FileType::Directory
            && self.fields.get_mut().disk.links_count > 0
            && !self.delayed.is_any()
            && !self.space.has_window()
            && !self.is_tail_pending()
    }

    /// Whether it is known only in memory where the inode is recorded as an orphan, or that a truncation
    /// has failed. The next try, or the end of the mount, needs that.
    pub(super) fn has_orphan_work(&self) -> bool {
        self.orphan.is_recorded() || self.is_cut_pending()
    }

    /// Whether something is to be done when the last reference is given back.
    fn needs_its_users(&self) -> bool {
        self.is_nameless() || self.is_written()
    }
}
