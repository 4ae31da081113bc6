//! The engine in this process: an image, and a thread for each worker.

use super::image::{BenchImage, DIRECTORY, IMAGE_BYTES_MIN, IMAGE_UUID, ImageMedium};
use super::in_process::work;
use super::verify::verify;
use super::{Job, RunOutcome, Target};
use crate::counters::{Snapshot, find_number};
use crate::files::{EngineFiles, remove_tree};
use crate::policy::PolicyChoice;
use crate::workload::{BLOCK_BYTES, Needs};
use anyhow::Result;
use drystone_blockdev::BlockDevice;
use drystone_ext4::{Ext4, MountOptions};
use drystone_mkfs::{JournalSize, MkfsOptions};
use drystone_sync::Arc;
use drystone_sync::atomic::AtomicBool;
use drystone_vfs::{FileSystem, InodeGuard, NewNode, RequestContext};

/// As `mke2fs` chooses for 4 GiB, and for 128 GiB. Between them, by the workers.
const JOURNAL_BYTES: (u64, u64) = (128 << 20, 1 << 30);
const WORKERS_PER_JOURNAL: u64 = 4;
/// Bytes in a group of blocks: as many blocks as a bitmap of one block has bits.
const GROUP_BYTES: u64 = 8 * BLOCK_BYTES * BLOCK_BYTES;
/// As many inodes as a bitmap of one block has bits.
const GROUP_INODES_MAX: u64 = 8 * BLOCK_BYTES;
const INODES_MIN: u64 = 64 << 10;
/// Images with more inodes get the smallest ones.
const LEAN_FROM_INODES: u64 = 1 << 20;
const LEAN_INODE_BYTES: u16 = 128;
/// All metadata of a workload stays in memory, as in a kernel with enough of it.
const MEMORY_BUDGET_BYTES: usize = 1 << 30;
/// Bytes per inode with which all inodes stay in memory.
const BUDGET_BYTES_PER_INODE: usize = 8 << 10;

/// Counters that a table shows as figures of their own, where the engine has them: of the reclaim of
/// cached extents.
const COUNTERS_AS_FIGURES: [&str; 5] =
    ["passes", "longest_pass_us", "mean_pass_us", "longest_pass_cpu_us", "mean_pass_cpu_us"];

/// The engine.
pub struct EngineTarget {
    image: BenchImage,
    delayed_allocation: bool,
    /// Bytes of memory for metadata, if not all of it is to stay in memory.
    memory_budget_bytes: Option<usize>,
    /// Puts a device around the image's, once the image is made.
    wrap: Option<WrapDevice>,
}

