//! Writing the image: inodes in order, and their data in block order.

use super::attributes::SharedBlockUses;
use super::content::{Cursor, Placed, is_fast};
use super::copy::Copier;
use super::directory;
use super::empty_image::EmptyImage;
use super::order::Numbers;
use super::{Builder, INODE_FIELDS_BYTES};
use crate::error::Result;
use crate::groups::UsedInodes;
use crate::tree::{Node, NodeKind};
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::dir::DirectoryLayout;
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::inode::{Inode, InodeDevice, InodeFlags, ModeFileType};
use drystone_ext4_format::layout::{LINKS_MAX, Layout};
use drystone_ext4_format::xattr::seal_block;
use drystone_ext4_format::{InodeNumber, PhysicalBlock};

/// Bytes of inodes that are written at once.
const TABLE_PIECE_BYTES: usize = 1 << 20;

/// Writes inodes whose numbers rise.
struct InodeWriter<'a> {
    device: &'a dyn BlockDevice,
    layout: &'a Layout,
    groups: &'a [GroupDescriptor],
    /// The inodes that wait, and the first one's offset on the device.
    waiting: Vec<u8>,
    offset: u64,
}

impl InodeWriter<'_> {
    /// The bytes for an inode, zeros.
    fn slot(&mut self, number: InodeNumber) -> Result<&mut [u8]> {
        let (group, bit) =
            self.layout.bit_of_inode(number).map_err(drystone_ext4_format::FormatError::from)?;
        let size = self.layout.inode_size();
        let table = self.groups[group.index()].inode_table.get() * self.layout.block_size() as u64;
        let offset = table + u64::from(bit) * size as u64;
        let follows = (self.offset + self.waiting.len() as u64) == offset;
        if !follows || self.waiting.len() >= TABLE_PIECE_BYTES {
            self.flush()?;
            self.offset = offset;
        }
        let at = self.waiting.len();
        self.waiting.resize(at + size, 0);
        Ok(&mut self.waiting[at..])
    }

    fn put(&mut self, inode: &Inode, attributes: &[u8]) -> Result<()> {
        let start = INODE_FIELDS_BYTES + usize::from(inode.extra_size);
        let layout = self.layout;
        let slot = self.slot(inode.number)?;
        if !attributes.is_empty() {
            slot[start..start + attributes.len()].copy_from_slice(attributes);
        }
        inode.encode_into(slot, layout).map_err(drystone_ext4_format::FormatError::from)?;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.waiting.is_empty() {
            self.device.write_at(self.offset, &self.waiting)?;
            self.waiting.clear();
        }
        Ok(())
    }
}

/// Writes all of the tree. The inodes that every image has are taken from the empty image, and go first.
pub(super) fn write_tree(
    builder: &Builder<'_>,
    empty: &EmptyImage,
    device: &dyn BlockDevice,
    used: &mut UsedInodes,
    copier: &mut Copier<'_>,
) -> Result<u64> {
    let layout = &empty.layout;
    let mut table = InodeWriter {
        device,
        layout,
        groups: &empty.groups,
        waiting: Vec::with_capacity(TABLE_PIECE_BYTES + layout.inode_size()),
        offset: 0,
    };
    let mut writer = TreeWriter {
        builder,
        empty,
        numbers: empty.numbers(),
        cursor: Cursor::new(&empty.free),
        uses: builder.attributes.uses(),
        placed: Placed::default(),
        directory_sizes: builder.measured.directory_sizes.iter().copied(),
        shape: DirectoryLayout {
            inode_last: InodeNumber::new(layout.inodes_count()),
            ..builder.directory_layout
        },
    };
    let mut first: Vec<(Inode, &[u8])> = Vec::new();
    for (place, &id) in builder.order.nodes().iter().enumerate() {
        let node = builder.tree.node(id);
        let inode = writer.write(place as u32, node, copier)?;
        if inode.is_directory() {
            used.add_directory(layout, inode.number);
        }
        let attributes = &builder.attributes.set(node.attributes().index()).in_inode[..];
        if (place as u32) < Numbers::SPECIAL {
            first.push((inode, attributes));
            if first.len() as u32 == Numbers::SPECIAL {
                let own = empty.files.inodes.values();
                first.extend(own.map(|inode| (inode.clone(), &[][..])));
                first.sort_unstable_by_key(|(inode, _)| inode.number);
                for (inode, attributes) in first.drain(..) {
                    table.put(&inode, attributes)?;
                }
            }
        } else {
            table.put(&inode, attributes)?;
        }
        used.next = used.next.max(writer.numbers.of_place(place as u32).get() + 1);
        copier.end_file();
    }
    table.flush()?;
    assert_eq!(writer.cursor.missing, 0, "the size was chosen so that all has room");
    Ok(writer.cursor.taken)
}

struct TreeWriter<'a, D> {
    builder: &'a Builder<'a>,
    empty: &'a EmptyImage,
    numbers: Numbers,
    cursor: Cursor<'a>,
    uses: SharedBlockUses<'a>,
    placed: Placed,
    directory_sizes: D,
    shape: DirectoryLayout,
}

