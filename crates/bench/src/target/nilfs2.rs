//! The NILFS2 engine in this process, beside that of ext4: the same workloads, the same threads.
//!
//! Of the policies, NILFS2 has `inode-search` alone.

use super::image::{BenchImage, DIRECTORY, IMAGE_BYTES_MIN, IMAGE_UUID, ImageMedium};
use super::in_process::work;
use super::verify::verify_nilfs2;
use super::{Job, RunOutcome, Target};
use crate::counters::Snapshot;
use crate::files::{EngineFiles, remove_tree};
use crate::policy::{PolicyChoice, value_of};
use crate::workload::{BLOCK_BYTES, Needs};
use anyhow::{Result, bail};
use drystone_nilfs2::mkfs::{MakeOptions, make};
use drystone_nilfs2::{MountOptions, Nilfs2};
use drystone_sync::Arc;
use drystone_sync::atomic::AtomicBool;
use drystone_vfs::{FileSystem, InodeGuard, NewNode, RequestContext};
use uuid::Uuid;

const INODE_BYTES: u64 = 128;
/// How many times what a workload has at its end fits into the image: each log rewrites what has
/// changed since the last, and the cleaner isn't what is measured.
const ROOM: u64 = 4;
/// Start value of the sums of the first image. Each has another: a log that an earlier image left in the same memory
/// must not pass for one of this image.
const SEED: u32 = 1;

/// The engine.
pub struct Nilfs2Target {
    image: BenchImage,
    next_seed: u32,
}

impl Nilfs2Target {
    /// The engine on an image.
    #[must_use]
    pub fn new(medium: ImageMedium) -> Nilfs2Target {
        Nilfs2Target { image: BenchImage::new(medium), next_seed: SEED }
    }
}

fn image_bytes(needs: Needs, workers: u64) -> u64 {
    let at_end = needs.content_bytes + needs.inodes * INODE_BYTES;
    (ROOM * at_end).max(2 * workers * IMAGE_BYTES_MIN).next_multiple_of(BLOCK_BYTES)
}

fn mount_options(policy: Option<&PolicyChoice>) -> Result<MountOptions> {
    let mut options = MountOptions::default();
    let Some(PolicyChoice { text, .. }) = policy else { return Ok(options) };
    for part in text.split(',') {
        if let Some((key, _)) = part.split_once('=')
            && key.trim() != "inode-search"
        {
            bail!("NILFS2 has no policy '{}', only inode-search", key.trim());
        }
    }
    if let Some(search) = value_of(text, "inode-search") {
        options.inode_search = search.parse()?;
    }
    Ok(options)
}

impl Target for Nilfs2Target {
    fn name(&self) -> &str {
        "nilfs2"
    }

    fn has_policies(&self) -> bool {
        true
    }

    fn run(&mut self, job: Job<'_>, policy: Option<&PolicyChoice>) -> Result<RunOutcome> {
        let options = mount_options(policy)?;
        let needs = job.workload.needs(job.sizes, job.workers);
        let seed = self.next_seed;
        self.next_seed += 1;
        let device = self.image.prepare(image_bytes(needs, job.workers), &|device, _| {
            let time_s = u64::try_from(drystone_sync::clock::wall().0).unwrap_or(0);
            make(device, &MakeOptions::new(Uuid::from_bytes(IMAGE_UUID), seed, time_s))?;
            Ok(())
        })?;
        let file_system = Nilfs2::mount(Arc::clone(&device), &options)?;
        let context = RequestContext::superuser();
        let top = file_system.root();
        let (name, node) = (DIRECTORY.as_bytes(), NewNode::Directory);
        let root = InodeGuard::create(&file_system, &context, top, name, node, 0o755)?;
        let mut outcome = work(job, &file_system, &Snapshot::of_locks, root.inode())?;
        drop(root);
        let never = AtomicBool::new(false);
        let mut files = EngineFiles::new(&file_system, top, &never);
        remove_tree(&mut files, DIRECTORY)?;
        file_system.unmount()?;
        outcome.clean = verify_nilfs2(&*device, job.verify)?;
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_nilfs2::InodeSearch;

    #[test]
    fn only_the_policy_of_the_inode_search_is_taken() {
        let search = |text: &str| {
            mount_options(Some(&PolicyChoice::parse(text)?)).map(|options| options.inode_search)
        };
        assert_eq!(search("baseline").unwrap(), InodeSearch::First);
        assert_eq!(search("scalable").unwrap(), InodeSearch::PerCore);
        assert_eq!(search("inode-search=next-hint").unwrap(), InodeSearch::NextHint);
        let error = search("orphans=list").unwrap_err().to_string();
        assert!(error.contains("'orphans'"), "{error}");
    }
}
