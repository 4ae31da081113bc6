//! The table of inodes in memory, and the references that callers hold.
//!
//! # State
//! An inode stays in the table while somebody holds a reference or works with it, and after that
//! until its shard is over its share of the bound: those that nobody uses leave when others come, and
//! at once when they are given back to a shard that holds too many.
//!
//! The kernel of a mount holds references to all files that it has names of, millions perhaps. Those
//! that nobody works with leave as well; only how many references there are stays, and comes back
//! with the inode. Directories stay, and so does what has no name.
//!
//! # Locking
//! Shards by inode number, the inodes of a table block in one: threads that work on files of their
//! own, which have neighbouring inodes, seldom meet. A shard's lock is held for a look-up, never for
//! I/O: two threads may load one inode at the same time, and the second finds the first's. An inode
//! that is found stays for as long as its shard is locked, and needs no handle of its own.
//!
//! The number of references lies in the inode, in a line that who looks at it has read before, and changes
//! with the shard locked: taking or giving back one costs nothing but the lock.
//! Who frees an inode claims it with its shard locked, if it sees no references there. Whoever takes
//! the last name says so before that, and whoever gives back the last reference looks for names
//! with the shard locked; so of two who do both at once, one sees both gone.

use super::{Inode, recent};
use crate::error::Result;
use crate::known_names::Reader;
use crate::lock_classes;
use crate::number_map::{NumberMap, SPREAD};
use crossbeam_utils::CachePadded;
use drystone_ext4_format::{Corrupt, InodeNumber};
use drystone_sync::atomic::Ordering;
use drystone_sync::{Arc, SpinLock};
use drystone_vfs::FileType;
use std::collections::VecDeque;

const SHARDS_MAX: usize = 256;
/// A shard has room for more inodes than that: it holds neighbours, of which few may be in use.
const SHARD_LENGTH_MIN: usize = 64;
/// Neighbouring inodes in one shard, as a power of two: those of a block of the inode table.
const LOG_NEIGHBOURS: u32 = 4;
/// Inodes looked at for each one that is added to a full shard.
const SWEEP_LENGTH: usize = 8;

/// Inodes that a sweep took out.
type Swept = [Option<Arc<Inode>>; SWEEP_LENGTH];

#[derive(Debug, Default)]
struct Shard {
    inodes: NumberMap<u32, Arc<Inode>>,
    /// The numbers in the order in which a sweep meets them.
    ring: VecDeque<u32>,
    /// The references that callers hold to inodes that aren't in memory.
    parked: NumberMap<u32, u32>,
}

/// Where an inode is that callers hold references to.
pub(super) enum Held {
    /// In memory.
    Here(Arc<Inode>),
    /// In the image only.
    Parked,
}

/// Inodes in memory, by number.
#[derive(Debug)]
pub(crate) struct InodeTable {
    /// A power of two of them.
    shards: Box<[CachePadded<SpinLock<Shard>>]>,
    shard_length_max: usize,
    /// Tells tables apart.
    id: u64,
}

impl InodeTable {
    /// A table that keeps up to `inodes_max` inodes that nobody uses.
    pub fn new(inodes_max: usize) -> InodeTable {
        let count = (inodes_max / SHARD_LENGTH_MIN).clamp(1, SHARDS_MAX);
        // Rounded down to a power of two.
        let count = 1 << count.ilog2();
        InodeTable {
            shards: (0..count)
                .map(|_| SpinLock::new(&lock_classes::INODE_TABLE, Shard::default()))
                .map(CachePadded::new)
                .collect(),
            shard_length_max: inodes_max.div_ceil(count).max(1),
            id: recent::new_table(),
        }
    }

    fn shard(&self, number: InodeNumber) -> &SpinLock<Shard> {
        let spread = u64::from(number.get() >> LOG_NEIGHBOURS).wrapping_mul(SPREAD);
        // The upper bits are the best.
        &self.shards[(spread >> 32) as usize & (self.shards.len() - 1)]
    }

    /// The inode if it is in memory.
    pub fn get(&self, number: InodeNumber) -> Option<Arc<Inode>> {
        let shard = self.shard(number).lock();
        shard.inodes.get(&number.get()).cloned()
    }

    /// The inode if it is in memory, with a reference for the caller of the engine.
    pub fn get_with_reference(&self, number: InodeNumber) -> Option<Arc<Inode>> {
        let shard = self.shard(number).lock();
        let inode = shard.inodes.get(&number.get())?;
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
        let inode = shard.inodes.get(&number.get())?;
        let result = found(inode)?;
        inode.add_reference();
        Some(result)
    }

    /// Gives the caller of the engine one reference.
    pub fn reference(&self, inode: &Inode) {
        let _shard = self.shard(inode.number).lock();
        inode.add_reference();
    }

    /// Claims an inode for who frees it: false if callers hold references, or somebody has claimed
    /// it already.
    pub(super) fn claim(&self, inode: &Inode) -> bool {
        let _shard = self.shard(inode.number).lock();
        let is_free = inode.references() == 0 && !inode.is_claimed.load(Ordering::Relaxed);
        if is_free {
            inode.is_claimed.store(true, Ordering::Relaxed);
        }
        is_free
    }

