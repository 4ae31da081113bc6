//! Builds an image from a [`FileTree`]: lays all of it out, then writes it once.
//!
//! [`Builder::new`] decides everything without writing a byte: the order of inodes, the size of each
//! directory, where extended attributes go, and the size of the image, which is exact. After it only a
//! device or a source can fail. [`Builder::write`] then walks the same layout again: one thread makes
//! inodes and directories, others copy data from the sources.
//!
//! The bytes depend on the tree and the options alone: not on the order in which names were inserted,
//! nor on threads, time or machine.
//!
//! # Structure
//! `order` numbers inodes; `attributes`, `directory` and `content` decide how each of these is stored;
//! `empty_image` is the image around them for a given size, and finds the size; `write` and `copy` put
//! it on the device.
//!
//! # Crash
//! As for [`make`](crate::make): the superblock is written last, until then there is no image.

mod attributes;
mod content;
mod copy;
mod directory;
mod empty_image;
mod options;
mod order;
mod write;

pub use options::{Ext4BuildOptions, Size, SpareRoom};
pub use order::InodeOrder;

use crate::error::{Error, Result};
use crate::files::{LOST_FOUND_BLOCKS_MAX, LOST_FOUND_BYTES};
use crate::groups::{
    UsedInodes, fill_groups, write_bitmaps, write_descriptors, zero_tables_and_journal,
};
use crate::image::{ImageSummary, begin, finish, has_large_file, write_blocks};
use crate::options::MkfsOptions;
use crate::tree::{FileTree, NodeKind};
use attributes::AttributePlan;
use content::{ContentLimits, Cursor, Placed};
use directory::DirectoryFormat;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::checksum::ChecksumSeed;
use drystone_ext4_format::dir::DirectoryLayout;
use drystone_ext4_format::features::FILE_BYTES_MAX_WITHOUT_LARGE_FILE;
use drystone_ext4_format::features::{Compat, Features, Incompat, ReadOnlyCompat};
use drystone_ext4_format::hash::NameHasher;
use drystone_ext4_format::htree::LEVELS_MAX;
use drystone_ext4_format::layout::BASE_INODE_BYTES;
use drystone_ext4_format::layout::Layout;
use empty_image::{BuildContents, EmptyImage};
use order::Numbers;

/// Bytes of an inode without the extra fields.
const INODE_FIELDS_BYTES: usize = BASE_INODE_BYTES as usize;
/// Levels of a directory's index with `large_dir`.
const LEVELS_MAX_LARGE: u8 = 2;

/// Is told of a build's progress, from several threads.
pub trait BuildMonitor: Sync {
    /// More bytes were written, and more files are complete.
    fn wrote(&self, bytes: u64, files: u64) {
        let _ = (bytes, files);
    }

    /// Whether to cancel the build.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Ignores progress.
impl BuildMonitor for () {}

/// A laid out image.
pub struct Builder<'t> {
    tree: &'t FileTree,
    order: InodeOrder,
    options: MkfsOptions,
    shape: DirectoryFormat,
    /// Whether there are types and checksums.
    directory_layout: DirectoryLayout,
    attributes: AttributePlan,
    measured: Measured,
    threads: usize,
    empty: Option<EmptyImage>,
}

/// The properties of all files, before any has a place.
struct Measured {
    /// Blocks of each directory, in order.
    directory_sizes: Vec<u64>,
    has_large_files: bool,
    data_bytes: u64,
}

impl Measured {
    /// Checks that ext4 can hold every node, and measures directories and data. Notes in the shape
    /// whether a directory needs a third level.
    fn of(
        tree: &FileTree,
        order: &InodeOrder,
        limits: &ContentLimits,
        directory_layout: &DirectoryLayout,
        shape: &mut DirectoryFormat,
    ) -> Result<Measured> {
        let mut measured =
            Measured { directory_sizes: Vec::new(), has_large_files: false, data_bytes: 0 };
        for &id in order.nodes() {
            let node = tree.node(id);
            content::check(tree, node, limits)?;
            match node.kind() {
                NodeKind::Directory => {
                    let size = directory::measure(tree, order, id, directory_layout, shape);
                    if size.levels > LEVELS_MAX_LARGE || size.blocks > u64::from(u32::MAX) {
                        return Err(directory::too_large(tree, id));
                    }
                    shape.large |= size.levels > LEVELS_MAX;
                    measured.directory_sizes.push(size.blocks);
                }
                NodeKind::File { size } => {
                    measured.has_large_files |= size > FILE_BYTES_MAX_WITHOUT_LARGE_FILE;
                    measured.data_bytes +=
                        node.segments().map(|segment| segment.length).sum::<u64>();
                }
                _ => {}
            }
        }
        Ok(measured)
    }
}

