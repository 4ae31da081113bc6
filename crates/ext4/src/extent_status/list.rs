//! A linked list of inodes in which each inode knows its node.
//!
//! # State
//! Nodes are linked by number and lie in pieces that are never moved; free nodes are linked too. So
//! adding, removing and moving to the end are a few stores, however long the list is.

use super::CachedInode;
use drystone_sync::Arc;
use std::ops::{Index, IndexMut};

/// No node.
pub(super) const NONE: u32 = u32::MAX;
const PIECE_LENGTH: usize = 1024;

#[derive(Debug)]
pub(super) struct ListNode {
    inode: Option<Arc<CachedInode>>,
    previous: u32,
    next: u32,
}

/// The list.
#[derive(Debug)]
pub(super) struct List {
    pieces: Vec<Vec<ListNode>>,
    first: u32,
    last: u32,
    free: u32,
    length: usize,
}

impl Index<u32> for List {
    type Output = ListNode;

    fn index(&self, number: u32) -> &ListNode {
        &self.pieces[number as usize / PIECE_LENGTH][number as usize % PIECE_LENGTH]
    }
}

impl IndexMut<u32> for List {
    fn index_mut(&mut self, number: u32) -> &mut ListNode {
        &mut self.pieces[number as usize / PIECE_LENGTH][number as usize % PIECE_LENGTH]
    }
}

impl List {
    /// An empty list.
    pub fn new() -> List {
        List { pieces: Vec::new(), first: NONE, last: NONE, free: NONE, length: 0 }
    }

    /// The number of inodes in the list.
    pub fn len(&self) -> usize {
        self.length
    }

    /// The first node.
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// The last node.
    pub fn last(&self) -> Option<u32> {
        (self.last != NONE).then_some(self.last)
    }

    /// The inodes, in order.
    #[cfg(test)]
    pub fn inodes(&self) -> Vec<Arc<CachedInode>> {
        let nodes = std::iter::successors(self.first(), |&number| self.next(number));
        nodes.map(|number| Arc::clone(self.inode(number))).collect()
    }

    /// The node after `number`.
    pub fn next(&self, number: u32) -> Option<u32> {
        let next = self[number].next;
        (next != NONE).then_some(next)
    }

    /// The inode of a node that is in the list.
    pub fn inode(&self, number: u32) -> &Arc<CachedInode> {
        // The list only returns the numbers of nodes in it, and these have an inode.
        self[number].inode.as_ref().unwrap_or_else(|| unreachable!("a free node of a list"))
    }

    /// Adds an inode that isn't in the list, as the last one.
    pub fn push(&mut self, inode: &Arc<CachedInode>) {
        let number = self.take_free();
        self[number].inode = Some(Arc::clone(inode));
        inode.set_place(number);
        self.link_last(number);
        self.length += 1;
    }

    /// Removes an inode if it is in the list.
    pub fn remove(&mut self, inode: &CachedInode) {
        let number = inode.place();
        if number == NONE {
            return;
        }
        self.unlink(number);
        let free = self.free;
        let node = &mut self[number];
        node.inode = None;
        node.next = free;
        self.free = number;
        inode.set_place(NONE);
        self.length -= 1;
    }

    /// Makes a node the last one.
    pub fn move_last(&mut self, number: u32) {
        if self.last != number {
            self.unlink(number);
            self.link_last(number);
        }
    }

    /// Sorts the list; inodes with the same key stay in order.
    pub fn sort_by_key(&mut self, key: impl Fn(&CachedInode) -> u64) {
        let mut numbers = Vec::with_capacity(self.length);
        let mut next = self.first();
        while let Some(number) = next {
            numbers.push((key(self.inode(number)), number));
            next = self.next(number);
        }
        // A stable sort.
        numbers.sort_by_key(|(key, _)| *key);
        (self.first, self.last) = (NONE, NONE);
        for (_, number) in numbers {
            self.link_last(number);
        }
    }

    fn take_free(&mut self) -> u32 {
        if self.free != NONE {
            let number = self.free;
            self.free = self[number].next;
            return number;
        }
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE_LENGTH) {
            self.pieces.push(Vec::with_capacity(PIECE_LENGTH));
        }
        let before = (self.pieces.len() - 1) * PIECE_LENGTH;
        let piece = &mut self.pieces[before / PIECE_LENGTH];
        piece.push(ListNode { inode: None, previous: NONE, next: NONE });
        // Fits: there are fewer inodes in memory than inode numbers, which have 32 bits.
        (before + piece.len() - 1) as u32
    }

    fn link_last(&mut self, number: u32) {
        let last = self.last;
        let node = &mut self[number];
        (node.previous, node.next) = (last, NONE);
        if last == NONE {
            self.first = number;
        } else {
            self[last].next = number;
        }
        self.last = number;
    }

    fn unlink(&mut self, number: u32) {
        let ListNode { previous, next, .. } = self[number];
        if previous == NONE {
            self.first = next;
        } else {
            self[previous].next = next;
        }
        if next == NONE {
            self.last = previous;
        } else {
            self[next].previous = previous;
        }
    }
}
