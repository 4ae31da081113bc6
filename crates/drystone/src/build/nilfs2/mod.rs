//! Builds NILFS2 images from a [`Tree`].
//!
//! [`Nilfs2Builder::new`] checks every file and decides the size. [`Nilfs2Builder::write`] makes an empty
//! image, mounts it, and creates all files through the engine: one thread makes names and inodes in order,
//! others copy data. After each batch of data a checkpoint is written.
//!
//! The bytes depend on the tree and the options alone. The engine stamps everything with one time and
//! writes logs only where a batch ends, and batches end where the tree says.

mod batch;
mod estimate;
#[cfg(test)]
mod tests;

use crate::Result;
use batch::Writer;
use drystone_blockdev::{BlockDevice, erase_signatures};
use drystone_mkfs::Error;
use drystone_mkfs::build::{BuildMonitor, InodeOrder, Size, SpareRoom, as_uuid};
use drystone_mkfs::tree::{FileTree, NodeKind, TreeNodeId};
use drystone_nilfs2::mkfs::MakeOptions;
use drystone_sync::Arc;
use estimate::Demand;
use uuid::Uuid;

/// The most names that an inode may have.
const LINKS_MAX: u64 = 32_000;
/// Bytes in a block unless asked for.
const BLOCK_BYTES: u32 = 4096;

/// A user's options for an image to be built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Nilfs2BuildOptions {
    /// How large it becomes.
    pub size: Size,
    /// Bytes in a block; 4096 unless said.
    pub block_size: Option<u32>,
    /// Blocks in a segment; by the size of the files unless said, from 256 to 2048.
    pub blocks_per_segment: Option<u32>,
    /// Share of the segments that is kept for the log itself, in percent.
    pub reserved_percent: u32,
    /// The label, at most 80 bytes.
    pub label: Vec<u8>,
    /// The identity; derived from the files unless said.
    pub uuid: Option<Uuid>,
    /// Start value of all sums; derived from the files unless said.
    pub seed: Option<u32>,
    /// When the image is made, in seconds since 1970; the latest time of a file unless said.
    pub time_seconds: Option<u64>,
    /// Threads that copy data.
    pub threads: usize,
}

drystone_options::setters! {
    Nilfs2BuildOptions {
        size: Size,
        block_size: impl Into<Option<u32>>,
        blocks_per_segment: impl Into<Option<u32>>,
        reserved_percent: u32,
        label: impl Into<Vec<u8>>,
        uuid: impl Into<Option<Uuid>>,
        seed: impl Into<Option<u32>>,
        time_seconds: impl Into<Option<u64>>,
        threads: usize,
    }
}

impl Default for Nilfs2BuildOptions {
    /// As large as the files need, with the reserve that `mkfs.nilfs2` has; one thread.
    fn default() -> Nilfs2BuildOptions {
        Nilfs2BuildOptions {
            size: Size::Auto(SpareRoom::Bytes(0)),
            block_size: None,
            blocks_per_segment: None,
            reserved_percent: 5,
            label: Vec::new(),
            uuid: None,
            seed: None,
            time_seconds: None,
            threads: 1,
        }
    }
}

/// An image of known size.
#[derive(Debug)]
pub struct Nilfs2Builder<'t> {
    tree: &'t FileTree,
    order: InodeOrder,
    options: MakeOptions,
    threads: usize,
    size_bytes: u64,
    data_bytes: u64,
    batch_blocks: u64,
    nodes_with_xattrs: u64,
}

