//! The bytes of an inode's record after its fields, where small attributes are kept.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// The bytes of an empty area.
static NOTHING: [u8; 4096] = [0; 4096];

/// The area. Most inodes keep nothing in it; an area of zeros takes no memory.
pub(crate) struct XattrArea {
    /// The bytes; `None` if all are zero.
    bytes: Option<Box<[u8]>>,
    length: u32,
    /// The bytes may differ from the record's.
    is_changed: bool,
    /// The record still holds whatever was there before the inode.
    is_new: bool,
}

impl XattrArea {
    /// The area of a new inode, whose record still holds whatever was there before.
    pub fn new(length: usize) -> XattrArea {
        XattrArea {
            bytes: (length > NOTHING.len()).then(|| vec![0; length].into()),
            // Less than a block.
            length: length as u32,
            is_changed: true,
            is_new: true,
        }
    }

    /// Whether the whole record has to be cleared first: once, for a new inode.
    pub fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }

    /// The area as the record holds it.
    pub fn load(bytes: &[u8]) -> XattrArea {
        let is_nothing = NOTHING.get(..bytes.len()) == Some(bytes);
        XattrArea {
            bytes: (!is_nothing).then(|| bytes.into()),
            // Less than a block.
            length: bytes.len() as u32,
            is_changed: false,
            is_new: false,
        }
    }

    /// Brings the record's area up to date.
    pub fn store(&mut self, record: &mut [u8]) {
        if self.is_changed {
            record.copy_from_slice(self);
            self.is_changed = false;
        }
    }
}

impl Deref for XattrArea {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Some(bytes) => bytes,
            // `new` and `load` give longer areas bytes of their own.
            None => &NOTHING[..self.length as usize],
        }
    }
}

impl DerefMut for XattrArea {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.is_changed = true;
        let length = self.length as usize;
        self.bytes.get_or_insert_with(|| vec![0; length].into())
    }
}

/// A clone counts as changed: storing it overwrites whatever the record holds by then.
impl Clone for XattrArea {
    fn clone(&self) -> XattrArea {
        XattrArea { is_changed: true, bytes: self.bytes.clone(), ..*self }
    }
}

impl fmt::Debug for XattrArea {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("XattrArea").field("length", &self.length).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_record_follows() {
        let mut record = [7; 96];
        let mut area = XattrArea::new(96);
        assert!(area.bytes.is_none() && area.iter().all(|&byte| byte == 0));
        area.store(&mut record);
        assert_eq!(record, [0; 96], "what was there is gone");
        record[5] = 1;
        area.store(&mut record);
        assert_eq!(record[5], 1, "nothing is written that has not changed");
        let before = area.clone();
        area[0] = 9;
        area.store(&mut record);
        assert_eq!((record[0], record[5]), (9, 0));
        assert_eq!(XattrArea::load(&record)[0], 9);
        area = before;
        area.store(&mut record);
        assert_eq!(record, [0; 96]);
    }

    #[test]
    fn long_areas_have_their_bytes() {
        let area = XattrArea::new(NOTHING.len() + 4);
        assert_eq!(area.len(), NOTHING.len() + 4);
    }
}
