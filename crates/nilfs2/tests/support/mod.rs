//! What all tests of the engine need.
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(dead_code, reason = "each test uses a part")]

pub mod churn;

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_nilfs2::mkfs::{MakeOptions, make};
use drystone_nilfs2::{MountOptions, Nilfs2};
use drystone_nilfs2_check::{Nilfs2CheckOptions, check};
use drystone_sync::Arc;
use drystone_testkit::tree::{TreeOptions, TreeSnapshot};
use uuid::Uuid;

/// A new image in memory.
pub fn image(mebibytes: u64, block_bytes: u32, blocks_per_segment: u32) -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(mebibytes << 20);
    let options = MakeOptions::new(Uuid::from_u128(1), 0x1234_5678, 1_700_000_000)
        .block_bytes(block_bytes)
        .blocks_per_segment(blocks_per_segment);
    make(&device, &options).unwrap();
    Arc::new(device)
}

/// Mounts an image.
pub fn mount(device: &Arc<MemoryDevice>, options: &MountOptions) -> Nilfs2 {
    let device: Arc<dyn BlockDevice> = Arc::clone(device) as Arc<dyn BlockDevice>;
    Nilfs2::mount(device, options).unwrap()
}

/// Everything that can be seen of a volume.
pub fn tree(fs: &Nilfs2) -> TreeSnapshot {
    TreeSnapshot::read(fs, "/", &TreeOptions::default()).unwrap()
}

/// Panics if the checker finds anything.
pub fn judge(device: &dyn BlockDevice, what: &str) {
    let report = check(device, &Nilfs2CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{what}: {:#?}", report.problems);
}
