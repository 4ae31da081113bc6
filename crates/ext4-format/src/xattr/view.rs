//! Reading the attributes of an inode area or a block.

use super::raw::{
    ALIGNMENT, HEADER_LENGTH, RawAttributeBlockHeader, RawAttributeEntry, entry_length,
};
use super::{
    AttributeName, AttributePlace, MAGIC, REFERENCE_COUNT_MAX, VALUE_LENGTH_MAX, hash, name,
};
use crate::checksum::ChecksumSeed;
use crate::error::{AttributeProblem, Corrupt};
use crate::ids::{InodeNumber, PhysicalBlock};
use drystone_ondisk::crc32c;
use std::mem::offset_of;
use zerocopy::FromBytes;

/// Where the value of an attribute is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Beside the entry.
    Inline(&'a [u8]),
    /// In an inode of its own.
    Inode {
        /// That inode.
        inode: InodeNumber,
        /// Length of the value.
        length: usize,
    },
}

/// One attribute of an area or a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributeEntry<'a> {
    /// Where the entry starts.
    pub offset: usize,
    /// Number of the prefix of its name.
    pub index: u8,
    /// What follows the prefix.
    pub suffix: &'a [u8],
    /// Its value.
    pub value: Value<'a>,
    /// Where the value starts, though a value without bytes need not be there.
    pub value_start: usize,
    /// The stored hash; 0 means none.
    pub hash: u32,
}

impl AttributeEntry<'_> {
    /// The name in its owned form.
    #[must_use]
    pub fn name(&self) -> AttributeName {
        AttributeName { index: self.index, suffix: self.suffix.to_vec() }
    }

    /// The full name; `None` for attributes that programs can't name.
    #[must_use]
    pub fn full_name(&self) -> Option<Vec<u8>> {
        name::full(self.index, self.suffix)
    }

    /// Length of the value.
    #[must_use]
    pub const fn value_length(&self) -> usize {
        match self.value {
            Value::Inline(bytes) => bytes.len(),
            Value::Inode { length, .. } => length,
        }
    }

    /// Whether the hash of the entry, with a value beside it, is another number than 0.
    #[must_use]
    pub fn has_hash(&self) -> bool {
        let Value::Inline(value) = self.value else { return true };
        !hash::entry_hash_fits(0, self.suffix, value)
    }
}

/// An entry with its surroundings.
struct FoundAttribute<'a> {
    entry: AttributeEntry<'a>,
    next: usize,
}

/// The attributes of an inode area or a block, all entries and values known to be in bounds.
#[derive(Debug, Clone, Copy)]
pub struct XattrView<'a> {
    bytes: &'a [u8],
    /// Where entries start.
    first: usize,
    /// What value offsets count from.
    base: usize,
}

impl<'a> XattrView<'a> {
    /// Checks the area of an inode: the bytes after its last fixed field.
    ///
    /// An area that is too short or without the magic number holds no attributes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_in_inode(bytes: &'a [u8], place: AttributePlace) -> Result<Self, Corrupt> {
        let magic = bytes.first_chunk::<4>().map(|raw| u32::from_le_bytes(*raw));
        if magic != Some(MAGIC) || bytes.len() < 2 * ALIGNMENT {
            return Ok(Self { bytes: &[], first: 0, base: 0 });
        }
        let area = Self { bytes, first: ALIGNMENT, base: ALIGNMENT };
        area.check_entries(place)?;
        Ok(area)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Bytes of the area that holds them.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.bytes.len()
    }

    /// All attributes in stored order.
    pub fn iter(&self) -> impl Iterator<Item = AttributeEntry<'a>> + use<'a> {
        let area = *self;
        let mut offset = area.first;
        std::iter::from_fn(move || {
            let found = area.entry(offset).ok()??;
            offset = found.next;
            Some(found.entry)
        })
    }

    /// The attribute of this name.
    #[must_use]
    pub fn find(&self, index: u8, suffix: &[u8]) -> Option<AttributeEntry<'a>> {
        self.iter().find(|entry| entry.index == index && entry.suffix == suffix)
    }

    /// Compares the stored hash of an entry with its name and value, given the hash of the value where that lies
    /// in an inode. A value beside it counts with the bytes past its end, up to a multiple of four. No hash is
    /// fine.
    ///
    /// # Errors
    /// The stored hash is neither that over unsigned nor over signed characters.
    pub fn verify_hash(
        &self,
        entry: &AttributeEntry<'_>,
        inode_value_hash: u32,
        place: AttributePlace,
    ) -> Result<(), Corrupt> {
        let words = inode_value_hash.to_le_bytes();
        let value = match entry.value {
            Value::Inline([]) => &[],
            Value::Inline(value) => {
                let end = entry.value_start + value.len().next_multiple_of(ALIGNMENT);
                self.bytes.get(entry.value_start..end).unwrap_or(value)
            }
            Value::Inode { .. } => &words[..],
        };
        if entry.hash == 0 || hash::entry_hash_fits(entry.hash, entry.suffix, value) {
            return Ok(());
        }
        let computed = hash::entry_hash(entry.suffix, value);
        let problem = AttributeProblem::EntryHash { stored: entry.hash, computed };
        Err(place.corrupt(entry.offset, problem))
    }

    /// The entry at `offset`; `None` at the end.
    fn entry(&self, offset: usize) -> Result<Option<FoundAttribute<'a>>, AttributeProblem> {
        let too_long = AttributeProblem::EntriesTooLong;
        // An area that holds nothing has no end mark either.
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let rest = self.bytes.get(offset..).ok_or(too_long)?;
        if *rest.first_chunk::<4>().ok_or(too_long)? == [0; 4] {
            return Ok(None);
        }
        let (raw, names) = RawAttributeEntry::ref_from_prefix(rest).map_err(|_| too_long)?;
        let suffix = names.get(..usize::from(raw.name_length)).ok_or(too_long)?;
        let length = raw.value_size.get() as usize;
        let start = self.base + usize::from(raw.value_offset.get());
        let value = match InodeNumber::from_field(raw.value_inode.get()) {
            Some(inode) if raw.value_offset.get() != 0 || length > VALUE_LENGTH_MAX => {
                return Err(AttributeProblem::InodeValue { inode });
            }
            Some(inode) => Value::Inode { inode, length },
            None if length == 0 => Value::Inline(&[]),
            None => {
                let end = start.saturating_add(length.next_multiple_of(ALIGNMENT));
                let bounds = AttributeProblem::ValueBounds { start, length };
                let padded = self.bytes.get(start..end).ok_or(bounds)?;
                Value::Inline(&padded[..length])
            }
        };
        let (index, hash) = (raw.name_index, raw.hash.get());
        let entry = AttributeEntry { offset, index, suffix, value, value_start: start, hash };
        Ok(Some(FoundAttribute { entry, next: offset + entry_length(suffix.len()) }))
    }

    fn check_entries(&self, place: AttributePlace) -> Result<(), Corrupt> {
        let corrupt = |offset, problem| place.corrupt(offset, problem);
        let mut offset = self.first;
        let mut values = Vec::new();
        while let Some(found) = self.entry(offset).map_err(|e| corrupt(offset, e))? {
            if let Value::Inline(value) = found.entry.value
                && !value.is_empty()
            {
                let length = value.len().next_multiple_of(ALIGNMENT);
                values.push((found.entry.value_start, length, offset));
            }
            offset = found.next;
        }
        let mut names: Vec<_> = self.iter().map(|e| (e.index, e.suffix, e.offset)).collect();
        names.sort_unstable();
        if let Some(pair) =
            names.windows(2).find(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1))
        {
            return Err(corrupt(pair[1].2, AttributeProblem::Duplicate));
        }
        let entries_end = offset + ALIGNMENT;
        values.sort_unstable();
        let mut free_from = entries_end;
        for (start, length, entry) in values {
            if start < entries_end {
                return Err(corrupt(entry, AttributeProblem::ValueBounds { start, length }));
            }
            if start < free_from {
                return Err(corrupt(entry, AttributeProblem::ValueOverlap { start }));
            }
            free_from = start + length;
        }
        Ok(())
    }
}

