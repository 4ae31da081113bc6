//! Building the attributes of an inode area or a block.

use super::raw::{
    ALIGNMENT, HEADER_LENGTH, RawAttributeBlockHeader, RawAttributeEntry, entry_length,
};
use super::view::{Value, XattrView};
use super::{AttributeName, MAGIC, NAME_LENGTH_MAX, hash};
use crate::ids::InodeNumber;
use std::collections::BTreeMap;
use thiserror::Error;
use zerocopy::{FromBytes, IntoBytes};

/// The attributes don't fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("attributes need {needed} bytes, there are {available}")]
pub struct NoAttributeRoom {
    /// Bytes that all attributes need.
    pub needed: usize,
    /// Bytes that there are.
    pub available: usize,
}

/// The value of an attribute to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// Stored beside the entry.
    Inline(Vec<u8>),
    /// Stored in an inode of its own.
    Inode {
        /// That inode.
        inode: InodeNumber,
        /// Length of the value.
        length: u32,
        /// Hash of name and value that the entry stores.
        entry_hash: u32,
    },
}

impl AttributeValue {
    /// A value in an inode of its own, under the name that its entry will have.
    #[must_use]
    pub fn in_inode(
        name: &AttributeName,
        inode: InodeNumber,
        length: u32,
        value_hash: u32,
    ) -> Self {
        let entry_hash = hash::inode_value_entry_hash(&name.suffix, value_hash);
        Self::Inode { inode, length, entry_hash }
    }

    /// Bytes that the value takes beside the entries.
    fn stored_length(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len().next_multiple_of(ALIGNMENT),
            Self::Inode { .. } => 0,
        }
    }
}

/// One attribute of a set.
pub type Attribute<'a> = (&'a AttributeName, &'a AttributeValue);

/// The attributes of one inode area or block, open for changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttributeSet {
    attributes: BTreeMap<AttributeName, AttributeValue>,
}

impl AttributeSet {
    /// No attributes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The attributes of an area or block.
    #[must_use]
    pub fn read(attributes: &XattrView<'_>) -> Self {
        let owned = attributes.iter().map(|entry| {
            let value = match entry.value {
                Value::Inline(bytes) => AttributeValue::Inline(bytes.to_vec()),
                Value::Inode { inode, length } => AttributeValue::Inode {
                    inode,
                    // The view has bounded the length.
                    length: length as u32,
                    entry_hash: entry.hash,
                },
            };
            (entry.name(), value)
        });
        Self { attributes: owned.collect() }
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty()
    }

    /// The value under a name.
    #[must_use]
    pub fn get(&self, name: &AttributeName) -> Option<&AttributeValue> {
        self.attributes.get(name)
    }

    /// Adds or replaces an attribute and returns the value it had.
    ///
    /// # Panics
    /// If the name is longer than 255 bytes.
    pub fn set(&mut self, name: AttributeName, value: AttributeValue) -> Option<AttributeValue> {
        assert!(name.suffix.len() <= NAME_LENGTH_MAX, "attribute names are bounded");
        self.attributes.insert(name, value)
    }

    /// Removes an attribute and returns its value.
    pub fn remove(&mut self, name: &AttributeName) -> Option<AttributeValue> {
        self.attributes.remove(name)
    }

