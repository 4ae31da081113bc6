//! What is known of each inode: one byte each, in groups that have inodes in use.
//!
//! # Locks and state
//!
//! Threads share the states: each sets those of the inodes that it examines, and what few inodes have is kept in maps
//! behind locks. The order of changes makes no difference to the result. Names are counted by one thread, the one
//! that takes what the others have found, and only once all inodes are examined.

use crate::image::{Error, Image};
use crate::inode_runs::{InodeRun, InodeRuns};
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
const SEEN_MASK: u8 = 0xc0;
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
    memory: MemoryShare,
}

impl InodeStates {
    /// # Errors
    ///
    /// [`Error::Memory`].
    pub fn new(image: &Image<'_>, memory: &Memory) -> Result<Self, Error> {
        let layout = &image.layout;
        let mut states = Self {
            groups: (0..layout.group_count()).map(|_| OnceLock::new()).collect(),
            per_group: layout.inodes_per_group(),
            count: layout.inodes_count(),
            stored_links: Mutex::new(&FEW_INODES, BTreeMap::new()),
            seen_many: Mutex::new(&FEW_INODES, HashMap::new()),
            nameless: Mutex::new(&FEW_INODES, BTreeSet::new()),
            memory: memory.share(),
        };
        states.grow(image)?;
        Ok(states)
    }

    /// Takes memory for all groups that may have inodes in use.
    fn grow(&mut self, image: &Image<'_>) -> Result<(), Error> {
        let layout = &image.layout;
        let has_inodes =
            |group: &GroupNumber| group.get() == 0 || image.initialised_inodes(*group) > 0;
        let with_inodes = layout.groups().filter(has_inodes).count() as u64;
        let groups = u64::from(layout.group_count()) * GROUP_BYTES;
        self.memory.grow_to(groups + with_inodes * u64::from(layout.inodes_per_group()))
    }

    /// These states for another examination of the image.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`].
    pub fn again(mut self, image: &Image<'_>, memory: &Memory) -> Result<Self, Error> {
        self.memory = memory.share();
        self.grow(image)?;
        Ok(self)
    }

    /// What directories can see of some inodes.
    pub fn seen_of(&self, run: InodeRun) -> Vec<u8> {
        let states = (run.first..=run.last).map(|inode| self.get(InodeNumber::new(inode)));
        states.map(|state| state & (TYPE_MASK | IN_USE | EA_INODE)).collect()
    }

    /// Forgets all names, and all inodes but these.
    pub fn keep_only(&self, inodes: &InodeRuns) {
        let mut from = 1;
        for run in inodes.iter() {
            self.forget(from, run.first - 1);
            from = run.last.saturating_add(1);
        }
        self.forget(from, self.count);
        for state in self.groups.iter().filter_map(OnceLock::get).flatten() {
            state.store(state.load(Ordering::Relaxed) & !SEEN_MASK, Ordering::Relaxed);
        }
        self.seen_many.lock().clear();
    }

    /// Forgets the inodes from one to another one.
    fn forget(&self, first: u32, last: u32) {
        if last < first {
            return;
        }
        for group in (first - 1) / self.per_group..=(last - 1) / self.per_group {
            let Some(states) = self.groups[group as usize].get() else { continue };
            let base = group * self.per_group;
            let from = (first - 1).saturating_sub(base);
            let to = (last - base).min(self.per_group);
            for state in &states[from as usize..to as usize] {
                state.store(0, Ordering::Relaxed);
            }
        }
        let mut stored_links = self.stored_links.lock();
        let linked: Vec<u32> = stored_links.range(first..=last).map(|(inode, _)| *inode).collect();
        for inode in linked {
            stored_links.remove(&inode);
        }
        drop(stored_links);
        self.nameless.lock().retain(|inode| !(first..=last).contains(inode));
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
        &self.group(index / self.per_group)[(index % self.per_group) as usize]
    }

    fn group(&self, group: u32) -> &[AtomicU8] {
        self.groups[group as usize]
            .get_or_init(|| (0..self.per_group).map(|_| AtomicU8::new(0)).collect())
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
        self.add_name_to(self.state(inode), inode.get());
    }

    fn add_name_to(&self, state: &AtomicU8, inode: u32) {
        // No other thread counts.
        let before = state.load(Ordering::Relaxed);
        if before >> SEEN_SHIFT < SEEN_MANY {
            state.store(before + (1 << SEEN_SHIFT), Ordering::Relaxed);
        }
        if before >> SEEN_SHIFT >= SEEN_MANY - 1 {
            self.add_to_many(inode);
        }
    }

    /// Counts a further name of an inode that has as many as a state counts. Most have one.
    #[cold]
    fn add_to_many(&self, inode: u32) {
        let mut seen_many = self.seen_many.lock();
        let count = seen_many.entry(inode).or_insert(u32::from(SEEN_MANY) - 1);
        *count = count.saturating_add(1);
    }

    /// Counts names of inodes that exist and come in order.
    pub fn add_names(&self, inodes: impl Iterator<Item = u32>) {
        let (mut before, mut states) = (0, &[][..]);
        for inode in inodes {
            // Of the group of the inode before, if it is that.
            if (inode - before) as usize > states.len() {
                let group = (inode - 1) / self.per_group;
                (before, states) = (group * self.per_group, self.group(group));
            }
            self.add_name_to(&states[(inode - before - 1) as usize], inode);
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
        self.all_in(group).filter(|(_, state)| state & IN_USE != 0).map(|(inode, _)| inode)
    }

    /// The inodes of a group that are in use, without those that have the one name that they count, and aren't
    /// directories.
    pub fn not_plain_in(&self, group: GroupNumber) -> impl Iterator<Item = InodeNumber> + use<'_> {
        let is_plain = |state: u8| {
            state & SINGLE_LINK != 0
                && state >> SEEN_SHIFT == 1
                && state & TYPE_MASK != EntryType::Directory.to_raw()
        };
        self.all_in(group)
            .filter(move |(_, state)| state & IN_USE != 0 && !is_plain(*state))
            .map(|(inode, _)| inode)
    }

    /// All inodes of a group, with their states.
    fn all_in(&self, group: GroupNumber) -> impl Iterator<Item = (InodeNumber, u8)> + use<'_> {
        let first = group.get() * self.per_group + 1;
        let states = self.groups.get(group.index()).and_then(OnceLock::get);
        (first..)
            .zip(states.map_or(&[][..], |states| states))
            .map(|(number, state)| (InodeNumber::new(number), state.load(Ordering::Relaxed)))
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
