//! The fields of an image: where each lies, by the declarations of the formats.

use drystone_ext4_format::dir::{DirectoryBlock, DirectoryLayout, RawRecordHeader, RawTail};
use drystone_ext4_format::extent::{EXTENT_FIELDS, HEADER_FIELDS, INDEX_FIELDS};
use drystone_ext4_format::htree::{IndexKind, RawCountLimit, RawIndexEntry, RawIndexRoot};
use drystone_ext4_format::inode::{self, Inode, InodeFlags};
use drystone_ext4_format::mmp::RawMmp;
use drystone_ext4_format::orphan_file::RawOrphanTail;
use drystone_ext4_format::quota::{RawQuotaHeader, RawQuotaInfo};
use drystone_ext4_format::superblock::{self, SUPERBLOCK_OFFSET_BYTES};
use drystone_ext4_format::xattr::{MAGIC, RawAttributeBlockHeader, RawAttributeEntry};
use drystone_ext4_format::{InodeNumber, group};
use drystone_jbd2_format::{BlockHeader, RawSuperblock as RawJournalSuperblock};
use drystone_ondisk::{Field, bitmap};
use drystone_testkit::metadata_map::{BlockContent, MetadataMap};
use fastrand::Rng;
use std::collections::HashMap;

/// Bytes of the fields of an inode that all revisions have.
const INODE_BASE: usize = 128;
/// Bytes of a small group descriptor.
const DESCRIPTOR_BASE: usize = 32;
/// Entries of a node, records of a block, attributes that are damaged: from the front.
const ENTRIES: usize = 4;
/// Fields with the same label.
const ALIKE: usize = 3;
/// Words of a quota block and pointers of an indirect block.
const WORDS: usize = 12;

/// One field of one structure.
#[derive(Clone, Debug)]
pub struct Target {
    /// Structure, place and field, as the table of accepted differences names them.
    pub label: String,
    pub block: u64,
    pub content: BlockContent,
    /// In the block.
    pub offset: usize,
    pub length: usize,
    pub big_endian: bool,
}

impl Target {
    /// The structure's name.
    pub fn structure(&self) -> &str {
        self.label.split([' ', '/']).next().unwrap_or_default()
    }

    /// The number that the field has in its block.
    pub fn read(&self, block: &[u8]) -> u64 {
        let bytes = &block[self.offset..self.offset + self.length];
        let join = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self.big_endian {
            true => bytes.iter().fold(0, join),
            false => bytes.iter().rev().fold(0, join),
        }
    }

    pub fn write(&self, block: &mut [u8], value: u64) {
        let bytes = &mut block[self.offset..self.offset + self.length];
        bytes.copy_from_slice(&value.to_le_bytes()[..self.length]);
        if self.big_endian {
            bytes.reverse();
        }
    }

    /// Numbers that the field may be damaged to: borders, neighbours, single bits, and places that
    /// belong to others.
    pub fn values(&self, map: &MetadataMap, random: &mut Rng) -> Vec<u64> {
        let old = self.read(&map.block(self.block));
        let bits = 8 * self.length as u32;
        let mask = u64::MAX >> (64 - bits);
        let layout = map.layout();
        let inodes = u64::from(layout.inodes_count());
        let blocks = layout.blocks_count();
        let mut values = vec![0, 1, mask, old.wrapping_add(1), old.wrapping_sub(1)];
        values.extend((0..bits).map(|bit| old ^ 1 << bit));
        values.extend([blocks, blocks - 1, inodes, inodes + 1, 2, 8, 11, 12, b'/'.into()]);
        let places: Vec<u64> = map.blocks.keys().copied().collect();
        values.extend((0..3).map(|_| places[random.usize(..places.len())]));
        values.iter_mut().for_each(|value| *value &= mask);
        values.retain(|value| *value != old);
        values.sort_unstable();
        values.dedup();
        random.shuffle(&mut values);
        values
    }
}

/// All fields of all structures.
pub fn all(map: &MetadataMap) -> Vec<Target> {
    let mut targets = Vec::new();
    for (&block, &content) in &map.blocks {
        Finder { map, block, content, bytes: map.block(block), targets: &mut targets }.find();
    }
    // Many blocks have one label: some of them stand for all.
    let mut seen: HashMap<String, usize> = HashMap::new();
    targets.retain(|target| {
        let count = seen.entry(target.label.clone()).or_default();
        *count += 1;
        *count <= ALIKE
    });
    targets
}