/// Whether directories have types and checksums: all that matters before inodes have numbers.
fn directory_layout(layout: &Layout) -> DirectoryLayout {
    let any = ChecksumSeed::from_stored(0).inode(InodeNumber::ROOT, 0);
    DirectoryLayout {
        file_type: layout.features().incompat.contains(Incompat::FILETYPE),
        checksum: layout.checksum_seed().map(|_| any),
        encrypted: false,
        casefolded: false,
        inode_last: InodeNumber::new(u32::MAX),
    }
}

impl<'t> Builder<'t> {
    /// Lays out an image of all that is in the tree, to which lost+found is added if it's missing.
    ///
    /// # Errors
    /// Options that make no image or that can't be combined with files; files that ext4 can't hold;
    /// [`Error::DoesNotFit`] for a fixed size that is too small.
    pub fn new(tree: &'t mut FileTree, options: &Ext4BuildOptions) -> Result<Builder<'t>> {
        check_features(options.features)?;
        let order = InodeOrder::with_lost_found(tree)?;
        let tree = &*tree;
        let uuid = options.uuid.unwrap_or_else(|| as_uuid(order.derived(b"uuid")));
        let hash_seed = options.hash_seed.unwrap_or_else(|| {
            let bytes = order.derived(b"hash seed");
            [0, 4, 8, 12].map(|at| {
                u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
            })
        });
        let latest = u64::try_from(order.latest.seconds).unwrap_or(0);
        // What small inodes hold.
        let latest_max =
            if options.inode_size == Some(128) { i32::MAX as u64 } else { u32::MAX.into() };
        let time_seconds = options.time_seconds.unwrap_or(latest.min(latest_max));
        let mut image = options.image(uuid, hash_seed, time_seconds);
        // Decides what doesn't depend on the image's size: checks features and chooses the inode
        // size.
        let some = EmptyImage::new(&image, PROBE_BYTES, 0)?;
        let layout = some.layout;
        let block_size = layout.block_size();
        let features = layout.features();
        let directory_layout = directory_layout(&layout);
        let mut shape = DirectoryFormat {
            block_size,
            hasher: NameHasher::new(options.hash_version, hash_seed),
            hashed: features.compat.contains(Compat::DIR_INDEX),
            large: features.incompat.contains(Incompat::LARGE_DIR),
            lost_found_blocks: (LOST_FOUND_BYTES / block_size).clamp(2, LOST_FOUND_BLOCKS_MAX)
                as u64,
        };
        let limits = ContentLimits {
            block_size,
            file_bytes_max: layout.extent_file_bytes_max(),
            many_subdirectories: layout.has_unlimited_subdirectories(),
        };
        let measured = Measured::of(tree, &order, &limits, &directory_layout, &mut shape)?;
        if shape.large {
            image.features.incompat |= Incompat::LARGE_DIR;
        }
        let inode_room =
            layout.inode_size() - INODE_FIELDS_BYTES - usize::from(layout.extra_inode_size());
        let attributes = AttributePlan::new(tree, &order, inode_room, block_size)?;
        let mut builder = Builder {
            tree,
            order,
            options: image,
            shape,
            directory_layout,
            attributes,
            measured,
            threads: options.threads,
            empty: None,
        };
        builder.empty = Some(builder.choose_size(options)?);
        Ok(builder)
    }

    fn choose_size(&self, options: &Ext4BuildOptions) -> Result<EmptyImage> {
        // What the tree would take if no file were split.
        let everywhere = 0..u64::MAX;
        let mut cursor = Cursor::new(std::slice::from_ref(&everywhere));
        self.place(&mut cursor);
        let contents = BuildContents {
            options: &self.options,
            block_size: self.shape.block_size as u64,
            inodes: self.order.nodes().len() as u64,
            inodes_min: options.inodes_min.into(),
            blocks: cursor.taken,
            place: &|cursor| self.place(cursor),
        };
        match options.size {
            Size::Fixed(bytes) => contents.fixed(bytes),
            Size::Auto(SpareRoom::Percent(percent)) if !(0.0..=99.0).contains(&percent) => {
                Err(Error::Option(format!("{percent} % can't be left free: 0 to 99 can")))
            }
            Size::Auto(room) => contents.smallest(room),
        }
    }

    /// Places everything, as it will be written.
    fn place(&self, cursor: &mut Cursor<'_>) {
        let mut uses = self.attributes.uses();
        let mut placed = Placed::default();
        let mut directory_sizes = self.measured.directory_sizes.iter();
        for &id in self.order.nodes() {
            let node = self.tree.node(id);
            if let Some(block) = self.attributes.set(node.attributes().index()).block {
                uses.next(block, |_| cursor.take_block());
            }
            let directory_blocks = match node.kind() {
                NodeKind::Directory => directory_sizes.next().copied().unwrap_or(0),
                _ => 0,
            };
            placed.place(&node, directory_blocks, self.shape.block_size, cursor);
        }
    }

    fn empty(&self) -> &EmptyImage {
        // `new` is the only way to a builder, and ends with setting it.
        self.empty.as_ref().expect("a builder has its image")
    }

    /// Bytes of the image.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let layout = &self.empty().layout;
        layout.blocks_count() * layout.block_size() as u64
    }

