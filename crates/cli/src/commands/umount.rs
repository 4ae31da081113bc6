//! `umount`: ends a mount and waits until everything is in the image.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::mounting::server::is_busy;
use crate::mounts::registry::{End, MountRegistry, full_path};
use anyhow::anyhow;
use drystone_fuse::attach::{self, Unmount};
use drystone_sync::thread;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often, and at what interval, a mount without a known server is tested before it counts as served.
const LAST_LOOKS: u32 = 20;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Unmount a directory and wait until everything is in the image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
fusermount3 -u and umount(8) unmount too, but return while the server still writes; see
drystone-mount(8) for how to make umount(8) wait.

Examples:
  drystone umount /mnt
  drystone umount --lazy /mnt")]
pub struct Arguments {
    /// The directories.
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Unmount even if files are open: the mount disappears, and ends when the last one is closed.
    #[arg(short, long)]
    lazy: bool,
}

pub fn run(arguments: &Arguments, _global: &Global) -> Outcome {
    let mut has_failed = false;
    for directory in &arguments.directories {
        if let Err(error) = unmount(directory, arguments.lazy) {
            crate::messages::tell(format_args!("{error:#}"));
            has_failed = true;
        }
    }
    if has_failed { Err(Failure::Reported) } else { Ok(()) }
}

fn unmount(directory: &Path, lazy: bool) -> anyhow::Result<()> {
    let name = directory.display();
    let directory = full_path(directory)?;
    if !attach::is_mounted(&directory) {
        return Err(anyhow!("{name}: no image is mounted there"));
    }
    let mut registry = match MountRegistry::read() {
        // It isn't waited for.
        Err(_) if lazy => MountRegistry::default(),
        registry => registry?,
    };
    let Some(server) = registry.take(&directory) else {
        if let Some(socket) = registry.silent.first().filter(|_| !lazy) {
            return Err(anyhow!(
                "{name}: not unmounted, since it could not be waited for: the server at {} does not \
                 answer; --lazy doesn't wait",
                socket.display()
            ));
        }
        return unmount_unserved(&directory, lazy);
    };
    let wait = server.wait()?;
    take_away(&directory, lazy)?;
    if lazy {
        return Ok(());
    }
    let tell_of_other_users = || {
        if server.is_serving() {
            let process = server.status.process;
            crate::messages::tell(format_args!(
                "{name}: unmounted here, but still mounted elsewhere, perhaps in another mount namespace; \
                 waiting for the end of its server (process {process})"
            ));
        }
    };
    match wait.finish(tell_of_other_users) {
        End::Clean => Ok(()),
        End::Failed(why) => Err(anyhow!("{name}: {why}")),
        End::Killed => Err(anyhow!(
            "{name}: the server ended before it had closed the image; the next mount recovers it"
        )),
    }
}

/// Unmounts a mount without a known server: it was killed, or belongs to another user.
fn unmount_unserved(directory: &Path, lazy: bool) -> anyhow::Result<()> {
    if lazy {
        // A server that hangs would not answer this test.
        return take_away(directory, lazy);
    }
    let name = directory.display();
    let is_dead = is_dead(directory);
    take_away(directory, lazy)?;
    if !is_dead {
        return Err(anyhow!(
            "{name}: unmounted, but not waited for: its server is another user's or not known, and \
             may still write to the image"
        ));
    }
    crate::messages::tell(format_args!(
        "{name}: its server was killed; the next mount recovers the image"
    ));
    Ok(())
}

/// Whether a mount has no server any more. If a server was killed a moment ago and hasn't ended yet,
/// a pending request is aborted when it ends.
fn is_dead(directory: &Path) -> bool {
    for _ in 0..LAST_LOOKS {
        // The kernel answers a stat from memory, but asks the server for this.
        match rustix::fs::statfs(directory) {
            Ok(_) => thread::sleep(LOOK_INTERVAL),
            Err(error) => return matches!(error, Errno::NOTCONN | Errno::CONNABORTED),
        }
    }
    false
}

fn take_away(directory: &Path, lazy: bool) -> anyhow::Result<()> {
    let how = if lazy { Unmount::Lazily } else { Unmount::WhenIdle };
    attach::unmount(directory, how).map_err(|error| {
        if !is_busy(&error) {
            return error.into();
        }
        let name = directory.display();
        anyhow!(
            "{name}: in use: a file is open or a process is in it (see fuser -vm {name}); --lazy \
             unmounts all the same"
        )
    })
}