impl<'t> Nilfs2Builder<'t> {
    /// Checks the files and decides the size.
    ///
    /// # Errors
    /// Options that make no image; files that NILFS2 can't hold; [`Error::DoesNotFit`] for a fixed size
    /// that is too small.
    pub fn new(tree: &'t FileTree, options: &Nilfs2BuildOptions) -> Result<Nilfs2Builder<'t>> {
        let order = InodeOrder::new(tree);
        let latest = u64::try_from(order.latest.seconds).unwrap_or(0);
        let uuid =
            options.uuid.unwrap_or_else(|| Uuid::from_bytes(as_uuid(order.derived(b"uuid"))));
        let seed = options.seed.unwrap_or_else(|| {
            let bytes = order.derived(b"seed");
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        });
        let mut make = MakeOptions::new(uuid, seed, options.time_seconds.unwrap_or(latest));
        make.block_bytes = options.block_size.unwrap_or(BLOCK_BYTES);
        make.reserved_percent = options.reserved_percent;
        make.label.clone_from(&options.label);
        if !make.block_bytes.is_power_of_two() || !(1024..=65536).contains(&make.block_bytes) {
            let bytes = make.block_bytes;
            let problem = format!("{bytes} bytes in a block: 1024 to 65536, a power of two");
            return Err(Error::Option(problem).into());
        }
        if !(1..=50).contains(&make.reserved_percent) {
            return Err(Error::Option("NILFS2 reserves 1 to 50 percent".to_string()).into());
        }
        let mut demand = Demand::new(u64::from(make.block_bytes));
        let (mut data_bytes, mut nodes_with_xattrs) = (0, 0);
        for &id in order.nodes() {
            check(tree, id, &make)?;
            demand.add(tree, id);
            let node = tree.node(id);
            data_bytes += node.segments().map(|segment| segment.length).sum::<u64>();
            nodes_with_xattrs += u64::from(!node.metadata().xattrs.is_empty());
        }
        let fixed = match options.size {
            Size::Fixed(bytes) => Some(bytes),
            Size::Auto(_) => None,
        };
        make.blocks_per_segment =
            options.blocks_per_segment.unwrap_or_else(|| demand.blocks_per_segment(fixed));
        if !make.blocks_per_segment.is_power_of_two() || make.blocks_per_segment < 16 {
            let blocks = make.blocks_per_segment;
            let problem = format!("{blocks} blocks in a segment: a power of two from 16");
            return Err(Error::Option(problem).into());
        }
        let size_bytes = demand.size_bytes(options.size, &make)?;
        make.geometry(size_bytes).map_err(|error| Error::Option(error.to_string()))?;
        let threads = options.threads;
        Ok(Nilfs2Builder {
            tree,
            order,
            options: make,
            threads,
            size_bytes,
            data_bytes,
            batch_blocks: demand.batch_blocks(),
            nodes_with_xattrs,
        })
    }

    /// Bytes of the image.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes that will be read from the sources.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Files that will be written, directories and all else included.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.order.nodes().len() as u64
    }

    /// What the image lacks of the files, in a sentence.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let files = self.nodes_with_xattrs;
        (files > 0).then(|| {
            format!("the extended attributes of {files} files are left out: NILFS2 has none")
        })
    }

    /// The options of the image, with all that was left open decided.
    #[must_use]
    pub fn options(&self) -> &MakeOptions {
        &self.options
    }

    /// Writes the image on `device`, which must have [`size_bytes`](Self::size_bytes).
    ///
    /// # Errors
    /// A source or the device fails, or `monitor` cancels; then the device holds no image. After a crash it may hold
    /// one of the first files.
    pub fn write(&self, device: &Arc<dyn BlockDevice>, monitor: &dyn BuildMonitor) -> Result<()> {
        let written = self.write_all(device, monitor);
        if written.is_err() {
            // The first error is the one to report. Where nothing can be written, no more can be done.
            let _ = erase_signatures(&**device);
        }
        written
    }

    fn write_all(&self, device: &Arc<dyn BlockDevice>, monitor: &dyn BuildMonitor) -> Result<()> {
        drystone_nilfs2::mkfs::make(&**device, &self.options)?;
        let options = drystone_nilfs2::MountOptions::default()
            .inode_search(drystone_nilfs2::InodeSearch::First)
            .fixed_time_s(self.options.time_s);
        let volume = drystone_nilfs2::Nilfs2::mount(Arc::clone(device), &options)?;
        let block_bytes = u64::from(self.options.block_bytes);
        let writer =
            Writer::new(self.tree, &volume, self.threads, monitor, block_bytes, self.batch_blocks);
        writer.write(&self.order)?;
        Ok(volume.unmount()?)
    }
}

/// Checks that NILFS2 can hold a node.
fn check(tree: &FileTree, id: TreeNodeId, options: &MakeOptions) -> drystone_mkfs::Result<()> {
    let node = tree.node(id);
    let problem = |problem| Err(Error::File { path: tree.path_of(id), problem });
    let is_directory = |child| tree.parent(child).is_some();
    let links = match node.kind() {
        NodeKind::Directory => {
            2 + tree.children(id).filter(|(_, child)| is_directory(*child)).count() as u64
        }
        _ => u64::from(node.links()),
    };
    match node.kind() {
        _ if links > LINKS_MAX => problem(format!(
            "{links} links, with those from subdirectories: there can be {LINKS_MAX}"
        )),
        NodeKind::Symlink(target) if target.len() >= options.block_bytes as usize => {
            problem(format!(
                "a symbolic link to {} bytes: with blocks of {} it can have {}",
                target.len(),
                options.block_bytes,
                options.block_bytes - 1
            ))
        }
        NodeKind::File { size } if i64::try_from(size).is_err() => {
            problem(format!("a file of {size} bytes: it can have {}", i64::MAX))
        }
        NodeKind::CharacterDevice { major, minor } | NodeKind::BlockDevice { major, minor }
            if major >= 1 << 12 || minor >= 1 << 20 =>
        {
            problem(format!("there can be no device {major}:{minor}"))
        }
        _ => Ok(()),
    }
}
