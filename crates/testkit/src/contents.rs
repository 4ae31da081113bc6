//! What a sound image holds, read by the definitions of the formats alone: names, and the bytes of files.
//! For tests that compare what two programs make of one damaged image.

use crate::metadata_map::MetadataMap;
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::dir::{DirectoryBlock, DirectoryLayout};
use drystone_ext4_format::extent::{ExtentNode, NodePlace};
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::inline::InlineDirectory;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_ext4_format::xattr::{AttributeName, AttributePlace, Value, XattrView};
use drystone_ext4_format::{InodeNumber, PhysicalBlock, block_map};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

/// A file, a link, or a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileContent {
    /// Type and permissions.
    pub mode: u16,
    /// Its size.
    pub size_bytes: u64,
    /// A hash of each block that holds more than zeros, by its place in the file; of bytes within the
    /// inode at place 0.
    pub blocks: BTreeMap<u64, u64>,
}

/// All names and files of an image.
#[derive(Clone, Debug, Default)]
pub struct ImageContents {
    /// The inode of each path.
    pub names: BTreeMap<Vec<u8>, u32>,
    /// The files that have a name.
    pub files: BTreeMap<u32, FileContent>,
    /// Bytes of a block.
    pub block_size: u64,
}

impl ImageContents {
    /// Reads an image; nothing if it isn't sound enough.
    #[must_use]
    pub fn of(device: MemoryDevice) -> Option<ImageContents> {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes).ok()?;
        let superblock = Superblock::check(&bytes).ok()?;
        let map = MetadataMap { device, superblock, blocks: BTreeMap::new() };
        let block_size = map.layout().block_size() as u64;
        let mut contents = ImageContents { block_size, ..ImageContents::default() };
        let mut met = BTreeSet::from([InodeNumber::ROOT.get()]);
        let mut waiting = vec![(Vec::new(), InodeNumber::ROOT)];
        while let Some((path, number)) = waiting.pop() {
            let reader = FileReader::open(&map, number)?;
            for (name, target) in reader.entries()? {
                let path = [&path[..], b"/", &name].concat();
                contents.names.insert(path.clone(), target.get());
                if !met.insert(target.get()) {
                    continue;
                }
                let file = FileReader::open(&map, target)?;
                if file.inode.is_directory() {
                    waiting.push((path, target));
                }
                contents.files.insert(target.get(), file.content()?);
            }
        }
        Some(contents)
    }

    /// How many names of `sound` are there with the same inode, whose type is the same.
    #[must_use]
    pub fn names_kept(&self, sound: &ImageContents) -> u64 {
        let kind = |contents: &ImageContents, inode: &u32| {
            contents.files.get(inode).map(|file| file.mode & 0o170_000)
        };
        let is_kept = |(path, inode): &(&Vec<u8>, &u32)| {
            self.names.get(*path) == Some(*inode) && kind(self, inode) == kind(sound, inode)
        };
        sound.names.iter().filter(is_kept).count() as u64
    }

    /// How many files of `sound`, without directories, are there with all that they held.
    #[must_use]
    pub fn files_kept(&self, sound: &ImageContents) -> u64 {
        let files = sound.files.iter().filter(|(_, file)| !file.is_directory());
        files.filter(|(inode, file)| self.files.get(inode) == Some(file)).count() as u64
    }

    /// How many bytes of the files of `sound` are there, in the same file at the same place.
    #[must_use]
    pub fn bytes_kept(&self, sound: &ImageContents) -> u64 {
        sound.files.keys().map(|inode| self.file_bytes_kept(sound, *inode)).sum()
    }

    /// The same of one file.
    #[must_use]
    pub fn file_bytes_kept(&self, sound: &ImageContents, inode: u32) -> u64 {
        let Some(old) = sound.files.get(&inode).filter(|old| old.is_regular()) else { return 0 };
        let Some(new) = self.files.get(&inode).filter(|new| new.is_regular()) else { return 0 };
        let length = |place: u64| {
            let start = place * self.block_size;
            new.size_bytes.min(old.size_bytes).saturating_sub(start).min(self.block_size)
        };
        let same = old.blocks.iter().filter(|(place, hash)| new.blocks.get(place) == Some(hash));
        same.map(|(place, _)| length(*place)).sum()
    }
}

impl FileContent {
    /// Whether it is a regular file.
    #[must_use]
    pub const fn is_regular(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }

    /// Whether it is a directory.
    #[must_use]
    pub const fn is_directory(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }
}

/// An inode of an image that is read.
struct FileReader<'a> {
    map: &'a MetadataMap,
    bytes: Vec<u8>,
    inode: Inode,
}

/// Where a file lies.
#[derive(Default)]
struct Places {
    /// Its blocks: in the file, and on the device.
    data: Vec<(u64, u64)>,
    /// The blocks of its map.
    nodes: Vec<u64>,
}

/// The blocks that a file of a sound image lies in, with those of its map. Nothing if it isn't sound.
#[must_use]
pub fn blocks_of_file(map: &MetadataMap, number: InodeNumber) -> Option<Vec<u64>> {
    let file = FileReader::open(map, number)?;
    if !file.inode.has_block_mapping() {
        return Some(Vec::new());
    }
    let Places { data, nodes } = file.places()?;
    Some(data.into_iter().map(|(_, block)| block).chain(nodes).collect())
}