    /// Passes on a directory in memory that names are looked up in, and what the thread has read of its
    /// names.
    #[inline]
    pub fn with_directory<T>(
        &self,
        number: InodeNumber,
        found: impl FnOnce(&Inode, &mut Reader) -> Option<T>,
    ) -> Option<T> {
        recent::with(self.id, number, || self.get(number), found)
    }

    /// Takes `count` references of a caller back. Returns the inode if that leaves something to do.
    #[inline]
    pub fn release(&self, number: InodeNumber, count: u64) -> Option<Arc<Inode>> {
        let mut shard = self.shard(number).lock();
        let is_crowded = shard.inodes.len() > self.shard_length_max;
        let Some(inode) = shard.inodes.get(&number.get()) else {
            shard.release_parked(number, count);
            return None;
        };
        let left = less(number, inode.references(), count);
        inode.set_references(left);
        let has_more_to_do = left == 0 && (is_crowded || inode.needs_its_users());
        has_more_to_do.then(|| Arc::clone(inode))
    }

    /// Adds a loaded inode, unless another thread was first: then that one's is returned.
    pub(super) fn insert_or_get(&self, inode: Arc<Inode>) -> Arc<Inode> {
        let mut shard = self.shard(inode.number).lock();
        if let Some(first) = shard.inodes.get(&inode.number.get()) {
            return Arc::clone(first);
        }
        inode.set_references(shard.parked.remove(&inode.number.get()).map_or(0, u64::from));
        let swept = self.add(&mut shard, Arc::clone(&inode));
        drop(shard);
        drop(swept);
        inode
    }

    /// Adds an inode whose number was just allocated. If the inode bitmap is damaged the number
    /// may be that of an inode in use.
    pub(super) fn insert_new(&self, inode: Arc<Inode>) -> Result<()> {
        let mut shard = self.shard(inode.number).lock();
        if shard.inodes.contains_key(&inode.number.get()) {
            return Err(Corrupt::InodeInUse { inode: inode.number }.into());
        }
        let swept = self.add(&mut shard, inode);
        drop(shard);
        drop(swept);
        Ok(())
    }

    /// Adds an inode. Returns those that were dropped for it: they take what is known about their
    /// extents along, which the shard shouldn't wait for.
    fn add(&self, shard: &mut Shard, inode: Arc<Inode>) -> Swept {
        let swept = if shard.inodes.len() >= self.shard_length_max {
            shard.sweep()
        } else {
            Swept::default()
        };
        let number = inode.number.get();
        shard.ring.push_back(number);
        shard.inodes.insert(number, inode);
        swept
    }

    /// The inode that a caller holds references to, or that it isn't in memory; none if none is held.
    pub(super) fn held(&self, number: InodeNumber) -> Option<Held> {
        let shard = self.shard(number).lock();
        match shard.inodes.get(&number.get()) {
            Some(inode) => Some(Held::Here(Arc::clone(inode))),
            None => shard.parked.contains_key(&number.get()).then_some(Held::Parked),
        }
    }

    /// How many inodes are in memory.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().inodes.len()).sum()
    }

    /// The inodes without names, which only their users keep alive. The mount ends: the references of
    /// callers, who are gone, are forgotten.
    pub fn take_unlinked(&self) -> Vec<Arc<Inode>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            for inode in shard.lock().inodes.values() {
                if inode.links_count() == 0 {
                    inode.set_references(0);
                    found.push(Arc::clone(inode));
                }
            }
        }
        found
    }

    /// Drops an inode that a caller has just given back, if its shard is over its share. Adding
    /// sweeps a full shard as well, but nothing may be added for long after many were in use.
    pub fn shed(&self, inode: Arc<Inode>) {
        let mut shard = self.shard(inode.number).lock();
        let is_last = |kept: &Arc<Inode>| {
            // The table's and ours; nobody can get a new handle on it, which takes this lock.
            Arc::ptr_eq(kept, &inode) && Arc::strong_count(&inode) == 2 && inode.references() == 0
        };
        if shard.inodes.len() <= self.shard_length_max
            || !shard.inodes.get(&inode.number.get()).is_some_and(is_last)
        {
            return;
        }
        // The number stays in the ring until a sweep meets it.
        shard.inodes.remove(&inode.number.get());
        // What it knows about its extents goes with it: the shard shouldn't wait for that.
        drop(shard);
        drop(inode);
    }

    /// Drops an inode that is about to be freed.
    pub(super) fn remove(&self, number: InodeNumber) {
        let dropped = self.shard(number).lock().inodes.remove(&number.get());
        if let Some(inode) = dropped {
            inode.is_dropped.store(true, Ordering::Release);
        }
    }

    /// Drops what is known of names, which threads may keep otherwise: the image is closed.
    pub fn forget_names(&self) {
        for shard in &self.shards {
            let shard = shard.lock();
            let inodes = shard.inodes.values();
            let directories: Vec<_> =
                inodes.filter(|inode| inode.is_directory()).cloned().collect();
            drop(shard);
            for directory in directories {
                directory.is_dropped.store(true, Ordering::Release);
                if let Some(names) = directory.known_names() {
                    names.clear();
                }
            }
        }
    }
}

