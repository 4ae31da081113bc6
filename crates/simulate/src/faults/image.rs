//! The images that runs begin with.

use super::workload;
use anyhow::{Result, ensure};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::{Ext4, MountOptions};
use drystone_ext4_format::features::Incompat;
use drystone_mkfs::{JournalSize, MkfsOptions, default_features};
use drystone_sync::Arc;
use drystone_sync::sim::{self, MachineModel, SimulationSettings, Work};
use drystone_testkit::model::Configuration;
use drystone_testkit::operations::Executor;
use drystone_vfs::{FallocateMode, FileSystem, NewNode, RequestContext};

/// Virtual time from one event to the next.
const EVENT_PS: u64 = 20_000_000;
const BLOCK_SIZE: u32 = 1024;
const IMAGE_BYTES: u64 = 8 << 20;
const JOURNAL_BYTES: u64 = 1 << 20;
/// Blocks that are free in a crowded image.
const FREE_BLOCKS: u64 = 40;

/// A kind of image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Much room.
    Roomy,
    /// Small files in their inodes.
    Inline,
    /// So full that what is freed is used again soon.
    Crowded,
}

impl Shape {
    pub const ALL: [Shape; 3] = [Shape::Roomy, Shape::Inline, Shape::Crowded];

    /// The limits of the model.
    pub fn configuration(self) -> Configuration {
        Configuration::with_block_size(BLOCK_SIZE)
    }

    fn make(self) -> Result<MemoryDevice> {
        let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
        let mut features = default_features();
        if self == Shape::Inline {
            features.incompat.insert(Incompat::INLINE_DATA);
        }
        let options = MkfsOptions::new(IMAGE_BYTES, [7; 16], [1, 2, 3, 4], 1_700_000_000)
            .block_size(BLOCK_SIZE)
            .journal_size(JournalSize::Bytes(JOURNAL_BYTES))
            .features(features)
            .reserved_percent(0.0);
        drystone_mkfs::make(&*device, &options, true)?;
        let fs = Ext4::open(Arc::clone(&device) as Arc<dyn BlockDevice>, MountOptions::default())?;
        let mut executor = Executor::new(&fs);
        for operation in workload::setup() {
            let outcome = executor.apply(&operation);
            ensure!(outcome.0.is_ok(), "{operation}: {outcome}");
        }
        drop(executor);
        if self == Shape::Crowded {
            fill(&fs)?;
        }
        fs.close()?;
        drop(fs);
        Ok(device.snapshot())
    }
}

/// Leaves only [`FREE_BLOCKS`].
fn fill(fs: &dyn FileSystem) -> Result<()> {
    let context = RequestContext::superuser();
    let file = fs.create(&context, fs.root(), b"filler", NewNode::Regular, 0o600)?;
    let blocks = fs.statistics()?.blocks_available.saturating_sub(FREE_BLOCKS);
    let mode = FallocateMode::Allocate { keep_size: false };
    fs.fallocate(&context, file.inode, mode, 0, blocks * u64::from(BLOCK_SIZE))?;
    fs.forget(file.inode, 1);
    Ok(())
}

/// An image of each kind.
pub struct Images(Vec<MemoryDevice>);

impl Images {
    pub fn make() -> Result<Images> {
        let images = Shape::ALL.iter().map(|shape| sim::run(&in_order(4), || shape.make()).0);
        images.collect::<Result<_>>().map(Images)
    }

    pub fn of(&self, shape: Shape) -> &MemoryDevice {
        &self.0[shape as usize]
    }
}

/// The settings of what is done before and after a run.
pub fn in_order(cores: usize) -> SimulationSettings {
    SimulationSettings::new(MachineModel::even(), cores, Work::Constant(EVENT_PS))
}
