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
//! I/O: two threads may load one inode at the same time, and the second finds the first's. It is
//! held shared by who looks or takes references back, exclusively by who adds or drops inodes: so
//! an inode that is found stays for as long as its shard is locked, and needs no handle of its own.

use super::{Fields, Inode, Place, XattrArea, recent};
use crate::error::{Error, Result};
use crate::file_system::Ext4;
use crate::lock_classes;
use crate::number_map::{NumberMap, SPREAD};
use crossbeam_utils::CachePadded;
use drystone_ext4_format::inode::Inode as DiskInode;
use drystone_ext4_format::{Corrupt, InodeNumber};
use drystone_sync::atomic::Ordering;
use drystone_sync::{Arc, RwLock};
use drystone_vfs::{Errno, FileType};
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
enum Held {
    /// In memory.
    Here(Arc<Inode>),
    /// In the image only.
    Parked,
}

/// Inodes in memory, by number.
#[derive(Debug)]
pub(crate) struct InodeTable {
    /// A power of two of them.
    shards: Box<[CachePadded<RwLock<Shard>>]>,
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
                .map(|_| RwLock::new(&lock_classes::INODE_TABLE, Shard::default()))
                .map(CachePadded::new)
                .collect(),
            shard_length_max: inodes_max.div_ceil(count).max(1),
            id: recent::new_table(),
        }
    }

    fn shard(&self, number: InodeNumber) -> &RwLock<Shard> {
        let spread = u64::from(number.get() >> LOG_NEIGHBOURS).wrapping_mul(SPREAD);
        // The upper bits are the best.
        &self.shards[(spread >> 32) as usize & (self.shards.len() - 1)]
    }

    /// The inode if it is in memory.
    pub fn get(&self, number: InodeNumber) -> Option<Arc<Inode>> {
        self.shard(number).read().inodes.get(&number.get()).cloned()
    }

    /// Passes on an inode that is in memory, and can't leave it meanwhile. Nothing if it isn't, or if
    /// that would take a wait: so it may be done whatever is locked. Don't wait in `found`.
    #[inline]
    pub fn try_with<T>(
        &self,
        number: InodeNumber,
        found: impl FnOnce(&Inode) -> Option<T>,
    ) -> Option<T> {
        found(self.shard(number).try_read()?.inodes.get(&number.get())?)
    }

    /// As [`try_with`](Self::try_with), for a directory that names are looked up in.
    #[inline]
    pub fn try_with_directory<T>(
        &self,
        number: InodeNumber,
        found: impl FnOnce(&Inode) -> Option<T>,
    ) -> Option<T> {
        let mut is_kept = false;
        let result = recent::with(self.id, number, |kept| match kept {
            Some(directory) => {
                is_kept = true;
                found(directory)
            }
            None => self.try_with(number, found),
        });
        if !is_kept {
            recent::note(self.id, number, || self.get(number));
        }
        result
    }

    /// Takes `count` references of a caller back. Returns the inode if that leaves something to do.
    #[inline]
    pub fn release(&self, number: InodeNumber, count: u64) -> Option<Arc<Inode>> {
        let shard = self.shard(number).read();
        if let Some(inode) = shard.inodes.get(&number.get()) {
            return self.release_here(&shard, inode, count);
        }
        drop(shard);
        self.release_parked(number, count)
    }

    #[inline]
    fn release_here(&self, shard: &Shard, inode: &Arc<Inode>, count: u64) -> Option<Arc<Inode>> {
        if !inode.release(count) {
            return None;
        }
        let is_crowded = shard.inodes.len() > self.shard_length_max;
        (is_crowded || inode.needs_its_users()).then(|| Arc::clone(inode))
    }

    /// As [`release`](Self::release), where the inode wasn't in memory: it has names then, so that
    /// nothing follows from the last reference. Nobody may hold any, of a number that was never given
    /// out.
    #[cold]
    fn release_parked(&self, number: InodeNumber, count: u64) -> Option<Arc<Inode>> {
        let mut shard = self.shard(number).write();
        if let Some(inode) = shard.inodes.get(&number.get()) {
            // It has come back in between.
            return self.release_here(&shard, inode, count);
        }
        let references = shard.parked.get_mut(&number.get())?;
        let left = u64::from(*references).checked_sub(count);
        match left.and_then(|left| u32::try_from(left).ok()) {
            Some(0) => drop(shard.parked.remove(&number.get())),
            Some(left) => *references = left,
            None => panic!("inode {number} lost references that nobody held"),
        }
        if shard.parked.len() < shard.parked.capacity() / 8 {
            shard.parked.shrink_to_fit();
        }
        None
    }

    /// Adds a loaded inode, unless another thread was first: then that one's is returned.
    fn insert_or_get(&self, inode: Arc<Inode>) -> Arc<Inode> {
        let mut shard = self.shard(inode.number).write();
        if let Some(first) = shard.inodes.get(&inode.number.get()) {
            return Arc::clone(first);
        }
        if let Some(references) = shard.parked.remove(&inode.number.get()) {
            inode.references.store(u64::from(references), Ordering::SeqCst);
        }
        let swept = self.add(&mut shard, Arc::clone(&inode));
        drop(shard);
        drop(swept);
        inode
    }

    /// Adds an inode whose number was just allocated. If the inode bitmap is damaged the number
    /// may be that of an inode in use.
    pub(super) fn insert_new(&self, inode: Arc<Inode>) -> Result<()> {
        let mut shard = self.shard(inode.number).write();
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
        shard.ring.push_back(inode.number.get());
        shard.inodes.insert(inode.number.get(), inode);
        swept
    }

    /// The inode that a caller holds references to, or that it isn't in memory; none if none is held.
    fn held(&self, number: InodeNumber) -> Option<Held> {
        let shard = self.shard(number).read();
        let parked = || shard.parked.contains_key(&number.get()).then_some(Held::Parked);
        shard.inodes.get(&number.get()).map(|inode| Held::Here(Arc::clone(inode))).or_else(parked)
    }

    /// How many inodes are in memory.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().inodes.len()).sum()
    }

    /// The inodes without names, which only their users keep alive.
    pub fn unlinked(&self) -> Vec<Arc<Inode>> {
        let unlinked = |inode: &&Arc<Inode>| inode.fields().disk.links_count == 0;
        let mut found = Vec::new();
        for shard in &self.shards {
            let inodes: Vec<_> = shard.read().inodes.values().cloned().collect();
            found.extend(inodes.iter().filter(unlinked).cloned());
        }
        found
    }

    /// Drops an inode that a caller has just given back, if its shard is over its share. Adding
    /// sweeps a full shard as well, but nothing may be added for long after many were in use.
    pub fn shed(&self, inode: Arc<Inode>) {
        let mut shard = self.shard(inode.number).write();
        let is_last = |kept: &Arc<Inode>| {
            // The table's and ours; nobody can get a new handle on it, which takes this lock.
            Arc::ptr_eq(kept, &inode)
                && Arc::strong_count(kept) == 2
                && kept.references.load(Ordering::Acquire) == 0
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
        let dropped = self.shard(number).write().inodes.remove(&number.get());
        if let Some(inode) = dropped {
            inode.is_dropped.store(true, Ordering::Release);
        }
    }

    /// Drops what is known of names, which threads may keep otherwise: the image is closed.
    pub fn forget_names(&self) {
        for shard in &self.shards {
            let shard = shard.read();
            let is_directory = |inode: &&Arc<Inode>| inode.is_directory();
            let directories: Vec<_> = shard.inodes.values().filter(is_directory).cloned().collect();
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
            // Nobody can get a new handle on it: that takes this shard's lock.
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
}

impl Ext4 {
    /// An inode by number, from memory or from the image.
    pub(crate) fn inode(&self, number: InodeNumber) -> Result<Arc<Inode>> {
        if let Some(inode) = self.inodes.get(number) {
            return Ok(inode);
        }
        let loaded = self.load_inode(number)?;
        if loaded.fields().disk.links_count == 0 && loaded.fields().disk.mode == 0 {
            return Err(Corrupt::InodeFree { inode: number }.into());
        }
        Ok(self.inodes.insert_or_get(Arc::new(loaded)))
    }

    /// An inode that the orphan record names: it may have no names.
    pub(crate) fn orphan_inode(&self, number: InodeNumber) -> Result<Arc<Inode>> {
        match self.inodes.get(number) {
            Some(inode) => Ok(inode),
            None => Ok(self.inodes.insert_or_get(Arc::new(self.load_inode(number)?))),
        }
    }

    fn load_inode(&self, number: InodeNumber) -> Result<Inode> {
        let layout = &self.volume.layout;
        let place = Place::new(&self.volume, self.allocator.inode_table_block(number)?);
        let buffer = self.volume.read(place.block)?;
        let bytes = buffer.read();
        let record = &bytes[place.offset..][..layout.inode_size()];
        let disk = match place.part {
            // It was changed, and its checksum waits for a commit.
            Some(part) if bytes.is_unfinished(part) => {
                DiskInode::check_unsealed(record, number, layout)?
            }
            _ => DiskInode::check(record, number, layout)?,
        };
        let xattr_area = XattrArea::load(&record[disk.attribute_area(layout)]);
        let fields = Fields::new(disk, xattr_area, &buffer);
        let inode = Inode::new(&self.volume, number, place, fields)?;
        // What was read may not be durable yet: it may have left memory since it was changed.
        inode.note_loaded(self.volume.journal.running_tid());
        Ok(inode)
    }

    /// An inode that a caller holds a reference to; `ESTALE` for any other.
    pub(crate) fn held(&self, number: drystone_vfs::InodeNumber) -> Result<Arc<Inode>> {
        let number = u32::try_from(number.0).map_err(|_| Error::Errno(Errno::ESTALE))?;
        let number = InodeNumber::new(number);
        match self.inodes.held(number) {
            Some(Held::Here(inode)) => Ok(inode),
            Some(Held::Parked) => self.inode(number),
            // The root is held by the mount, and loaded when it is first asked for.
            None if number == InodeNumber::ROOT => self.inode(number),
            None => Err(Error::Errno(Errno::ESTALE)),
        }
    }
}

impl Inode {
    /// How many references have to be kept in mind if the inode leaves memory; none if it has to stay.
    fn references_to_keep(&mut self) -> Option<u32> {
        let references = self.references.load(Ordering::Acquire);
        let may_leave = references == 0
            || self.file_type != FileType::Directory
                && self.fields.get_mut().disk.links_count > 0
                && !self.buffered.is_any()
                && !self.space.has_window()
                && !self.is_tail_pending()
                && !self.orphan.is_recorded();
        may_leave.then(|| u32::try_from(references).ok()).flatten()
    }

    /// Gives the caller of the engine one reference.
    pub fn reference(&self) {
        self.references.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes `count` references back; true if none is left.
    pub fn release(&self, count: u64) -> bool {
        let before = self.references.fetch_sub(count, Ordering::SeqCst);
        assert!(before >= count, "inode {} lost references that nobody held", self.number);
        before == count
    }

    /// Whether the number stands for something else now, or for nothing.
    pub(super) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// Whether something is to be done when the last user has gone. Whoever takes the last name says
    /// so before looking for users, and users leave before they look here: so one of two that do
    /// both at once sees the other.
    fn needs_its_users(&self) -> bool {
        self.is_nameless.load(Ordering::SeqCst) || self.is_written()
    }

    /// Forgets the references of callers that are gone: the mount ends.
    pub fn drop_references(&self) {
        self.references.store(0, Ordering::SeqCst);
    }

    /// True if callers hold references.
    pub fn is_referenced(&self) -> bool {
        self.references.load(Ordering::SeqCst) > 0
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
        assert!(fs.inodes.shards.iter().all(|shard| shard.read().parked.is_empty()));
        fs.close().unwrap();
        image.check("after held inodes had left");
    }
}