/// An attribute block: its attributes, and what its header says.
#[derive(Debug, Clone, Copy)]
pub struct AttributesBlock<'a> {
    header: &'a RawAttributeBlockHeader,
    attributes: XattrView<'a>,
}

impl<'a> AttributesBlock<'a> {
    /// Checks an attribute block; the checksum is [`verify_block`]'s task, because it is stale
    /// while a transaction holds the block.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(bytes: &'a [u8], place: AttributePlace) -> Result<Self, Corrupt> {
        let corrupt = |problem| place.corrupt(0, problem);
        let short = AttributeProblem::Length { length: bytes.len() };
        let (header, _) =
            RawAttributeBlockHeader::ref_from_prefix(bytes).map_err(|_| corrupt(short))?;
        if header.magic.get() != MAGIC {
            return Err(corrupt(AttributeProblem::Magic { found: header.magic.get() }));
        }
        if header.blocks.get() != 1 {
            return Err(corrupt(AttributeProblem::Blocks { found: header.blocks.get() }));
        }
        let count = header.reference_count.get();
        if count == 0 || count > REFERENCE_COUNT_MAX {
            return Err(corrupt(AttributeProblem::ReferenceCount { found: count }));
        }
        let attributes = XattrView { bytes, first: HEADER_LENGTH, base: 0 };
        attributes.check_entries(place)?;
        Ok(Self { header, attributes })
    }

    /// The attributes.
    #[must_use]
    pub const fn attributes(&self) -> XattrView<'a> {
        self.attributes
    }

    /// How many inodes share the block.
    #[must_use]
    pub fn reference_count(&self) -> u32 {
        self.header.reference_count.get()
    }

    /// The stored hash of all entries; 0 means that the block can't be shared.
    #[must_use]
    pub fn hash(&self) -> u32 {
        self.header.hash.get()
    }
}

const CHECKSUM_AT: usize = offset_of!(RawAttributeBlockHeader, checksum);

fn compute(bytes: &[u8], seed: ChecksumSeed, block: PhysicalBlock) -> Option<(u32, u32)> {
    let (before, rest) = bytes.split_at_checked(CHECKSUM_AT)?;
    let (stored, after) = rest.split_first_chunk::<4>()?;
    let register = crc32c(seed.append(&block.get().to_le_bytes()), before);
    Some((u32::from_le_bytes(*stored), crc32c(crc32c(register, &[0; 4]), after)))
}

/// Compares the checksum of an attribute block. Does nothing where the image has none.
///
/// # Errors
/// The checksum differs.
pub fn verify_block(
    bytes: &[u8],
    checksum: Option<ChecksumSeed>,
    inode: InodeNumber,
    block: PhysicalBlock,
) -> Result<(), Corrupt> {
    match checksum.and_then(|seed| compute(bytes, seed, block)) {
        Some((stored, computed)) if stored != computed => {
            Err(Corrupt::AttributeChecksum { inode, block, stored, computed })
        }
        _ => Ok(()),
    }
}

/// Stores the checksum of an attribute block. Does nothing where the image has none.
pub fn seal_block(bytes: &mut [u8], checksum: Option<ChecksumSeed>, block: PhysicalBlock) {
    if let Some((_, computed)) = checksum.and_then(|seed| compute(bytes, seed, block)) {
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&computed.to_le_bytes());
    }
}