    /// All attributes in stored order.
    pub fn iter(&self) -> impl Iterator<Item = Attribute<'_>> {
        self.attributes.iter()
    }

    /// Bytes of entries and values, without header or end mark.
    fn body_length(&self) -> usize {
        let length =
            |(name, value): Attribute<'_>| entry_length(name.suffix.len()) + value.stored_length();
        self.iter().map(length).sum()
    }

    /// Bytes that the set needs in an inode, magic number and end mark included.
    #[must_use]
    pub fn length_in_inode(&self) -> usize {
        if self.is_empty() { 0 } else { 2 * ALIGNMENT + self.body_length() }
    }

    /// Bytes that the set needs in a block, header and end mark included.
    #[must_use]
    pub fn length_in_block(&self) -> usize {
        HEADER_LENGTH + ALIGNMENT + self.body_length()
    }

    /// Packs the set into the area of an inode. An empty set leaves zeros.
    ///
    /// # Errors
    /// It does not fit; the bytes are unchanged.
    pub fn encode_in_inode(&self, bytes: &mut [u8]) -> Result<(), NoAttributeRoom> {
        check_room(self.length_in_inode(), bytes.len())?;
        bytes.fill(0);
        if !self.is_empty() {
            bytes[..ALIGNMENT].copy_from_slice(&MAGIC.to_le_bytes());
            self.encode_entries(&mut bytes[ALIGNMENT..], 0, false);
        }
        Ok(())
    }

    /// Packs the set into a block, its checksum still to be sealed.
    ///
    /// Equal sets give equal blocks but for count and checksum, so that inodes can share one.
    ///
    /// # Errors
    /// It does not fit; the bytes are unchanged.
    pub fn encode_block(
        &self,
        bytes: &mut [u8],
        reference_count: u32,
    ) -> Result<(), NoAttributeRoom> {
        check_room(self.length_in_block(), bytes.len())?;
        bytes.fill(0);
        let hashes = self.encode_entries(bytes, HEADER_LENGTH, true);
        let header = RawAttributeBlockHeader {
            magic: MAGIC.into(),
            reference_count: reference_count.into(),
            blocks: 1.into(),
            hash: hash::block_hash(hashes).into(),
            checksum: 0.into(),
            reserved: [0.into(); 3],
        };
        bytes[..HEADER_LENGTH].copy_from_slice(header.as_bytes());
        Ok(())
    }

    /// Writes entries from `first` on and values from the end; value offsets count from the start
    /// of the slice. Returns the hashes of the entries.
    fn encode_entries(&self, bytes: &mut [u8], first: usize, in_block: bool) -> Vec<u32> {
        let mut entry_at = first;
        // Inode sizes and block sizes are multiples of 4, but the area's start need not leave one.
        let mut values_from = bytes.len() / ALIGNMENT * ALIGNMENT;
        let mut hashes = Vec::with_capacity(self.attributes.len());
        for (name, value) in self.iter() {
            let (value_offset, value_inode, value_size, hash) = match value {
                AttributeValue::Inline(value) => {
                    values_from -= value.len().next_multiple_of(ALIGNMENT);
                    bytes[values_from..values_from + value.len()].copy_from_slice(value);
                    let offset = if value.is_empty() { 0 } else { values_from };
                    // Only blocks are shared, so only their hashes are used.
                    let hash = if in_block { hash::entry_hash(&name.suffix, value) } else { 0 };
                    (offset, 0, value.len() as u32, hash)
                }
                AttributeValue::Inode { inode, length, entry_hash } => {
                    (0, inode.get(), *length, *entry_hash)
                }
            };
            let raw = RawAttributeEntry {
                name_length: name.suffix.len() as u8,
                name_index: name.index,
                // A value starts at least 4 bytes before the end of at most 64 KiB.
                value_offset: (value_offset as u16).into(),
                value_inode: value_inode.into(),
                value_size: value_size.into(),
                hash: hash.into(),
            };
            let name_at = entry_at + size_of::<RawAttributeEntry>();
            bytes[entry_at..name_at].copy_from_slice(raw.as_bytes());
            bytes[name_at..name_at + name.suffix.len()].copy_from_slice(&name.suffix);
            entry_at += entry_length(name.suffix.len());
            hashes.push(hash);
        }
        hashes
    }
}

fn check_room(needed: usize, length: usize) -> Result<(), NoAttributeRoom> {
    let available = length / ALIGNMENT * ALIGNMENT;
    if needed > available { Err(NoAttributeRoom { needed, available }) } else { Ok(()) }
}

/// Stores how many inodes share a block; its checksum is still to be sealed.
pub fn set_reference_count(bytes: &mut [u8], count: u32) {
    if let Ok((header, _)) = RawAttributeBlockHeader::mut_from_prefix(bytes) {
        header.reference_count = count.into();
    }
}
