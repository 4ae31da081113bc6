//! Extended attributes: other names and values of the same lengths, in the same places.

use super::Scrambler;
use super::key::Purpose;
use super::names::{NameCounters, NameShape, NameSupply, WrongEnd};
use super::records::count_nonzero;
use crate::error::Result;
use crate::map::runs_of;
use drystone_ext4_format::acl::Acl;
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::xattr::{
    AttributeName, MAGIC, RawAttributeBlockHeader, RawAttributeEntry, VALUE_LENGTH_MAX, block_hash,
    entry_hash, entry_hash_fits, inode_value_hash,
};
use drystone_ext4_format::{ChecksumSeed, InodeNumber, PhysicalBlock};
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::{FromBytes, IntoBytes};

/// Entries and values are padded to multiples of this.
const ALIGNMENT: usize = 4;

/// The end of an encryption context that is different for each file.
const NONCE_BYTES: usize = 16;

/// The lengths of encryption contexts by their version, which is the first byte, and how many bytes in front say how the
/// file is encrypted.
const CONTEXTS: [(u8, usize, usize); 2] = [(1, 28, 4), (2, 40, 8)];

/// More than the number of any cipher, and than any flag of an encryption context.
const CONTEXT_BYTE_MAX: u8 = 0x1f;

/// Names that mean something: where inline data go on, how a file is encrypted, and where its hashes are.
const KEPT_NAMES: [(u8, &[u8]); 3] = [
    (AttributeName::SYSTEM, b"data"),
    (AttributeName::ENCRYPTION, b"c"),
    (AttributeName::VERITY, b"v"),
];

/// An entry that can't be, in place of one that can't be.
const NO_ENTRY: [u8; ALIGNMENT] = [u8::MAX, AttributeName::USER, 0, 0];

/// Where the attributes are.
pub(super) struct AttributePlaceKind {
    /// A number that no other place has.
    pub number: u64,
    /// Where entries start.
    first: usize,
    /// What the offsets of values count from.
    base: usize,
}

/// What becomes of inline data in a value.
pub(super) type InlineRewrite<'a> = dyn FnMut(&mut [u8]) + 'a;

/// An entry that can be read, and where it and its value are.
struct FoundEntry {
    raw: RawAttributeEntry,
    at: usize,
    suffix: Vec<u8>,
    /// Nothing if it isn't within the bytes, or in an inode.
    value: Option<std::ops::Range<usize>>,
}

impl Scrambler<'_, '_> {
    /// Rewrites the attributes after the fields of an inode.
    pub(super) fn attributes_in_inode(
        &self,
        bytes: &mut [u8],
        inode: InodeNumber,
        inline: &mut InlineRewrite<'_>,
    ) -> Result<()> {
        if bytes.first_chunk() != Some(&MAGIC.to_le_bytes()) {
            self.add_unclear(count_nonzero(bytes));
            bytes.fill(0);
            return Ok(());
        }
        let place =
            AttributePlaceKind { number: inode.get().into(), first: ALIGNMENT, base: ALIGNMENT };
        let old = bytes.to_vec();
        bytes.fill(0);
        bytes[..ALIGNMENT].copy_from_slice(&MAGIC.to_le_bytes());
        self.entries(&old, bytes, &place, inline)?;
        Ok(())
    }