struct Finder<'a> {
    map: &'a MetadataMap,
    block: u64,
    content: BlockContent,
    bytes: Vec<u8>,
    targets: &'a mut Vec<Target>,
}

impl Finder<'_> {
    fn push(&mut self, structure: &str, offset: usize, length: usize, field: &str) {
        self.targets.push(Target {
            label: format!("{structure}/{field}"),
            block: self.block,
            content: self.content,
            offset,
            length,
            big_endian: self.content == BlockContent::JournalSuperblock,
        });
    }

    /// Adds fields; long ones in pieces of one word, of which the first and the last are taken.
    fn fields(&mut self, structure: &str, start: usize, fields: &[Field]) {
        for field in fields {
            let at = start + field.offset;
            if at + field.length > self.bytes.len() {
                continue;
            }
            if field.length <= 8 {
                self.push(structure, at, field.length, field.name);
                continue;
            }
            self.push(structure, at, 4, &format!("{}[0]", field.name));
            let last = field.length - 4;
            self.push(structure, at + last, 4, &format!("{}[{}]", field.name, last / 4));
        }
    }

    fn find(&mut self) {
        match self.content {
            BlockContent::Superblock => {
                let start = SUPERBLOCK_OFFSET_BYTES as usize;
                let start = if self.block == 0 { start } else { 0 };
                self.fields("superblock", start, superblock::FIELDS);
            }
            BlockContent::Descriptors => self.descriptors(),
            BlockContent::BlockBitmap(group) => {
                let count = self.map.layout().group_cluster_count(group) as usize;
                self.bitmap(&format!("block-bitmap {group}"), count);
            }
            BlockContent::InodeBitmap(group) => {
                let count = self.map.layout().inodes_per_group() as usize;
                self.bitmap(&format!("inode-bitmap {group}"), count);
            }
            BlockContent::InodeTable(first) => self.inodes(first),
            BlockContent::ExtentNode(inode, _) => {
                self.extents(&format!("extent-node {inode}"), 0);
            }
            BlockContent::IndirectBlock => {
                for word in 0..WORDS {
                    self.push("indirect-block", word * 4, 4, &format!("pointer[{word}]"));
                }
            }
            BlockContent::Directory(inode, _) => self.directory(inode),
            BlockContent::Attributes => {
                self.fields("attribute-block", 0, RawAttributeBlockHeader::FIELDS);
                let header = size_of::<RawAttributeBlockHeader>();
                self.attributes("attribute-block", header, 0);
            }
            BlockContent::OrphanFile(..) => {
                let tail = self.bytes.len() - size_of::<RawOrphanTail>();
                self.push("orphan-file", 0, 4, "slot[0]");
                self.push("orphan-file", tail - 4, 4, "slot[last]");
                self.fields("orphan-file", tail, RawOrphanTail::FIELDS);
            }
            BlockContent::Quota => self.quota(),
            BlockContent::Mmp => self.fields("mmp", 0, RawMmp::FIELDS),
            BlockContent::JournalSuperblock => {
                self.fields("journal", 0, BlockHeader::FIELDS);
                self.fields("journal", 0, &RawJournalSuperblock::FIELDS[1..]);
            }
            // e2fsck looks at backups only where the primary ones fail, and at an empty log never.
            BlockContent::SuperblockBackup
            | BlockContent::DescriptorsBackup
            | BlockContent::Log => {}
        }
    }

    fn descriptors(&mut self) {
        let layout = *self.map.layout();
        let block = drystone_ext4_format::PhysicalBlock::new(self.block);
        for number in layout.groups() {
            let Some((at, offset)) = layout.descriptor_location(number) else { continue };
            if at != block {
                continue;
            }
            let name = format!("descriptor {number}");
            self.fields(&name, offset, group::FIELDS);
            if layout.descriptor_size() > DESCRIPTOR_BASE {
                self.fields(&name, offset + DESCRIPTOR_BASE, group::HIGH_FIELDS);
            }
        }
    }

    /// A bit of each kind.
    fn bitmap(&mut self, structure: &str, count: usize) {
        let bits = [
            ("first", Some(0)),
            ("free", bitmap::find_zero(&self.bytes, 0..count)),
            ("last", Some(count - 1)),
            ("padding", Some(count).filter(|bit| *bit < self.bytes.len() * 8)),
            ("end", Some(self.bytes.len() * 8 - 1)),
        ];
        for (name, bit) in bits {
            if let Some(bit) = bit {
                self.push(structure, bit / 8, 1, name);
            }
        }
    }

    fn inodes(&mut self, first: InodeNumber) {
        let layout = *self.map.layout();
        let size = layout.inode_size();
        for index in 0..self.bytes.len() / size {
            let number = InodeNumber::new(first.get() + index as u32);
            let start = index * size;
            let bytes = self.bytes[start..start + size].to_vec();
            let is_empty = bytes.iter().all(|&byte| byte == 0);
            // One unused inode stands for all.
            let is_stand_in = number.get() == layout.inodes_count() - 1;
            if is_empty && number > layout.first_inode() && !is_stand_in {
                continue;
            }
            let name = format!("{} {number}", self.kind_of_inode(number));
            let is_area = |field: &&Field| field.name != "block";
            let fields: Vec<Field> = inode::FIELDS.iter().filter(is_area).copied().collect();
            self.fields(&name, start, &fields);
            self.fields(
                &name,
                start + INODE_BASE,
                if size > INODE_BASE { inode::EXTRA_FIELDS } else { &[] },
            );
            let area = start + inode::FIELDS.iter().find(|f| f.name == "block").unwrap().offset;
            let Ok(inode) = Inode::read(&bytes, number, &layout) else { continue };
            if inode.flags.contains(InodeFlags::EXTENTS) {
                self.extents(&name, area);
            } else if inode.flags.contains(InodeFlags::INLINE_DATA) && inode.is_directory() {
                self.push(&name, area, 4, "parent");
                self.records(&name, area + 4, inode::BLOCK_AREA_BYTES - 4);
            } else {
                for pointer in 0..inode::BLOCK_AREA_BYTES / 4 {
                    self.push(&name, area + pointer * 4, 4, &format!("block[{pointer}]"));
                }
            }
            let attributes = start + inode.attribute_area(&layout).start;
            if self.word(attributes) == MAGIC {
                self.push(&name, attributes, 4, "attributes.magic");
                self.attributes(&name, attributes + 4, attributes + 4);
            }
        }
    }

    /// Inodes that no directory names are a kind of their own.
    fn kind_of_inode(&self, number: InodeNumber) -> &'static str {
        let superblock = &self.map.superblock;
        let serves = [superblock.project_quota_inode(), superblock.orphan_file_inode()];
        let is_reserved = number < self.map.layout().first_inode() && number != InodeNumber::ROOT;
        let holds_value = Inode::read(&self.map.inode_bytes(number), number, self.map.layout())
            .is_ok_and(|inode| inode.flags.contains(InodeFlags::EA_INODE));
        match is_reserved || serves.contains(&Some(number)) || holds_value {
            true => "hidden-inode",
            false => "inode",
        }
    }

    fn word(&self, at: usize) -> u32 {
        self.bytes.get(at..at + 4).map_or(0, |raw| u32::from_le_bytes(raw.try_into().unwrap()))
    }

    fn half_word(&self, at: usize) -> usize {
        usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))
    }

    fn extents(&mut self, structure: &str, start: usize) {
        let part = |fields: &[Field], name: &str| -> Vec<(String, Field)> {
            fields.iter().map(|field| (format!("{name}.{}", field.name), *field)).collect()
        };
        let entries = self.half_word(start + 2);
        let is_leaf = self.half_word(start + 6) == 0;
        for (name, field) in part(HEADER_FIELDS, "extents") {
            self.push(structure, start + field.offset, field.length, &name);
        }
        let (fields, kind) =
            if is_leaf { (EXTENT_FIELDS, "extent") } else { (INDEX_FIELDS, "index") };
        // The first ones, and the last.
        for entry in (0..entries).filter(|entry| *entry < ENTRIES || entry + 1 == entries) {
            let at = start + 12 + 12 * entry;
            for (name, field) in part(fields, &format!("{kind}[{entry}]")) {
                self.push(structure, at + field.offset, field.length, &name);
            }
        }
    }

    fn attributes(&mut self, structure: &str, start: usize, base: usize) {
        let mut at = start;
        for number in 0..ENTRIES {
            if self.word(at) == 0 {
                self.push(structure, at, 4, "attributes.end");
                return;
            }
            for field in RawAttributeEntry::FIELDS {
                let name = format!("attribute[{number}].{}", field.name);
                self.push(structure, at + field.offset, field.length, &name);
            }
            let header = size_of::<RawAttributeEntry>();
            self.push(structure, at + header, 1, &format!("attribute[{number}].name"));
            let value = base + self.half_word(at + 2);
            if self.word(at + 8) > 0 && self.word(at + 4) == 0 {
                self.push(structure, value, 1, &format!("attribute[{number}].value"));
            }
            at += (header + usize::from(self.bytes[at])).next_multiple_of(4);
        }
    }

    fn directory(&mut self, inode: InodeNumber) {
        let is_indexed = self.map.layout().contains_inode(inode)
            && Inode::read(&self.map.inode_bytes(inode), inode, self.map.layout())
                .is_ok_and(|inode| inode.flags.contains(InodeFlags::INDEX));
        match IndexKind::of(&self.bytes).filter(|_| is_indexed) {
            Some(kind) => {
                let name = format!("index-{kind:?} {inode}").to_lowercase();
                let mut start = size_of::<RawRecordHeader>();
                self.fields(&name, 0, RawRecordHeader::FIELDS);
                if kind == IndexKind::Root {
                    start = size_of::<RawIndexRoot>();
                    let dotdot = RawIndexRoot::FIELDS.iter().find(|f| f.name == "dotdot").unwrap();
                    let named = format!("{name}/dotdot");
                    self.fields(&named, dotdot.offset, RawRecordHeader::FIELDS);
                    let plain = |field: &&Field| !matches!(field.name, "dot" | "dotdot");
                    let plain: Vec<Field> =
                        RawIndexRoot::FIELDS.iter().filter(plain).copied().collect();
                    self.fields(&name, 0, &plain);
                }
                self.fields(&name, start, RawCountLimit::FIELDS);
                self.push(&name, start + 4, 4, "entry[0].block");
                for entry in 1..ENTRIES {
                    for field in RawIndexEntry::FIELDS {
                        let at = start + entry * size_of::<RawIndexEntry>() + field.offset;
                        self.push(
                            &name,
                            at,
                            field.length,
                            &format!("entry[{entry}].{}", field.name),
                        );
                    }
                }
            }
            None => {
                let name = format!("directory {inode}");
                self.records(&name, 0, self.bytes.len());
                if self.map.layout().checksum_seed().is_some() {
                    let tail = self.bytes.len() - size_of::<RawTail>();
                    let fields = RawTail::FIELDS.iter().map(|field| (field, tail + field.offset));
                    for (field, at) in fields.collect::<Vec<_>>() {
                        self.push(&name, at, field.length, &format!("tail.{}", field.name));
                    }
                }
            }
        }
    }

    fn records(&mut self, structure: &str, start: usize, length: usize) {
        let layout = DirectoryLayout {
            file_type: true,
            checksum: None,
            encrypted: false,
            casefolded: false,
            inode_last: InodeNumber::new(self.map.layout().inodes_count()),
        };
        let bytes = self.bytes[start..start + length].to_vec();
        let entries = DirectoryBlock::trusted(&bytes, &layout);
        for (number, entry) in entries.entries().enumerate().take(ENTRIES) {
            let at = start + entry.offset;
            for field in RawRecordHeader::FIELDS {
                let name = format!("record[{number}].{}", field.name);
                self.push(structure, at + field.offset, field.length, &name);
            }
            let name = at + size_of::<RawRecordHeader>();
            self.push(structure, name, 1, &format!("record[{number}].name[0]"));
            self.push(
                structure,
                name + entry.name.len() - 1,
                1,
                &format!("record[{number}].name[last]"),
            );
        }
    }

    fn quota(&mut self) {
        let magic = self.word(4) == 1;
        if magic {
            self.fields("quota", 0, RawQuotaHeader::FIELDS);
            self.fields("quota", size_of::<RawQuotaHeader>(), RawQuotaInfo::FIELDS);
        }
        let words: Vec<usize> =
            (0..self.bytes.len() / 4).filter(|word| self.word(word * 4) != 0).take(WORDS).collect();
        for word in words.into_iter().filter(|word| !magic || *word >= 8) {
            self.push("quota", word * 4, 4, &format!("word[{word}]"));
        }
    }
}
