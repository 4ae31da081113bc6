//! What is known of each inode: one byte each, in groups that have inodes in use.

use drystone_ext4_format::dir::EntryType;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{GroupNumber, InodeNumber};
use std::collections::{BTreeSet, HashMap};

const TYPE_MASK: u8 = 0x07;
const IN_USE: u8 = 0x08;
const SINGLE_LINK: u8 = 0x10;
const EA_INODE: u8 = 0x20;
const SEEN_SHIFT: u32 = 6;
/// From this many names on, a map counts them.
const SEEN_MANY: u8 = 3;

/// States of all inodes.
#[derive(Debug)]
pub(crate) struct InodeStates {
    groups: Vec<Option<Box<[u8]>>>,
    per_group: u32,
    count: u32,
    /// Stored link counts other than 0 and 1, by inode in rising order.
    stored_links: Vec<(u32, u16)>,
    /// Names beyond what a state holds.
    seen_many: HashMap<u32, u32>,
    /// Inodes that need no name: other programs open them by number.
    nameless: BTreeSet<u32>,
}

impl InodeStates {
    pub fn new(layout: &Layout) -> Self {
        Self {
            groups: (0..layout.group_count()).map(|_| None).collect(),
            per_group: layout.inodes_per_group(),
            count: layout.inodes_count(),
            stored_links: Vec::new(),
            seen_many: HashMap::new(),
            nameless: BTreeSet::new(),
        }
    }

    fn get(&self, inode: InodeNumber) -> u8 {
        if inode.get() == 0 || inode.get() > self.count {
            return 0;
        }
        let index = inode.get() - 1;
        match &self.groups[(index / self.per_group) as usize] {
            Some(states) => states[(index % self.per_group) as usize],
            None => 0,
        }
    }

    /// The inode is known to exist.
    fn state(&mut self, inode: InodeNumber) -> &mut u8 {
        assert!(inode.get() != 0 && inode.get() <= self.count, "{inode:?} does not exist");
        let index = inode.get() - 1;
        let per_group = self.per_group as usize;
        let states = self.groups[(index / self.per_group) as usize]
            .get_or_insert_with(|| vec![0; per_group].into_boxed_slice());
        &mut states[(index % self.per_group) as usize]
    }

    /// Records an inode in use. Inodes come in rising order.
    pub fn set_used(&mut self, inode: InodeNumber, kind: EntryType, links: u16, holds_value: bool) {
        let mut state = IN_USE | kind.to_raw();
        if links == 1 {
            state |= SINGLE_LINK;
        } else if links > 0 {
            self.stored_links.push((inode.get(), links));
        }
        if holds_value {
            state |= EA_INODE;
        }
        *self.state(inode) = state;
    }

    pub fn set_nameless(&mut self, inode: InodeNumber) {
        self.nameless.insert(inode.get());
    }

    pub fn is_nameless(&self, inode: InodeNumber) -> bool {
        self.nameless.contains(&inode.get())
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
        let found = self.stored_links.binary_search_by_key(&inode.get(), |&(number, _)| number);
        found.map_or(0, |at| self.stored_links[at].1)
    }

    /// Counts a name of an inode that exists.
    pub fn add_name(&mut self, inode: InodeNumber) {
        let state = self.state(inode);
        let seen = *state >> SEEN_SHIFT;
        if seen < SEEN_MANY {
            *state += 1 << SEEN_SHIFT;
        }
        if seen + 1 >= SEEN_MANY {
            let count = self.seen_many.entry(inode.get()).or_insert(u32::from(SEEN_MANY) - 1);
            *count = count.saturating_add(1);
        }
    }

    pub fn names(&self, inode: InodeNumber) -> u32 {
        match self.get(inode) >> SEEN_SHIFT {
            SEEN_MANY => self.seen_many.get(&inode.get()).copied().unwrap_or(0),
            few => u32::from(few),
        }
    }

    /// The inodes of a group that are in use.
    pub fn used_in(&self, group: GroupNumber) -> impl Iterator<Item = InodeNumber> + use<'_> {
        let first = group.get() * self.per_group + 1;
        let states = self.groups.get(group.index()).and_then(Option::as_deref).unwrap_or(&[]);
        (first..)
            .zip(states)
            .filter(|(_, state)| **state & IN_USE != 0)
            .map(|(number, _)| InodeNumber::new(number))
    }

    /// The bitmap that a group should have.
    pub fn bitmap(&self, group: GroupNumber) -> Vec<u8> {
        let mut bytes = vec![0; self.per_group as usize / 8];
        if let Some(Some(states)) = self.groups.get(group.index()) {
            for (index, _) in states.iter().enumerate().filter(|(_, state)| **state & IN_USE != 0) {
                bytes[index / 8] |= 1 << (index % 8);
            }
        }
        bytes
    }
}
