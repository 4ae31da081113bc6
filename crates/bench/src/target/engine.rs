//! The engine in this process: an image, and a thread for each worker.

use super::resident::Resident;
use super::verify::verify;
use super::worker::{PhaseReport, run_phase};
use super::{Job, RunOutcome, Target, add_phase};
use crate::counters::{Snapshot, find_number};
use crate::files::{EngineFiles, remove_tree};
use crate::policy::PolicyChoice;
use crate::workload::{BLOCK_BYTES, Needs, PhaseKind};
use anyhow::{Context, Result, anyhow};
use drystone_blockdev::{BlockDevice, Existing, FileDevice, OpenMode};
use drystone_ext4::{Ext4, MountOptions};
use drystone_mkfs::{JournalSize, MkfsOptions};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, Barrier, thread};
use drystone_vfs::{FileSystem, InodeNumber, NewNode, RequestContext};
use drystone_volumes::VolumeName;
use std::path::PathBuf;

/// The directory that workloads run in.
const DIRECTORY: &str = "drystone-bench";
/// Images are at least so large for each worker, so that there are groups to choose from.
const IMAGE_BYTES_MIN: u64 = 1 << 30;
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

/// Where the image is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageMedium {
    /// In memory, made anew for every run.
    Memory,
    /// In a file or another volume. An existing image is used as it is and cleaned up after every run; otherwise an
    /// image is made for every run.
    File(PathBuf),
}

/// The engine.
pub struct EngineTarget {
    place: ImageMedium,
    /// The file didn't exist when the target was made, so it may be overwritten.
    is_ours: bool,
    /// Kept between runs so that its memory is reused.
    memory: Option<Arc<Resident>>,
    delayed_allocation: bool,
    /// Bytes of memory for metadata, if not all of it is to stay in memory.
    memory_budget_bytes: Option<usize>,
}

impl EngineTarget {
    /// The engine on an image, with or without delayed allocation.
    #[must_use]
    pub fn new(place: ImageMedium, delayed_allocation: bool) -> EngineTarget {
        let is_ours = match &place {
            ImageMedium::Memory => true,
            ImageMedium::File(path) => {
                !VolumeName::find(path).is_ok_and(|name| name.source().exists())
            }
        };
        EngineTarget { place, is_ours, memory: None, delayed_allocation, memory_budget_bytes: None }
    }

    /// With a bound on the memory for metadata.
    #[must_use]
    pub fn with_memory_budget(self, bytes: Option<usize>) -> EngineTarget {
        EngineTarget { memory_budget_bytes: bytes, ..self }
    }

    /// A device with an image for a job.
    fn prepare(&mut self, needs: Needs, workers: u64) -> Result<Arc<dyn BlockDevice>> {
        let options = image_options(needs, workers);
        match &self.place {
            ImageMedium::Memory => {
                let is_large_enough =
                    |device: &&Arc<Resident>| device.size_bytes() >= options.size_bytes;
                let kept = self.memory.as_ref().filter(is_large_enough).cloned();
                let is_new = kept.is_none();
                let device = kept.unwrap_or_else(|| Arc::new(Resident::new(options.size_bytes)));
                self.memory = Some(Arc::clone(&device));
                drystone_mkfs::make(&*device, &options, is_new)?;
                Ok(device)
            }
            ImageMedium::File(path) if self.is_ours => {
                let device = FileDevice::create(path, options.size_bytes, Existing::Overwrite)?;
                drystone_mkfs::make(&device, &options, true)?;
                Ok(Arc::new(device))
            }
            ImageMedium::File(path) => {
                let named = || path.display().to_string();
                let name = VolumeName::find_whole(path).with_context(named)?;
                drystone_volumes::open(&name, OpenMode::ReadWrite).with_context(named)
            }
        }
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
    let mut options =
        MkfsOptions::new(size_bytes, *b"drystone-bench..", [1, 2, 3, 4], time_seconds);
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
        let device = self.prepare(needs, job.workers)?;
        let extent_status_bytes = needs.extent_status_bytes.map(|bytes| bytes as usize);
        let inode_bytes = usize::try_from(needs.inodes)?.saturating_mul(BUDGET_BYTES_PER_INODE);
        let options = MountOptions {
            policy: policy.map(|choice| choice.policy).unwrap_or_default(),
            memory_budget_bytes: self
                .memory_budget_bytes
                .unwrap_or(MEMORY_BUDGET_BYTES.max(inode_bytes)),
            extent_status_bytes,
            delayed_allocation: needs.delayed_allocation.unwrap_or(self.delayed_allocation),
            ..MountOptions::default()
        };
        let file_system = Ext4::open(Arc::clone(&device), options)?;
        let context = RequestContext::superuser();
        let top = file_system.root();
        let root =
            file_system.create(&context, top, DIRECTORY.as_bytes(), NewNode::Directory, 0o755)?;
        let mut outcome = work(job, &file_system, root.inode)?;
        for name in COUNTERS_AS_FIGURES {
            let value = find_number(&outcome.counters, name);
            outcome.figures.extend(value.map(|value| (name.to_string(), value)));
        }
        file_system.forget(root.inode, 1);
        let never = AtomicBool::new(false);
        let mut files = EngineFiles::new(&file_system, top, &never);
        remove_tree(&mut files, DIRECTORY)?;
        file_system.close()?;
        outcome.clean = verify(&*device, job.verify)?;
        Ok(outcome)
    }
}

/// Takes all workers through all phases.
fn work(job: Job<'_>, file_system: &Ext4, root: InodeNumber) -> Result<RunOutcome> {
    let phases = job.workload.phases();
    // The workers and this thread, which reads the counters while the workers wait.
    let barrier = Barrier::new(job.workers as usize + 1);
    let failed = AtomicBool::new(false);
    let mut outcome = RunOutcome::default();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..job.workers)
            .map(|index| {
                let (barrier, failed) = (&barrier, &failed);
                scope.spawn(move || {
                    let mut worker = job.workload.worker(job.sizes, index, job.workers);
                    let mut files = EngineFiles::new(file_system, root, job.stop);
                    let mut reports = Vec::new();
                    let mut error = None;
                    for &phase in phases {
                        barrier.wait();
                        if !failed.load(Ordering::SeqCst) {
                            match run_phase(&mut *worker, phase, index, &mut files) {
                                Ok(report) => reports.push(report),
                                Err(why) => {
                                    failed.store(true, Ordering::SeqCst);
                                    error = Some(why);
                                }
                            }
                        }
                        barrier.wait();
                    }
                    match error {
                        Some(error) => Err(error),
                        None => Ok(reports),
                    }
                })
            })
            .collect();
        let mut trouble = None;
        for phase in phases {
            let is_main = phase.kind == PhaseKind::Main;
            if phase.kind != PhaseKind::Aside && phase.kind != PhaseKind::Shared {
                // What came before shall not be written meanwhile.
                trouble = trouble.or(file_system.sync().err());
            }
            let before = is_main.then(|| Snapshot::take(file_system));
            barrier.wait();
            barrier.wait();
            if let Some(before) = before {
                outcome.counters = before.until(&Snapshot::take(file_system));
            }
        }
        let results: Vec<Result<Vec<PhaseReport>>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a worker panicked"))))
            .collect();
        let reports = results.into_iter().collect::<Result<Vec<_>>>()?;
        for (place, phase) in phases.iter().enumerate() {
            let of_phase: Vec<PhaseReport> =
                reports.iter().filter_map(|all| all.get(place).cloned()).collect();
            add_phase(&mut outcome, phase.kind, &of_phase);
        }
        trouble.map_or(Ok(outcome), |error| Err(error.into()))
    })
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