impl Shard {
    /// Drops some inodes that nobody uses.
    fn sweep(&mut self) -> Swept {
        let mut swept = Swept::default();
        for place in &mut swept {
            let Some(number) = self.ring.pop_front() else { break };
            // A number whose inode was freed leaves the ring here.
            let Some(inode) = self.inodes.get_mut(&number) else { continue };
            // Nobody can get a new handle on it: that takes the shard's lock.
            match Arc::get_mut(inode).and_then(Inode::references_to_keep) {
                Some(references) => {
                    *place = self.inodes.remove(&number);
                    if references > 0 {
                        self.parked.insert(number, references);
                    }
                }
                None => self.ring.push_back(number),
            }
        }
        swept
    }

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
    fn references(&self) -> u64 {
        self.references.load(Ordering::Relaxed)
    }

    #[inline]
    fn add_reference(&self) {
        self.set_references(self.references() + 1);
    }

    #[inline]
    fn set_references(&self, count: u64) {
        self.references.store(count, Ordering::Relaxed);
    }

    /// How many references have to be kept in mind if the inode leaves memory; none if it has to stay.
    fn references_to_keep(&mut self) -> Option<u32> {
        let may_leave = self.references() == 0 || self.may_be_parked();
        may_leave.then(|| u32::try_from(self.references()).ok()).flatten()
    }

    /// Whether the inode may leave memory while callers hold references to it.
    fn may_be_parked(&mut self) -> bool {
        self.file_type != FileType::Directory
            && self.fields.get_mut().disk.links_count > 0
            && !self.buffered.is_any()
            && !self.space.has_window()
            && !self.is_tail_pending()
            && !self.orphan.is_recorded()
    }

    /// Whether the number stands for something else now, or for nothing.
    pub(super) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// Whether something is to be done when the last user has gone.
    fn needs_its_users(&self) -> bool {
        self.is_nameless() || self.is_written()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::MountOptions;
    use crate::testing::TestImage;
    use drystone_vfs::{FileSystem, NewNode, RequestContext};

    #[test]
    fn what_is_given_back_leaves_a_full_table() {
        let Some(image) = TestImage::new("default", 32) else { return };
        let options = MountOptions { memory_budget_bytes: 1 << 20, ..MountOptions::default() };
        let bound = options.inodes_cached_max().max(SHARDS_MAX);
        let fs = image.open_with(options);
        let context = RequestContext::superuser();
        let create = |number: usize| {
            let name = number.to_string();
            let made = fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644);
            made.unwrap().inode
        };
        let made: Vec<_> = (0..bound * 4).map(create).collect();
        for inode in &made {
            fs.forget(*inode, 1);
        }
        // Each shard may keep its share, rounded up.
        assert!(fs.inodes.len() <= bound + SHARDS_MAX, "{} of {bound}", fs.inodes.len());
        // They can be found again.
        let again = fs.lookup(&context, fs.root(), b"0").unwrap();
        assert_eq!(again.inode, made[0]);
        fs.forget(again.inode, 1);
        fs.close().unwrap();
        image.check("after shedding inodes");
    }

    /// A caller holds references to more files than there is room for.
    #[test]
    fn held_inodes_leave_a_full_table_and_come_back() {
        let Some(image) = TestImage::new("default", 32) else { return };
        let options = MountOptions { memory_budget_bytes: 1 << 20, ..MountOptions::default() };
        let bound = options.inodes_cached_max().max(SHARDS_MAX);
        let fs = image.open_with(options);
        let context = RequestContext::superuser();
        let made: Vec<_> = (0..bound * 4)
            .map(|number| {
                let name = number.to_string();
                let made = fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644);
                let inode = made.unwrap().inode;
                fs.write(&context, inode, 0, name.as_bytes()).unwrap();
                inode
            })
            .collect();
        assert!(fs.inodes.len() <= bound + SHARDS_MAX * 2, "{} of {bound}", fs.inodes.len());
        for (number, inode) in made.iter().enumerate() {
            let name = number.to_string();
            // They work as if they had never left; one without a name lives as long as it is held.
            if number % 3 == 0 {
                fs.unlink(&context, fs.root(), name.as_bytes()).unwrap();
            }
            let mut content = [0; 8];
            let length = fs.read(*inode, 0, &mut content).unwrap();
            assert_eq!(&content[..length], name.as_bytes());
            if number % 5 == 0 {
                assert_eq!(fs.lookup(&context, fs.root(), b"1").unwrap().inode, made[1]);
            }
        }
        for inode in &made {
            fs.forget(*inode, 1);
        }
        fs.forget(made[1], made.len().div_ceil(5) as u64);
        assert!(fs.attributes(made[0]).is_err() && fs.inodes.len() <= bound + SHARDS_MAX);
        assert!(fs.inodes.shards.iter().all(|shard| shard.lock().parked.is_empty()));
        fs.close().unwrap();
        image.check("after held inodes had left");
    }
}
