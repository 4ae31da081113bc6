//! One block group: its descriptor, its bitmaps, and the blocks that wait for a commit.
//!
//! # State
//! Until a group is first used, it is a location and three counts. Then its descriptor is decoded;
//! and when blocks are first needed, its block bitmap is expanded into a map of the clusters that
//! may *not* be allocated: those set on disk, those freed by a transaction that has not committed,
//! and those in preallocation windows. The inode bitmap has no copy; two sets of bits, made when
//! first needed, say which inodes are withheld and which are given out.
//!
//! The counts outside the lock are hints for a thread that chooses a group. They are changed under
//! the lock, so a thread that holds it sees exact ones.
//!
//! # Locking
//! The state is under the `group` lock. Bitmaps and the descriptor are loaded under it.
//!
//! # Invariants
//! A group with a damaged descriptor or bitmap gives out nothing any more; its free clusters and
//! inodes no longer count. Blocks that are freed there stay marked as in use until the image is
//! repaired. So do inodes if the inode bitmap is damaged; else they are freed, but not used again.

use super::bits::AtomicBits;
use super::block_map::BlockMap;
use super::group_metadata::{check_metadata_is_marked, initial_block_bitmap, read_descriptor};
use super::spread::GroupCounts;
use super::system_zones::SystemZones;
use crate::block_use;
use crate::error::{Error, Result};
use crate::lock_classes;
use crate::volume::Volume;
use drystone_cache::Buffer;
use drystone_ext4_format::bitmap_checksum::{check_block_bitmap, check_inode_bitmap};
use drystone_ext4_format::error::GroupPart;
use drystone_ext4_format::group::{GroupDescriptor, GroupFlags};
use drystone_ext4_format::{Corrupt, GroupNumber, PhysicalBlock};
use drystone_ondisk::bitmap;
use drystone_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use drystone_sync::{Arc, Mutex, OnceLock};

/// The number of orders: the clusters of a group are counted with 32 bits.
pub(super) const ORDERS: u32 = 32;
/// The order of a group without free clusters.
pub(super) const NO_ORDER: u32 = ORDERS;

/// A block group. It shares no cache lines with others, so that threads in different groups don't
/// disturb each other.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct BlockGroup {
    pub number: GroupNumber,
    /// First block of the inode table; 0 if the descriptor is damaged.
    pub inode_table: PhysicalBlock,
    /// The inode bitmap.
    pub inode_bitmap: PhysicalBlock,
    /// Clusters that could be allocated now, without those that wait for a commit.
    pub available: AtomicU32,
    /// Free inodes, without those that are withheld.
    pub free_inodes: AtomicU32,
    pub directories: AtomicU32,
    /// The largest order that has an aligned run of available clusters; an upper bound until the
    /// map is loaded.
    pub largest_order: AtomicU32,
    /// The orders under which the group is in the sets of the index. Changed under the lock.
    pub indexed: [AtomicU32; 2],
    /// How many runs the available clusters form; 1 until the map is loaded.
    pub fragments: AtomicU32,
    /// The map was loaded: the order and the number of runs are exact.
    pub has_map: AtomicBool,
    /// The inode number of the stream that allocates here; 0 for none. Only a hint.
    pub stream: AtomicU32,
    /// Where the search for a free inode starts, a bit of the inode bitmap.
    pub next_inode: AtomicU32,
    /// How many inodes from the start of the table lie in blocks that hold inodes or zeros. Changed
    /// under the lock.
    pub table_ready: AtomicU32,
    /// The group is loaded, and both bitmaps are initialised.
    pub inodes_ready: AtomicBool,
    /// Inodes of the group.
    inodes: u32,
    /// Inodes that are clear in the bitmap, but that no search may find.
    withheld: OnceLock<AtomicBits>,
    /// Of these, the ones that the running transaction has given out.
    given_out: OnceLock<AtomicBits>,
    /// The transaction in which an inode was last given out.
    pub given_out_in: AtomicU64,
    pub state: Mutex<BlockGroupState>,
}

/// What a group's lock protects.
#[derive(Debug)]
pub(super) enum BlockGroupState {
    /// Not used yet.
    Unloaded,
    /// In use.
    Loaded(Box<LoadedGroup>),
    /// Found damaged and taken out of use. If it was loaded before, its changes are still to be
    /// written.
    Damaged(Box<Corrupt>, Option<Box<LoadedGroup>>),
}