/// Makes a device of another.
pub type WrapDevice = Box<dyn Fn(Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice>>;

impl EngineTarget {
    /// The engine on an image, with or without delayed allocation.
    #[must_use]
    pub fn new(place: ImageMedium, delayed_allocation: bool) -> EngineTarget {
        let image = BenchImage::new(place);
        EngineTarget { image, delayed_allocation, memory_budget_bytes: None, wrap: None }
    }

    /// With a bound on the memory for metadata.
    #[must_use]
    pub fn with_memory_budget(self, bytes: Option<usize>) -> EngineTarget {
        EngineTarget { memory_budget_bytes: bytes, ..self }
    }

    /// With a device around the image's.
    #[must_use]
    pub fn on_device(self, wrap: WrapDevice) -> EngineTarget {
        EngineTarget { wrap: Some(wrap), ..self }
    }
}

fn image_options(needs: Needs, workers: u64) -> MkfsOptions {
    let journal_bytes =
        (workers.div_ceil(WORKERS_PER_JOURNAL) * JOURNAL_BYTES.0).min(JOURNAL_BYTES.1);
    let inodes = (needs.inodes + needs.inodes / 8 + 1024).max(INODES_MIN);
    let is_lean = inodes > LEAN_FROM_INODES;
    let inode_bytes = if is_lean { u64::from(LEAN_INODE_BYTES) } else { 256 };
    let size_bytes = (needs.content_bytes + needs.content_bytes / 4)
        + inodes * inode_bytes * 9 / 8
        + 2 * journal_bytes;
    let groups = inodes.div_ceil(GROUP_INODES_MAX);
    let size_bytes = size_bytes
        .max(workers * IMAGE_BYTES_MIN)
        .max((groups + 1) * GROUP_BYTES)
        .next_multiple_of(BLOCK_BYTES);
    let time_seconds = u64::try_from(drystone_sync::clock::wall().0).unwrap_or(0);
    // The same UUID for every run, so that images don't differ between runs.
    let mut options = MkfsOptions::new(size_bytes, IMAGE_UUID, [1, 2, 3, 4], time_seconds);
    options.block_size = Some(BLOCK_BYTES as u32);
    options.inodes = Some(u32::try_from(inodes).unwrap_or(u32::MAX));
    options.inode_size = is_lean.then_some(LEAN_INODE_BYTES);
    options.journal_size = JournalSize::Bytes(journal_bytes);
    options
}

impl Target for EngineTarget {
    fn name(&self) -> &str {
        "engine"
    }

    fn has_policies(&self) -> bool {
        true
    }

    fn run(&mut self, job: Job<'_>, policy: Option<&PolicyChoice>) -> Result<RunOutcome> {
        let needs = job.workload.needs(job.sizes, job.workers);
        let image = image_options(needs, job.workers);
        let device = self.image.prepare(image.size_bytes, &|device, is_zero| {
            drystone_mkfs::make(device, &image, is_zero)?;
            Ok(())
        })?;
        let device = match &self.wrap {
            Some(wrap) => wrap(device),
            None => device,
        };
        let extent_status_bytes = needs.extent_status_bytes.map(|bytes| bytes as usize);
        let inode_bytes = usize::try_from(needs.inodes)?.saturating_mul(BUDGET_BYTES_PER_INODE);
        let options = MountOptions::default()
            .policy(policy.map(|choice| choice.policy).unwrap_or_default())
            .memory_budget_bytes(
                self.memory_budget_bytes.unwrap_or(MEMORY_BUDGET_BYTES.max(inode_bytes)),
            )
            .extent_status_bytes(extent_status_bytes)
            .delayed_allocation(needs.delayed_allocation.unwrap_or(self.delayed_allocation));
        let file_system = Ext4::open(Arc::clone(&device), options)?;
        let context = RequestContext::superuser();
        let top = file_system.root();
        let (name, node) = (DIRECTORY.as_bytes(), NewNode::Directory);
        let root = InodeGuard::create(&file_system, &context, top, name, node, 0o755)?;
        let snapshot = || Snapshot::take(&file_system);
        let mut outcome = work(job, &file_system, &snapshot, root.inode())?;
        for name in COUNTERS_AS_FIGURES {
            let value = find_number(&outcome.counters, name);
            outcome.figures.extend(value.map(|value| (name.to_string(), value)));
        }
        drop(root);
        let never = AtomicBool::new(false);
        let mut files = EngineFiles::new(&file_system, top, &never);
        remove_tree(&mut files, DIRECTORY)?;
        file_system.close()?;
        outcome.clean = verify(&*device, job.verify)?;
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_have_groups_for_all_inodes() {
        let needs = Needs { inodes: 2_000_000, content_bytes: 1 << 20, ..Needs::default() };
        let options = image_options(needs, 1);
        assert!(options.size_bytes / GROUP_BYTES * GROUP_INODES_MAX >= 2_000_000);
        assert_eq!(options.inode_size, Some(LEAN_INODE_BYTES));
        let small = image_options(Needs::default(), 1);
        assert_eq!((small.size_bytes, small.inode_size), (IMAGE_BYTES_MIN, None));
    }
}