    /// Rewrites an attribute block. Its checksum is still to be sealed.
    pub(super) fn attribute_block(&self, bytes: &mut [u8], block: u64) -> Result<()> {
        let header = RawAttributeBlockHeader::read_from_prefix(bytes);
        let Some(header) =
            header.ok().map(|(header, _)| header).filter(|header| header.magic.get() == MAGIC)
        else {
            self.add_unclear(count_nonzero(bytes));
            bytes.fill(0);
            return Ok(());
        };
        let first = size_of::<RawAttributeBlockHeader>();
        // Numbers of blocks follow those of inodes.
        let place = AttributePlaceKind { number: block | 1 << 63, first, base: 0 };
        let old = bytes.to_vec();
        bytes.fill(0);
        let hashes = self.entries(&old, bytes, &place, &mut |value| {
            self.key.stream(Purpose::Value, place.number).letters(value);
        })?;
        let computed =
            |new: bool| block_hash(hashes.iter().map(|pair| if new { pair.1 } else { pair.0 }));
        let limit = |number: u32, limit: u32| if number > limit { u32::MAX } else { number };
        let header = RawAttributeBlockHeader {
            magic: header.magic,
            reference_count: limit(header.reference_count.get(), 1 << 16).into(),
            blocks: limit(header.blocks.get(), 1).into(),
            hash: match header.hash.get() {
                0 => 0.into(),
                stored if stored == computed(false) => computed(true).into(),
                _ => (!computed(true)).into(),
            },
            checksum: 0.into(),
            reserved: [0.into(); 3],
        };
        bytes[..first].copy_from_slice(header.as_bytes());
        Ok(())
    }

    /// Writes other entries with other values. Returns the hashes of entries before and after.
    fn entries(
        &self,
        old: &[u8],
        bytes: &mut [u8],
        place: &AttributePlaceKind,
        inline: &mut InlineRewrite<'_>,
    ) -> Result<Vec<(u32, u32)>> {
        let (found, broken_at) = find_entries(old, place);
        let names = self.new_names(&found, place);
        let mut values = Vec::new();
        for entry in &found {
            let new = match &entry.value {
                Some(range) => self.value(entry, &old[range.clone()], place, inline),
                None => Vec::new(),
            };
            if let Some(range) = &entry.value {
                bytes[range.start..range.start + new.len()].copy_from_slice(&new);
            }
            values.push(new);
        }
        // After the values, which may overlap entries if they are damaged.
        let mut hashes = Vec::new();
        for (entry, value) in found.iter().zip(values) {
            let old_name = (entry.raw.name_index, entry.suffix.clone());
            let suffix = names.get(&old_name).unwrap_or(&entry.suffix);
            let hash = self.new_hash(old, entry, suffix, &value)?;
            hashes.push((entry.raw.hash.get(), hash));
            let raw = self.new_entry(entry, hash);
            let name_at = entry.at + size_of::<RawAttributeEntry>();
            bytes[entry.at..name_at].copy_from_slice(raw.as_bytes());
            bytes[name_at..name_at + suffix.len()].copy_from_slice(suffix);
            bytes[name_at + suffix.len()..next_entry(entry.at, suffix.len()).min(old.len())]
                .fill(0);
        }
        let end = found.last().map_or(place.first, |last| next_entry(last.at, last.suffix.len()));
        if let Some(at) = broken_at {
            self.add_unclear(ALIGNMENT as u64);
            if let Some(bytes) = bytes.get_mut(at..at + ALIGNMENT) {
                bytes.copy_from_slice(&NO_ENTRY);
            }
        } else if let Some(mark) = bytes.get_mut(end..end + ALIGNMENT) {
            mark.fill(0);
        }
        Ok(hashes)
    }

    fn new_entry(&self, entry: &FoundEntry, hash: u32) -> RawAttributeEntry {
        let raw = entry.raw;
        let inode = InodeNumber::new(raw.value_inode.get());
        let has_inode = inode.get() == 0 || self.image.layout.contains_inode(inode);
        let is_possible = entry.value.is_some() || raw.value_size.get() <= VALUE_LENGTH_MAX as u32;
        RawAttributeEntry {
            value_inode: if has_inode { raw.value_inode } else { u32::MAX.into() },
            value_size: if is_possible { raw.value_size } else { u32::MAX.into() },
            hash: hash.into(),
            ..raw
        }
    }