    /// Bytes that will be read from the sources.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.measured.data_bytes
    }

    /// Files that will be written, directories and all else included.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.order.nodes().len() as u64
    }

    /// The identity of the image.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.options.uuid
    }

    /// Writes the image on `device`, whose content must be zeros where `is_zeroed`; else the parts
    /// that have to be zeros are written, and the signatures of other formats are erased.
    ///
    /// # Errors
    /// The device is too small, and unchanged; or a source or the device fails, or `monitor` cancels,
    /// and then the device doesn't hold an image.
    pub fn write(
        mut self,
        device: &dyn BlockDevice,
        is_zeroed: bool,
        monitor: &dyn BuildMonitor,
    ) -> Result<ImageSummary> {
        begin(device, self.size_bytes(), is_zeroed)?;
        // As in `empty_image`.
        let mut empty = self.empty.take().expect("a builder has its image");
        let layout = empty.layout;
        if !is_zeroed {
            zero_tables_and_journal(device, &layout, &empty.groups, &empty.files.journal)?;
        }
        let mut used = UsedInodes::new(&layout, &empty.files.inodes, empty.files.next_inode);
        let block_size = layout.block_size();
        copy::copy(self.tree, device, monitor, block_size, self.threads, |copier| {
            write::write_tree(&self, &empty, device, &mut used, copier)
        })?;
        let mut cursor = Cursor::new(&empty.free);
        self.place(&mut cursor);
        for run in cursor.used() {
            empty.files.space.take_range(run);
        }
        let EmptyImage { superblock, groups, files, plan, .. } = &mut empty;
        fill_groups(&layout, groups, &files.space, &used);
        write_bitmaps(&layout, groups, &files.space, &used, &mut files.blocks);
        write_descriptors(&layout, groups, &mut files.blocks);
        write_blocks(device, &files.blocks, block_size)?;
        if self.measured.has_large_files || has_large_file(&files.inodes) {
            superblock.set_large_file();
        }
        finish(device, superblock, groups, &files.journal)?;
        Ok(ImageSummary {
            block_size: block_size as u32,
            blocks: layout.blocks_count(),
            inodes: layout.inodes_count(),
            groups: layout.group_count(),
            journal_blocks: plan.journal_blocks,
            features: superblock.features().names(),
        })
    }
}

impl EmptyImage {
    fn numbers(&self) -> Numbers {
        Numbers { lost_found: self.lost_found, first: self.files.next_inode }
    }
}

/// Bytes of an image that is laid out only to decide what doesn't depend on the size.
const PROBE_BYTES: u64 = 1 << 30;

/// Checks for features that a build can't make; the rest is checked when the image is planned.
fn check_features(features: Features) -> Result<()> {
    let refuse = |name: &str| {
        Err(Error::Option(format!("an image with files can't be built with the feature {name}")))
    };
    if !features.incompat.contains(Incompat::EXTENTS) {
        return Err(Error::Option("an image with files is built with the feature extent".into()));
    }
    if features.read_only_compat.contains(ReadOnlyCompat::BIGALLOC) {
        return refuse("bigalloc");
    }
    if features.read_only_compat.contains(ReadOnlyCompat::QUOTA) {
        return refuse("quota");
    }
    Ok(())
}

/// Marks 16 bytes as a custom UUID (version 8).
#[must_use]
pub fn as_uuid(bytes: [u8; 16]) -> [u8; 16] {
    uuid::Builder::from_custom_bytes(bytes).into_uuid().into_bytes()
}
