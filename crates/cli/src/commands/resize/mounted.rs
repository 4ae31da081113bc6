//! Grows an image that is mounted: asks the server of the mount to.

use super::{ResizedJson, tell_resized};
use crate::failure::Outcome;
use crate::global::Global;
use crate::mounts::registry::MountRegistry;
use crate::mounts::status::{ShapeStatus, Status};
use crate::progress::Steps;
use anyhow::{Context, anyhow};
use drystone::FileSystemKind;
use drystone::reshape::NewSize;
use drystone::vfs::DeviceNumber;
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::thread;
use rustix::fs::{major, minor};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// How often the server is asked how far it is.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Grows the image whose mount a directory is in.
pub fn grow(directory: &Path, size: NewSize, global: &Global) -> Outcome {
    let name = directory.display();
    let open = File::open(directory).with_context(|| name.to_string())?;
    let device = open.metadata().with_context(|| name.to_string())?.dev();
    let device = DeviceNumber { major: major(device), minor: minor(device) };
    let look = || -> anyhow::Result<Option<Status>> {
        let running = MountRegistry::read()?.running;
        Ok(running
            .into_iter()
            .map(|mount| mount.status)
            .find(|status| status.device == Some(device)))
    };
    let status = look()?.with_context(|| {
        format!("{name}: neither an image nor in a mount of drystone that belongs to you")
    })?;
    let Some(before) = status.shape else {
        let kind = FileSystemKind::Nilfs2;
        return Err(
            anyhow!("{name}: {kind} can't grow while it is mounted: unmount it first").into()
        );
    };
    let block_size = u64::from(before.block_size);
    let bytes_before = before.blocks * block_size;
    let bytes = match size {
        NewSize::Exactly(bytes) => bytes,
        NewSize::More(bytes) => bytes_before.saturating_add(bytes),
        NewSize::Less(_) | NewSize::Minimum => 0,
    };
    let blocks = bytes / block_size;
    if blocks < before.blocks {
        let problem = "a mounted image can't become smaller: unmount it first";
        return Err(anyhow!("{name}: {problem}").into());
    }
    grow_watched(&open, blocks, global, || look().ok().flatten()?.shape)
        .map_err(|errno| anyhow!("{name}: {}", reason(errno)))?;
    let after = look()?.and_then(|status| status.shape);
    let after = after.with_context(|| format!("{name}: grown, but no longer mounted"))?;
    tell_resized(
        directory,
        &ResizedJson {
            block_size: after.block_size,
            blocks_before: before.blocks,
            blocks: after.blocks,
            groups: after.groups,
            inodes: after.inodes,
            blocks_moved: 0,
            inodes_moved: 0,
        },
        global,
    )
}

/// Grows an image, and shows how far the server is if it takes long.
fn grow_watched(
    directory: &File,
    blocks: u64,
    global: &Global,
    look: impl Fn() -> Option<ShapeStatus> + Sync,
) -> Result<(), Errno> {
    let steps = Steps::new(global.quiet);
    if !steps.are_shown() {
        return drystone_fuse::grow(directory, blocks);
    }
    let has_grown = AtomicBool::new(false);
    thread::scope(|scope| {
        // It can do without the line.
        let _ = thread::spawn_in(scope, "progress", || {
            while !has_grown.load(Ordering::Relaxed) {
                thread::sleep(LOOK_INTERVAL);
                if let Some(shape) = look() {
                    steps.step("growing", shape.blocks, blocks);
                }
            }
            steps.end();
        });
        let _end = thread::at_end(|| has_grown.store(true, Ordering::Relaxed));
        drystone_fuse::grow(directory, blocks)
    })
}

/// What a server's refusal means here.
fn reason(errno: Errno) -> String {
    match errno {
        Errno::PERM => "only root and the user who mounted it may resize it".to_owned(),
        Errno::NOSPC => {
            "the device, or the host's file system, has no room for it; or its journal is too small to grow while \
             it is mounted"
                .to_owned()
        }
        Errno::BUSY => "it is frozen".to_owned(),
        Errno::ROFS => "it is mounted read-only".to_owned(),
        Errno::INVAL => "it can't have this size: it lacks the feature 64bit, or would have more inodes than there are \
             numbers for"
            .to_owned(),
        Errno::UCLEAN => "it has errors: unmount it and see 'drystone check'".to_owned(),
        Errno::NOTTY | Errno::OPNOTSUPP => "its server can't resize it: unmount it first".to_owned(),
        errno => errno.to_string(),
    }
}