    /// The new names of entries. They are in the order of the old ones, because Linux searches blocks in that order.
    fn new_names(
        &self,
        entries: &[FoundEntry],
        place: &AttributePlaceKind,
    ) -> BTreeMap<(u8, Vec<u8>), Vec<u8>> {
        let mut groups: BTreeMap<(u8, usize), BTreeSet<&[u8]>> = BTreeMap::new();
        for entry in entries {
            let (index, suffix) = (entry.raw.name_index, &entry.suffix[..]);
            if !suffix.is_empty() && !KEPT_NAMES.contains(&(index, suffix)) {
                groups.entry((index, suffix.len())).or_default().insert(suffix);
            }
        }
        let supply = NameSupply::new(self.key, Purpose::AttributeNames, place.number, false);
        let mut counters = NameCounters::default();
        let mut names = BTreeMap::new();
        for ((index, length), olds) in groups {
            let mut news: Vec<Vec<u8>> = olds
                .iter()
                .map(|old| {
                    let end = if old.contains(&0) { WrongEnd::Zero } else { WrongEnd::None };
                    // The length was a byte.
                    let shape = NameShape { length: length as u8, end };
                    let mut name = supply.next(shape, &mut counters);
                    // There are fewer bytes than names only if a zero is among the old ones.
                    name.truncate(length);
                    name
                })
                .collect();
            news.sort();
            names.extend(olds.into_iter().map(|old| (index, old.to_vec())).zip(news));
        }
        names
    }

    fn value(
        &self,
        entry: &FoundEntry,
        old: &[u8],
        place: &AttributePlaceKind,
        inline: &mut InlineRewrite<'_>,
    ) -> Vec<u8> {
        let mut value = old.to_vec();
        let name = (entry.raw.name_index, &entry.suffix[..]);
        let mut random = self.key.stream(Purpose::Value, (place.number, entry.at as u64));
        match name.0 {
            AttributeName::ACL_ACCESS | AttributeName::ACL_DEFAULT
                if name.1.is_empty() && Acl::from_packed(old).is_ok() => {}
            AttributeName::SYSTEM if name == KEPT_NAMES[0] => inline(&mut value),
            AttributeName::ENCRYPTION => self.encryption_context(&mut value, place.number),
            _ => random.letters(&mut value),
        }
        value
    }

    /// Replaces keys and nonces. Files with one key have one afterwards.
    fn encryption_context(&self, value: &mut [u8], place: u64) {
        let Some(head) = context_head(value) else {
            self.key.stream(Purpose::Value, place).letters(value);
            return;
        };
        // Contexts are longer.
        let (policy, nonce) = value.split_at_mut(value.len() - NONCE_BYTES);
        let old = policy.to_vec();
        self.key.stream(Purpose::EncryptionPolicy, &old[..]).fill(&mut policy[head..]);
        self.key.stream(Purpose::EncryptionPolicy, place).fill(nonce);
    }

    fn new_hash(&self, old: &[u8], entry: &FoundEntry, suffix: &[u8], value: &[u8]) -> Result<u32> {
        let stored = entry.raw.hash.get();
        if stored == 0 {
            return Ok(0);
        }
        let wrong = self.key.number(Purpose::AttributeNames, stored) as u32;
        let (old_value, new_value) = match InodeNumber::from_field(entry.raw.value_inode.get()) {
            Some(inode) => {
                let Some((old, new)) = self.value_hashes(inode)? else { return Ok(wrong) };
                (old.to_le_bytes().to_vec(), new.to_le_bytes().to_vec())
            }
            None => {
                let padded = entry.value.clone().map_or(&[][..], |range| {
                    let end = range.start + range.len().next_multiple_of(ALIGNMENT);
                    old.get(range.start..end).unwrap_or(&old[range])
                });
                (padded.to_vec(), value.to_vec())
            }
        };
        let is_right = entry_hash_fits(stored, &entry.suffix, &old_value);
        let computed = entry_hash(suffix, &new_value);
        Ok(if is_right { computed } else { !computed })
    }