/// What a group has to write when the running transaction closes. The buffers are part of that
/// transaction.
#[derive(Debug, Default)]
pub(super) struct GroupChanges {
    /// The block of the descriptor; `None` if the group has not changed.
    pub descriptor: Option<Arc<Buffer>>,
    pub block_bitmap: Option<Arc<Buffer>>,
    pub inode_bitmap: Option<Arc<Buffer>>,
}

/// A group in use.
#[derive(Debug)]
pub(super) struct LoadedGroup {
    /// The descriptor as it is on disk, or will be when the running transaction commits. The
    /// checksums of the bitmaps are updated then.
    pub descriptor: GroupDescriptor,
    /// Which clusters may be allocated; `None` until blocks are needed.
    pub map: Option<BlockMap>,
    /// What the running transaction has to write.
    pub changes: GroupChanges,
}

impl BlockGroup {
    /// A group with an intact descriptor.
    pub fn new(number: GroupNumber, descriptor: &GroupDescriptor, inodes: u32) -> Self {
        Self {
            number,
            inode_table: descriptor.inode_table,
            inode_bitmap: descriptor.inode_bitmap,
            available: AtomicU32::new(descriptor.free_clusters_count),
            free_inodes: AtomicU32::new(descriptor.free_inodes_count),
            directories: AtomicU32::new(descriptor.used_directories_count),
            largest_order: AtomicU32::new(order_of(descriptor.free_clusters_count)),
            indexed: [NO_ORDER; 2].map(AtomicU32::new),
            fragments: AtomicU32::new(1),
            has_map: AtomicBool::new(false),
            stream: AtomicU32::new(0),
            next_inode: AtomicU32::new(0),
            table_ready: AtomicU32::new(0),
            inodes_ready: AtomicBool::new(false),
            inodes,
            withheld: OnceLock::new(),
            given_out: OnceLock::new(),
            given_out_in: AtomicU64::new(0),
            state: Mutex::new(&lock_classes::GROUP, BlockGroupState::Unloaded),
        }
    }

    /// A group whose descriptor can't be used.
    pub fn damaged(number: GroupNumber, corrupt: Corrupt) -> Self {
        Self {
            state: Mutex::new(
                &lock_classes::GROUP,
                BlockGroupState::Damaged(Box::new(corrupt), None),
            ),
            ..Self::new(number, &GroupDescriptor::default(), 0)
        }
    }

    /// Takes a group out of use that has not been loaded yet. Its inodes can still be read, unless
    /// `without_table`: something else lies in their table.
    pub fn withdraw(&mut self, corrupt: Corrupt, without_table: bool) {
        *self.state.lock() = BlockGroupState::Damaged(Box::new(corrupt), None);
        for count in [&self.available, &self.free_inodes, &self.directories] {
            count.store(0, Ordering::Relaxed);
        }
        self.largest_order.store(NO_ORDER, Ordering::Relaxed);
        if without_table {
            self.inode_table = PhysicalBlock::new(0);
        }
    }

    /// Starts the hints again for a group whose map is not loaded. Its lock is held.
    pub fn note_unmapped(&self, free_clusters: u32) {
        self.available.store(free_clusters, Ordering::Relaxed);
        self.largest_order.store(order_of(free_clusters), Ordering::Relaxed);
        self.fragments.store(1, Ordering::Relaxed);
        self.has_map.store(false, Ordering::Relaxed);
    }

    /// The inodes that are clear in the bitmap, but that no search may find.
    pub fn withheld(&self) -> &AtomicBits {
        self.withheld.get_or_init(|| AtomicBits::new(self.inodes))
    }

    /// Whether an inode is withheld.
    pub fn is_withheld(&self, bit: u32) -> bool {
        self.withheld.get().is_some_and(|withheld| withheld.test(bit))
    }

    /// The inodes that are clear in the bitmap, but in use.
    pub fn given_out(&self) -> &AtomicBits {
        self.given_out.get_or_init(|| AtomicBits::new(self.inodes))
    }

    /// Whether an inode is in use, though clear in the bitmap.
    pub fn is_given_out(&self, bit: u32) -> bool {
        self.given_out.get().is_some_and(|given_out| given_out.test(bit))
    }

    /// The average length of a run of available clusters.
    pub fn average_run(&self) -> u32 {
        self.available.load(Ordering::Relaxed) / self.fragments.load(Ordering::Relaxed).max(1)
    }

    /// The order of the average run.
    pub fn average_order(&self) -> u32 {
        order_of(self.average_run())
    }

    /// Whether there is an aligned run of an order.
    pub fn has_order(&self, order: u32) -> bool {
        let largest = self.largest_order.load(Ordering::Relaxed);
        largest != NO_ORDER && largest >= order
    }

