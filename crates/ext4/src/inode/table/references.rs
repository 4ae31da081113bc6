//! The references that callers of the engine hold to inodes.
//!
//! # State
//! The kernel of a mount holds references to all files that it has names of, millions perhaps. Those
//! that nobody works with leave memory as well; only how many references there are stays, and comes back
//! with the inode. Directories stay, and so does what has no name.
//!
//! # Locking
//! The number of references lies in the inode, in a line that who looks at it has read before, and changes
//! with the shard locked: taking or giving back one costs nothing but the lock.
//! Who frees an inode claims it with its shard locked, if it sees no references there. Whoever takes
//! the last name says so before that, and whoever gives back the last reference looks for names
//! with the shard locked; so of two who do both at once, one sees both gone.

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
        // A damaged image may give names to an inode that has none, or holds the value of an attribute.
        let is_named = |inode: &&Arc<Inode>| !inode.holds_value() && !inode.is_nameless();
        let inode = shard.inodes.get(number.get()).filter(is_named)?;
        inode.add_reference();
        Some(Arc::clone(inode))
    }

    /// Gives the caller of the engine a reference to an inode that is in memory, if `found` gives something,
    /// which is passed on. Nothing if that would take a wait: so it may be done whatever is locked.
    /// Don't wait in `found`.
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
    /// at any time. For callers who hold no lock that keeps its names.
    pub fn reference_named(&self, inode: &Inode) -> bool {
        let _shard = self.shard(inode.number).lock();
        let is_named = !inode.is_nameless() && !inode.is_claimed.load(Ordering::Relaxed);
        if is_named {
            inode.add_reference();
        }
        is_named
    }

    /// Claims an inode for who frees it: false if callers hold references, or somebody has claimed
    /// it already.
    pub fn claim(&self, inode: &Inode) -> bool {
        let _shard = self.shard(inode.number).lock();
        let is_free = inode.references() == 0 && !inode.is_claimed.load(Ordering::Relaxed);
        if is_free {
            inode.is_claimed.store(true, Ordering::Relaxed);
        }
        is_free
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

    /// The inode that a caller holds references to, or that it isn't in memory; none if none is held.
    pub(in crate::inode) fn held(&self, number: InodeNumber) -> Option<HeldInode> {
        let shard = self.shard(number).lock();
        match shard.inodes.get(number.get()) {
            Some(inode) => Some(HeldInode::Here(Arc::clone(inode))),
            None => shard.parked.contains_key(&number.get()).then_some(HeldInode::Parked),
        }
    }
}

impl InodeShard {
    /// Takes references back of an inode that isn't in memory: it has names then, so that nothing
    /// follows from the last. Nobody may hold any, of a number that was never given out.
    #[cold]
    fn release_parked(&mut self, number: InodeNumber, count: u64) {
        let Some(references) = self.parked.get_mut(&number.get()) else { return };
        // Not more than there were.
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
    left.unwrap_or_else(|| panic!("inode {number} lost references that nobody held"))
}

impl Inode {
    /// Those that callers hold. Nobody changes them but with the inode's shard locked.
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

    /// How many references have to be kept in mind if the inode leaves memory; none if it has to stay.
    pub(super) fn references_to_keep(&mut self) -> Option<u32> {
        let may_leave = self.references() == 0 || self.may_be_parked();
        may_leave.then(|| u32::try_from(self.references()).ok()).flatten()
    }

    /// Whether the inode may leave memory while callers hold references to it.
    fn may_be_parked(&mut self) -> bool {
        self.file_type != FileType::Directory
            && self.fields.get_mut().disk.links_count > 0
            && !self.delayed.is_any()
            && !self.space.has_window()
            && !self.is_tail_pending()
            && !self.orphan.is_recorded()
    }

    /// Whether something is to be done when the last user has gone.
    fn needs_its_users(&self) -> bool {
        self.is_nameless() || self.is_written()
    }
}