impl<'a> FileReader<'a> {
    fn open(map: &'a MetadataMap, number: InodeNumber) -> Option<Self> {
        let layout = map.layout();
        let (group, _) = layout.bit_of_inode(number).ok()?;
        let (block, offset) = layout.descriptor_location(group)?;
        let descriptor = GroupDescriptor::read(&map.block(block.get())[offset..], layout).ok()?;
        let (block, offset) = layout.inode_location(number, descriptor.inode_table).ok()?;
        let bytes = read_block(map, block.get())?[offset..offset + layout.inode_size()].to_vec();
        let inode = Inode::read(&bytes, number, layout).ok()?;
        Some(Self { map, bytes, inode })
    }

    /// What inline data has outside of the block area.
    fn rest(&self) -> &[u8] {
        let area = self.bytes.get(self.inode.attribute_area(self.map.layout())).unwrap_or(&[]);
        let place = AttributePlace { inode: self.inode.number, block: None };
        let Ok(attributes) = XattrView::check_in_inode(area, place) else { return &[] };
        let name = AttributeName::inline_data();
        match attributes.find(name.index, &name.suffix).map(|found| found.value) {
            Some(Value::Inline(value)) => value,
            _ => &[],
        }
    }

    fn entries(&self) -> Option<Vec<(Vec<u8>, InodeNumber)>> {
        let layout = DirectoryLayout {
            file_type: true,
            checksum: None,
            encrypted: false,
            casefolded: false,
            inode_last: InodeNumber::new(self.map.layout().inodes_count()),
        };
        let mut entries = Vec::new();
        if self.inode.flags.contains(InodeFlags::INLINE_DATA) {
            let rest = self.rest();
            let directory = InlineDirectory::trusted(&self.inode.block_area, rest, &layout);
            entries.extend(directory.entries().map(|entry| (entry.name.to_vec(), entry.inode)));
            return Some(entries);
        }
        for (_, block) in self.places()?.data {
            let bytes = read_block(self.map, block)?;
            let block = DirectoryBlock::trusted(&bytes, &layout);
            let named = block.entries().filter(|entry| !entry.is_dot());
            entries.extend(named.map(|entry| (entry.name.to_vec(), entry.inode)));
        }
        Some(entries)
    }

    fn content(&self) -> Option<FileContent> {
        let inode = &self.inode;
        let mut blocks = BTreeMap::new();
        let hash = |bytes: &[u8]| {
            let mut hasher = DefaultHasher::new();
            bytes.hash(&mut hasher);
            hasher.finish()
        };
        if inode.flags.contains(InodeFlags::INLINE_DATA) || inode.is_fast_symlink() {
            let mut bytes = [&inode.block_area[..], self.rest()].concat();
            bytes.truncate(inode.size_bytes as usize);
            blocks.insert(0, hash(&bytes));
        } else if inode.has_block_mapping() {
            for (logical, block) in self.places()?.data {
                let mut bytes = read_block(self.map, block)?;
                let start = logical * bytes.len() as u64;
                // What lies past the end is nobody's.
                let length = inode.size_bytes.saturating_sub(start).min(bytes.len() as u64);
                bytes.truncate(length as usize);
                if bytes.iter().any(|&byte| byte != 0) {
                    blocks.insert(logical, hash(&bytes));
                }
            }
        }
        Some(FileContent { mode: inode.mode, size_bytes: inode.size_bytes, blocks })
    }

    fn places(&self) -> Option<Places> {
        let mut places = Places::default();
        if self.inode.flags.contains(InodeFlags::EXTENTS) {
            self.extents(&self.inode.block_area, None, &mut places)?;
        } else {
            for index in 0..block_map::ROOT_POINTERS as u32 {
                let levels = block_map::levels_of_root_pointer(index);
                let Some(logical) = block_map::logical_of_root_pointer(index, self.map.layout())
                else {
                    break;
                };
                self.pointers(&self.inode.block_area, index, levels, logical, &mut places)?;
            }
        }
        Some(places)
    }

    fn extents(&self, node: &[u8], at: Option<PhysicalBlock>, places: &mut Places) -> Option<()> {
        let place = NodePlace { inode: self.inode.number, block: at };
        let node = ExtentNode::reopen(node, place).ok()?;
        if node.is_leaf() {
            for extent in node.extents().filter(|extent| !extent.unwritten) {
                let (logical, physical) = (extent.logical.as_u64(), extent.physical.get());
                let length = u64::from(extent.length);
                places.data.extend((0..length).map(|offset| (logical + offset, physical + offset)));
            }
            return Some(());
        }
        for index in node.indexes() {
            let bytes = read_block(self.map, index.child.get())?;
            places.nodes.push(index.child.get());
            self.extents(&bytes, Some(index.child), places)?;
        }
        Some(())
    }

    fn pointers(
        &self,
        holder: &[u8],
        index: u32,
        levels: usize,
        logical: u64,
        places: &mut Places,
    ) -> Option<()> {
        let layout = self.map.layout();
        let found = block_map::pointer(holder, index, self.inode.number, None, layout).ok()?;
        let Some(block) = found else { return Some(()) };
        if levels == 0 {
            places.data.push((logical, block.get()));
            return Some(());
        }
        places.nodes.push(block.get());
        let bytes = read_block(self.map, block.get())?;
        let span = block_map::blocks_under(levels - 1, layout);
        for index in 0..block_map::pointers_per_block(layout) {
            let logical = logical + u64::from(index) * span;
            self.pointers(&bytes, index, levels - 1, logical, places)?;
        }
        Some(())
    }
}

fn read_block(map: &MetadataMap, block: u64) -> Option<Vec<u8>> {
    map.layout().contains_blocks(PhysicalBlock::new(block), 1).then(|| map.block(block))
}
