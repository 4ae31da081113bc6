//! Checks the image that a run has left.

use anyhow::{Context, Result};
use drystone_blockdev::BlockDevice;
use drystone_testkit::judges;
use std::path::PathBuf;

/// Problems of an image that are shown; all are counted.
const PROBLEMS_SHOWN: usize = 5;

/// How much an image is checked after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Not at all.
    Nothing,
    /// By our checker.
    Quick,
    /// By our checker, and by `e2fsck -fn` where it is installed.
    Thorough,
}

/// Whether the image on `device` is consistent; problems go to standard error.
pub fn verify(device: &dyn BlockDevice, how: Verify) -> Result<Option<bool>> {
    if how == Verify::Nothing {
        return Ok(None);
    }
    let options = drystone_fsck::CheckOptions::default().problems_max(PROBLEMS_SHOWN);
    let report = drystone_fsck::check(device, &options, &mut |_| {})
        .context("the image can't be checked after the run")?;
    for problem in &report.problems {
        eprintln!("drystone bench: {problem}");
    }
    let mut is_clean = report.is_clean();
    if how == Verify::Thorough {
        is_clean &= accepted_by_e2fsck(device)?;
    }
    Ok(Some(is_clean))
}

/// Whether the image of NILFS2 on `device` is consistent; problems go to standard error.
pub fn verify_nilfs2(device: &dyn BlockDevice, how: Verify) -> Result<Option<bool>> {
    if how == Verify::Nothing {
        return Ok(None);
    }
    let options = drystone_nilfs2_check::Nilfs2CheckOptions::default().problems_max(PROBLEMS_SHOWN);
    let report = drystone_nilfs2_check::check(device, &options)
        .context("the image can't be checked after the run")?;
    for problem in &report.problems {
        eprintln!("drystone bench: {problem}");
    }
    Ok(Some(report.is_clean()))
}

/// True also where e2fsck isn't installed.
fn accepted_by_e2fsck(device: &dyn BlockDevice) -> Result<bool> {
    if judges::run("e2fsck", ["-V"]).is_err() {
        return Ok(true);
    }
    let shared_memory = PathBuf::from("/dev/shm");
    let folder = if shared_memory.is_dir() { shared_memory } else { std::env::temp_dir() };
    let image = tempfile::Builder::new().prefix("drystone-bench-").tempfile_in(folder)?;
    judges::write_image(device, image.path())
        .with_context(|| format!("can't copy the image to {}", image.path().display()))?;
    let judgement = judges::e2fsck_check(image.path()).context("can't run e2fsck")?;
    if !judgement.is_clean() {
        eprintln!("drystone bench: e2fsck -fn ended with {}", judgement.code);
        for line in judgement.output.lines().take(PROBLEMS_SHOWN) {
            eprintln!("    {line}");
        }
    }
    Ok(judgement.is_clean())
}