impl<D: Iterator<Item = u64>> TreeWriter<'_, D> {
    /// Places a node's content, hands it to the copier, and makes the inode.
    fn write(&mut self, place: u32, node: Node<'_>, copier: &mut Copier<'_>) -> Result<Inode> {
        let layout = &self.empty.layout;
        let block_size = layout.block_size();
        let number = self.numbers.of_place(place);
        let metadata = node.metadata();
        let kind = node.kind();
        let permissions = match kind {
            // Nothing checks a link's permissions; Linux gives all links these.
            NodeKind::Symlink(_) => 0o777,
            _ => metadata.permissions,
        };
        let mode = file_type(kind).mode_bits() | permissions;
        let mut inode = Inode::new(number, mode, node.modified(), layout);
        inode.user = metadata.user;
        inode.group = metadata.group;
        let directory_blocks = match kind {
            NodeKind::Directory => self.directory_sizes.next().unwrap_or(0),
            _ => 0,
        };
        self.place_attributes(&node, &mut inode, copier)?;
        self.placed.place(&node, directory_blocks, block_size, &mut self.cursor);
        // More are bounded by the tree's check.
        inode.links_count = node.links() as u16;
        match kind {
            NodeKind::Directory => {
                self.build_directory(&node, directory_blocks, &mut inode, copier)?;
            }
            NodeKind::File { size } => {
                inode.size_bytes = size;
                self.copy_file(&node, block_size as u64, copier)?;
            }
            NodeKind::Symlink(target) => {
                inode.size_bytes = target.len() as u64;
                if is_fast(target) {
                    inode.block_area[..target.len()].copy_from_slice(target);
                } else if let Some(extent) = self.placed.extents.first() {
                    copier.add_bytes(extent.physical.get(), target)?;
                }
            }
            NodeKind::CharacterDevice { major, minor } | NodeKind::BlockDevice { major, minor } => {
                inode.block_area = InodeDevice { major, minor }.encode();
            }
            NodeKind::Fifo | NodeKind::Socket => {}
        }
        if inode.has_block_mapping() {
            inode.flags |= InodeFlags::EXTENTS;
            inode.sectors += self.placed.blocks() * layout.sectors_per_block();
            let (area, below) = self.placed.encode(number, inode.seed(layout), block_size);
            inode.block_area = area;
            for (block, bytes) in below {
                copier.add_block(block, bytes)?;
            }
        }
        Ok(inode)
    }

    /// Places the block of the attributes that have no room in the inode, which inodes with the same
    /// share.
    fn place_attributes(
        &mut self,
        node: &Node<'_>,
        inode: &mut Inode,
        copier: &mut Copier<'_>,
    ) -> Result<()> {
        let layout = &self.empty.layout;
        let stored = self.builder.attributes.set(node.attributes().index());
        let Some(block) = stored.block else { return Ok(()) };
        let cursor = &mut self.cursor;
        let mut new = None;
        let place = self.uses.next(block, |mut bytes| {
            let place = cursor.take_block();
            seal_block(&mut bytes, layout.checksum_seed(), PhysicalBlock::new(place));
            new = Some(bytes);
            place
        });
        if let Some(bytes) = new {
            copier.add_block(place, bytes)?;
        }
        inode.attribute_block = Some(PhysicalBlock::new(place));
        inode.sectors += layout.sectors_per_block();
        Ok(())
    }

    /// Has the blocks of a directory written to its extents.
    fn build_directory(
        &self,
        node: &Node<'_>,
        blocks: u64,
        inode: &mut Inode,
        copier: &mut Copier<'_>,
    ) -> Result<()> {
        let layout = &self.empty.layout;
        let shape = DirectoryLayout { checksum: inode.seed(layout), ..self.shape };
        let built = directory::build(self.builder, self.numbers, node.id(), &shape, blocks)?;
        assert_eq!(built.blocks.len() as u64, blocks, "it was measured");
        inode.size_bytes = blocks * layout.block_size() as u64;
        let links = built.subdirectories + 2;
        // A count of one means that there are too many to count.
        inode.links_count =
            u16::try_from(links).ok().filter(|&links| links < LINKS_MAX).unwrap_or(1);
        if built.is_hashed {
            inode.flags |= InodeFlags::INDEX;
        }
        let places = self.placed.extents.iter().flat_map(|extent| {
            let start = extent.physical.get();
            start..start + u64::from(extent.length)
        });
        for (place, bytes) in places.zip(built.blocks) {
            copier.add_block(place, bytes)?;
        }
        Ok(())
    }

    /// Has the data of a file copied to its extents.
    fn copy_file(&self, node: &Node<'_>, block_size: u64, copier: &mut Copier<'_>) -> Result<()> {
        if let Some(bytes) = node.inline_bytes() {
            let mut rest = bytes;
            for extent in &self.placed.extents {
                let length = u64::from(extent.length) * block_size;
                // No more than there is left, which fits.
                let (piece, behind) = rest.split_at((rest.len() as u64).min(length) as usize);
                copier.add_bytes(extent.physical.get(), piece)?;
                rest = behind;
            }
            return Ok(());
        }
        let mut segments = node.segments();
        let mut current = segments.next();
        for extent in &self.placed.extents {
            let start = extent.logical.as_u64() * block_size;
            let end = extent.logical_end() * block_size;
            while let Some(segment) = current.filter(|segment| segment.logical < end) {
                let length = segment.length.min(end - segment.logical);
                let mut piece = segment;
                piece.length = length;
                piece.logical -= start;
                copier.add_segment(extent.physical.get(), piece)?;
                if length < segment.length {
                    current = Some(crate::tree::Segment {
                        logical: segment.logical + length,
                        length: segment.length - length,
                        offset: segment.offset + length,
                        ..segment
                    });
                    break;
                }
                current = segments.next();
            }
        }
        Ok(())
    }
}

fn file_type(kind: NodeKind<'_>) -> ModeFileType {
    match kind {
        NodeKind::Directory => ModeFileType::Directory,
        NodeKind::File { .. } => ModeFileType::Regular,
        NodeKind::Symlink(_) => ModeFileType::Symlink,
        NodeKind::CharacterDevice { .. } => ModeFileType::CharacterDevice,
        NodeKind::BlockDevice { .. } => ModeFileType::BlockDevice,
        NodeKind::Fifo => ModeFileType::Fifo,
        NodeKind::Socket => ModeFileType::Socket,
    }
}
