//! `umount`: ends a mount and waits until everything is in the image.

use crate::arguments::Global;
use crate::failure::{Failure, Outcome};
use crate::mounting::registry::{End, running};
use crate::mounting::server::is_busy;
use anyhow::{Context, anyhow};
use drystone_fuse::attach::{self, Unmount};
use std::path::{Path, PathBuf};

/// Unmount a directory and wait until everything is in the image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
umount(8) and fusermount3 -u end a mount as well, but return while the server still writes.

Examples:
  drystone umount /mnt
  drystone umount --lazy /mnt")]
pub struct Arguments {
    /// The directories.
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Also when files are open: the mount disappears, and ends when the last of them is closed.
    #[arg(short, long)]
    lazy: bool,
}

pub fn run(arguments: &Arguments, _global: &Global) -> Outcome {
    let mut has_failed = false;
    for directory in &arguments.directories {
        if let Err(error) = unmount(directory, arguments.lazy) {
            eprintln!("drystone: {error:#}");
            has_failed = true;
        }
    }
    if has_failed { Err(Failure::Reported) } else { Ok(()) }
}

fn unmount(directory: &Path, lazy: bool) -> anyhow::Result<()> {
    let name = directory.display();
    let directory = full_path(directory)?;
    // The last one is the one that is seen, if there are several on a directory.
    let server = running().into_iter().rfind(|mount| mount.status.directory == directory);
    let server =
        server.ok_or_else(|| anyhow!("{name}: no image is mounted there by 'drystone mount'"))?;
    let wait = server.wait()?;
    let how = if lazy { Unmount::Lazily } else { Unmount::WhenIdle };
    if let Err(error) = attach::unmount(&directory, how) {
        if is_busy(&error) {
            return Err(anyhow!(
                "{name}: in use: a file is open or a process is in it (see fuser -vm {name}); \
                 --lazy unmounts all the same"
            ));
        }
        return Err(error.into());
    }
    if lazy {
        return Ok(());
    }
    match wait.finish() {
        End::Clean => Ok(()),
        End::Failed(why) => Err(anyhow!("{name}: {why}")),
        End::Killed => Err(anyhow!(
            "{name}: the server ended before it had closed the image; the next mount recovers it"
        )),
    }
}

/// The full path of a directory, which itself may not answer: its server may be dead.
fn full_path(directory: &Path) -> anyhow::Result<PathBuf> {
    if let Ok(path) = std::fs::canonicalize(directory) {
        return Ok(path);
    }
    let name = || directory.display().to_string();
    let path = std::path::absolute(directory).with_context(name)?;
    let (Some(parent), Some(last)) = (path.parent(), path.file_name()) else { return Ok(path) };
    Ok(std::fs::canonicalize(parent).with_context(name)?.join(last))
}
