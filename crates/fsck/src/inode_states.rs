//! What is known of each inode: one byte each, in groups that have inodes in use.
//!
//! # Locks and state
//!
//! Threads share the states: a byte is changed as an atomic, and what few inodes have is kept in maps behind
//! locks. The order of changes makes no difference to the result.

use crate::image::{Error, Image};
use crate::memory::{Memory, MemoryShare};
use drystone_ext4_format::dir::EntryType;
use drystone_ext4_format::{GroupNumber, InodeNumber};
use drystone_sync::atomic::{AtomicU8, Ordering};
use drystone_sync::{LockClass, Mutex, OnceLock};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a group takes: its descriptor, its place here, and some places of fixed metadata.
const GROUP_BYTES: u64 = 256;

const TYPE_MASK: u8 = 0x07;
const IN_USE: u8 = 0x08;
const SINGLE_LINK: u8 = 0x10;
const EA_INODE: u8 = 0x20;
const SEEN_SHIFT: u32 = 6;
/// From this many names on, a map counts them.
const SEEN_MANY: u8 = 3;

static FEW_INODES: LockClass = LockClass::new("what few inodes have", 10);

/// States of all inodes.
#[derive(Debug)]
pub(crate) struct InodeStates {
    groups: Vec<OnceLock<Box<[AtomicU8]>>>,
    per_group: u32,
    count: u32,
    /// Stored link counts other than 0 and 1.
    stored_links: Mutex<BTreeMap<u32, u16>>,
    /// Names of inodes that have more than a state counts.
    seen_many: Mutex<HashMap<u32, u32>>,
    /// Inodes that need no name: other programs open them by number.
    nameless: Mutex<BTreeSet<u32>>,
    /// What the states take, and the groups.
    _memory: MemoryShare,
}

impl InodeStates {
    /// # Errors
    ///
    /// [`Error::Memory`].
    pub fn new(image: &Image<'_>, memory: &Memory) -> Result<Self, Error> {
        let layout = &image.layout;
        let has_inodes =
            |group: &GroupNumber| group.get() == 0 || image.initialised_inodes(*group) > 0;
        let with_inodes = layout.groups().filter(has_inodes).count() as u64;
        let mut share = memory.share();
        let groups = u64::from(layout.group_count()) * GROUP_BYTES;
        share.grow_to(groups + with_inodes * u64::from(layout.inodes_per_group()))?;
        Ok(Self {
            groups: (0..layout.group_count()).map(|_| OnceLock::new()).collect(),
            per_group: layout.inodes_per_group(),
            count: layout.inodes_count(),
            stored_links: Mutex::new(&FEW_INODES, BTreeMap::new()),
            seen_many: Mutex::new(&FEW_INODES, HashMap::new()),
            nameless: Mutex::new(&FEW_INODES, BTreeSet::new()),
            _memory: share,
        })
    }

    fn get(&self, inode: InodeNumber) -> u8 {
        if inode.get() == 0 || inode.get() > self.count {
            return 0;
        }
        let index = inode.get() - 1;
        match self.groups[(index / self.per_group) as usize].get() {
            Some(states) => states[(index % self.per_group) as usize].load(Ordering::Relaxed),
            None => 0,
        }
    }

    /// The inode is known to exist.
    fn state(&self, inode: InodeNumber) -> &AtomicU8 {
        assert!(inode.get() != 0 && inode.get() <= self.count, "{inode:?} does not exist");
        let index = inode.get() - 1;
        let states = self.groups[(index / self.per_group) as usize]
            .get_or_init(|| (0..self.per_group).map(|_| AtomicU8::new(0)).collect());
        &states[(index % self.per_group) as usize]
    }

    /// Records an inode in use.
    pub fn set_used(&self, inode: InodeNumber, kind: EntryType, links: u16, holds_value: bool) {
        let mut state = IN_USE | kind.to_raw();
        if links == 1 {
            state |= SINGLE_LINK;
        } else if links > 0 {
            self.stored_links.lock().insert(inode.get(), links);
        }
        if holds_value {
            state |= EA_INODE;
        }
        self.state(inode).store(state, Ordering::Relaxed);
    }

    pub fn set_nameless(&self, inode: InodeNumber) {
        self.nameless.lock().insert(inode.get());
    }

    pub fn nameless(&self) -> BTreeSet<u32> {
        self.nameless.lock().clone()
    }

    pub fn is_used(&self, inode: InodeNumber) -> bool {
        self.get(inode) & IN_USE != 0
    }

    pub fn holds_value(&self, inode: InodeNumber) -> bool {
        self.get(inode) & EA_INODE != 0
    }

    pub fn kind(&self, inode: InodeNumber) -> EntryType {
        EntryType::from_raw(self.get(inode) & TYPE_MASK).unwrap_or(EntryType::Unknown)
    }

    pub fn stored_links(&self, inode: InodeNumber) -> u16 {
        if self.get(inode) & SINGLE_LINK != 0 {
            return 1;
        }
        self.stored_links.lock().get(&inode.get()).copied().unwrap_or(0)
    }

    /// Counts a name of an inode that exists.
    pub fn add_name(&self, inode: InodeNumber) {
        let state = self.state(inode);
        let add = |state| (state >> SEEN_SHIFT < SEEN_MANY).then(|| state + (1 << SEEN_SHIFT));
        let before = state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        if before.unwrap_or_else(|full| full) >> SEEN_SHIFT >= SEEN_MANY - 1 {
            let mut seen_many = self.seen_many.lock();
            let count = seen_many.entry(inode.get()).or_insert(u32::from(SEEN_MANY) - 1);
            *count = count.saturating_add(1);
        }
    }

    pub fn names(&self, inode: InodeNumber) -> u32 {
        match self.get(inode) >> SEEN_SHIFT {
            SEEN_MANY => self.seen_many.lock().get(&inode.get()).copied().unwrap_or(0),
            few => u32::from(few),
        }
    }

    /// The inodes of a group that are in use.
    pub fn used_in(&self, group: GroupNumber) -> impl Iterator<Item = InodeNumber> + use<'_> {
        let first = group.get() * self.per_group + 1;
        let states = self.groups.get(group.index()).and_then(OnceLock::get);
        (first..)
            .zip(states.map_or(&[][..], |states| states))
            .filter(|(_, state)| state.load(Ordering::Relaxed) & IN_USE != 0)
            .map(|(number, _)| InodeNumber::new(number))
    }

    /// The bitmap that a group should have.
    pub fn bitmap(&self, group: GroupNumber) -> Vec<u8> {
        let mut bytes = vec![0; self.per_group as usize / 8];
        let first = group.get() * self.per_group + 1;
        for inode in self.used_in(group) {
            let index = (inode.get() - first) as usize;
            bytes[index / 8] |= 1 << (index % 8);
        }
        bytes
    }
}