    /// The hashes of the old and the new value in an inode of its own.
    pub(super) fn value_hashes(&self, number: InodeNumber) -> Result<Option<(u32, u32)>> {
        let Ok(stored) = self.image.inode(number) else { return Ok(None) };
        let inode = &stored.inode;
        let holds_value = inode.flags.contains(InodeFlags::EA_INODE)
            && inode.has_block_mapping()
            && inode.size_bytes <= VALUE_LENGTH_MAX as u64;
        if !holds_value {
            return Ok(None);
        }
        let block_size = self.image.layout.block_size();
        let length = inode.size_bytes as usize;
        let mut old = vec![0; length.next_multiple_of(block_size)];
        let mut new = old.clone();
        for run in runs_of(self.image, inode)? {
            for by in 0..run.length {
                let logical = run.logical.get().saturating_add(by);
                let from = (logical as usize).saturating_mul(block_size);
                let Some(into) = old.get_mut(from..from + block_size) else { break };
                let block = PhysicalBlock::new(run.physical.get() + u64::from(by));
                if let Ok(bytes) = self.image.read_block(block) {
                    into.copy_from_slice(&bytes);
                }
                let new = &mut new[from..from + block_size];
                new.copy_from_slice(into);
                self.value_block(new, number, logical, length);
            }
        }
        let hash = |seed: ChecksumSeed, value: &[u8]| inode_value_hash(seed, &value[..length]);
        Ok(Some((hash(self.value_seeds.0, &old), hash(self.value_seeds.1, &new))))
    }

    /// Replaces a block of a value in an inode of its own.
    pub(super) fn value_block(
        &self,
        bytes: &mut [u8],
        number: InodeNumber,
        logical: u32,
        value_length: usize,
    ) {
        let start = (logical as usize).saturating_mul(bytes.len());
        let used = value_length.saturating_sub(start).min(bytes.len());
        let (value, rest) = bytes.split_at_mut(used);
        if start == 0 && context_head(value).is_some() {
            self.encryption_context(value, number.get().into());
        } else {
            self.key.stream(Purpose::ValueInode, (number.get(), logical)).letters(value);
        }
        rest.fill(0);
    }
}

/// How many bytes in front of an encryption context say how the file is encrypted, if it is one.
fn context_head(value: &[u8]) -> Option<usize> {
    let (_, _, head) = CONTEXTS
        .iter()
        .find(|(version, length, _)| value.first() == Some(version) && value.len() == *length)?;
    value[..*head].iter().all(|byte| *byte <= CONTEXT_BYTE_MAX).then_some(*head)
}

const fn next_entry(at: usize, suffix_length: usize) -> usize {
    (at + size_of::<RawAttributeEntry>() + suffix_length).next_multiple_of(ALIGNMENT)
}

/// The entries that can be read, and where there is one that can't be.
fn find_entries(bytes: &[u8], place: &AttributePlaceKind) -> (Vec<FoundEntry>, Option<usize>) {
    let (mut entries, mut at) = (Vec::new(), place.first);
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        match rest.first_chunk::<ALIGNMENT>() {
            None | Some([0, 0, 0, 0]) => return (entries, None),
            Some(_) => {}
        }
        let Ok((raw, names)) = RawAttributeEntry::read_from_prefix(rest) else {
            return (entries, Some(at));
        };
        let Some(suffix) = names.get(..usize::from(raw.name_length)) else {
            return (entries, Some(at));
        };
        let suffix = suffix.to_vec();
        let start = place.base + usize::from(raw.value_offset.get());
        let end = start.saturating_add(raw.value_size.get() as usize);
        let has_value = raw.value_inode.get() == 0 && end <= bytes.len() && start < end;
        let value = has_value.then_some(start..end);
        let next = next_entry(at, suffix.len());
        entries.push(FoundEntry { raw, at, suffix, value });
        at = next;
    }
}