    /// The hints, for choosing a group.
    pub fn counts(&self) -> GroupCounts {
        GroupCounts {
            free_inodes: self.free_inodes.load(Ordering::Relaxed),
            free_clusters: self.available.load(Ordering::Relaxed),
            directories: self.directories.load(Ordering::Relaxed),
        }
    }
}

impl BlockGroupState {
    /// The loaded group; its descriptor is decoded now unless it was before.
    pub fn load(&mut self, volume: &Volume, number: GroupNumber) -> Result<&mut LoadedGroup> {
        if matches!(self, BlockGroupState::Unloaded) {
            let descriptor = read_descriptor(volume, number)?;
            *self = BlockGroupState::Loaded(Box::new(LoadedGroup {
                descriptor,
                map: None,
                changes: GroupChanges::default(),
            }));
        }
        match self {
            BlockGroupState::Loaded(loaded) => Ok(loaded),
            BlockGroupState::Damaged(corrupt, _) => Err(Error::Corrupt((**corrupt).clone())),
            BlockGroupState::Unloaded => unreachable!("loaded above"),
        }
    }

    /// Like [`load`](Self::load), but also for a group that was taken out of use after it was
    /// loaded: its inodes are still valid.
    pub fn load_for_inodes(
        &mut self,
        volume: &Volume,
        number: GroupNumber,
    ) -> Result<&mut LoadedGroup> {
        match self {
            BlockGroupState::Damaged(_, Some(loaded)) => Ok(loaded),
            state => state.load(volume, number),
        }
    }
}

impl LoadedGroup {
    /// How many inodes from the start of the table may ever have been used. The inodes after them
    /// are free and need not be initialised on disk.
    pub fn used_inodes(&self, volume: &Volume) -> u32 {
        if self.descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            0
        } else {
            volume.layout().inodes_per_group() - self.descriptor.unused_inodes_count
        }
    }

    /// Expands the block bitmap into the map unless that was done before.
    pub fn load_map(
        &mut self,
        volume: &Volume,
        number: GroupNumber,
        metadata: &SystemZones,
    ) -> Result<()> {
        if self.map.is_some() {
            return Ok(());
        }
        let layout = volume.layout();
        let taken = if self.descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            initial_block_bitmap(volume, number, metadata)
        } else {
            let buffer = self.block_bitmap(volume, number)?;
            let bytes: Box<[u8]> = Box::from(&*buffer.read());
            check_metadata_is_marked(volume, number, metadata, &bytes)?;
            bytes
        };
        let clusters = layout.group_cluster_count(number);
        let counted = bitmap::count_zeros(&taken, 0..clusters as usize) as u32;
        let stored = self.descriptor.free_clusters_count;
        if counted != stored {
            let part = GroupPart::BlockBitmap;
            return Err(Corrupt::BitmapCount { group: number, part, stored, counted }.into());
        }
        self.map = Some(BlockMap::new(taken, clusters));
        Ok(())
    }

    /// The buffer of the block bitmap, verified. The bitmap must be initialised.
    pub fn block_bitmap(&self, volume: &Volume, number: GroupNumber) -> Result<Arc<Buffer>> {
        let buffer = volume.read(self.descriptor.block_bitmap)?;
        buffer.check_once(block_use::block_bitmap(number), |bytes| {
            check_block_bitmap(bytes, number, &self.descriptor, volume.layout())?;
            Ok::<_, Error>(())
        })?;
        Ok(buffer)
    }

    /// The buffer of the inode bitmap, verified. The bitmap must be initialised.
    pub fn inode_bitmap(&self, volume: &Volume, number: GroupNumber) -> Result<Arc<Buffer>> {
        let buffer = volume.read(self.descriptor.inode_bitmap)?;
        buffer.check_once(block_use::inode_bitmap(number), |bytes| {
            check_inode_bitmap(bytes, number, &self.descriptor, volume.layout())?;
            let inodes = volume.layout().inodes_per_group() as usize;
            let counted = bitmap::count_zeros(bytes, 0..inodes) as u32;
            let stored = self.descriptor.free_inodes_count;
            if counted != stored {
                let part = GroupPart::InodeBitmap;
                return Err(Corrupt::BitmapCount { group: number, part, stored, counted }.into());
            }
            Ok::<_, Error>(())
        })?;
        Ok(buffer)
    }
}

/// The order of the largest aligned run that `clusters` clusters may hold.
fn order_of(clusters: u32) -> u32 {
    clusters.checked_ilog2().unwrap_or(NO_ORDER)
}
