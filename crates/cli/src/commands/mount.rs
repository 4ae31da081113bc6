//! `mount`: shows the files of an image in a directory.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::mounting::background;
use crate::mounting::log::{self, Destination};
use crate::mounting::options::MountOptions;
use crate::mounting::server::MountServer;
use crate::mounts::registry::MountRegistry;
use anyhow::Context;
use drystone::VolumeName;
use std::path::{Path, PathBuf};

/// Mount an image on a directory
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command returns when the mount can be used; a server in the background keeps it. Any user may
mount an image that they may read and write, through fusermount3; root needs no helper. Other users
see the files only with allow_other.

Options after -o:
  ro                     change nothing; replay a dirty journal in memory
  noload, norecovery     with ro: ignore the journal, show files as a crash left them
  allow_other            let other users in (see user_allow_other in /etc/fuse.conf)
  default_permissions    check permissions even if only root may use the mount
  errors=continue|remount-ro
                         what happens when the image is found damaged [as the image says]
  host-full-wait=SECONDS how long metadata wait for room on a full host [30]
  commit=SECONDS         make changes durable after this time [5]
  memory=SIZE            memory budget for metadata [256M]
  policy=NAME|KEY=VALUE  select variants of mechanisms; separated by ':'
  relatime|noatime|strictatime, nodiratime
                         which accesses change access times [relatime]
  nowriteback            the kernel doesn't gather small writes
  nodelalloc             give every write its blocks at once
  transport=best|rings|device
                         what carries requests [best: rings if they are enabled]
  suid, dev, noexec, threads=N, fsname=NAME
  cp=NUMBER              show a checkpoint of NILFS2, read-only
  remount                change a mount of root: ro or rw, noatime and the like, suid, dev, exec
'drystone mounts' lists what is mounted; 'drystone umount', umount and fusermount3 -u end a mount.
See also drystone-mount(8), docs/src/reference/mount.md.

Examples:
  drystone mount disk.img /mnt
  drystone mount disk.img /mnt -o ro,noload
  drystone mount whole.img#root /mnt
  drystone mount disk.img /mnt -o allow_other,commit=30 --log /var/log/disk.log")]
pub struct Arguments {
    /// The image: a file (raw, qcow2), a block device, nbd://…, rbd:POOL/IMAGE, or a partition of one
    /// (IMAGE#NUMBER or IMAGE#NAME).
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The directory to mount it on. With '-o remount', the only path that is needed.
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Mount options, separated by commas.
    #[arg(short, long, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Threads that serve requests. [default: one per core, at least 2]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: Option<u64>,
    /// Stay in the foreground; messages go to standard error.
    #[arg(short, long)]
    foreground: bool,
    /// Append messages to this file. [default: the system log]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

impl Arguments {
    /// True if this process will serve the mount, and not one that it starts.
    fn serves(&self) -> bool {
        self.foreground || background::is_waited_for()
    }

    /// Reads the options.
    fn mount_options(&self, global: &Global, image: &Path) -> Result<MountOptions, Failure> {
        let mut lists = self.options.clone();
        if global.read_only {
            lists.push("ro".to_owned());
        }
        if let Some(policy) = &global.policy {
            lists.push(format!("policy={}", policy.replace(',', ":")));
        }
        let mut options = MountOptions::parse(&lists).map_err(Failure::Usage)?;
        if let Some(threads) = self.threads {
            options.fuse.threads = usize::try_from(threads).ok();
        }
        let named =
            lists.iter().flat_map(|list| list.split(',')).any(|word| word.starts_with("fsname="));
        if !named {
            options.fuse.source = image.display().to_string();
        }
        options.settle_permissions(rustix::process::geteuid().is_root());
        Ok(options)
    }
}

/// Sends the events of a server to where its messages go; other commands' to standard error.
pub fn start_log(arguments: &Arguments, global: &Global) -> anyhow::Result<()> {
    let destination = match &arguments.log {
        _ if !arguments.serves() => return Ok(()),
        Some(path) => Destination::File(path),
        None if arguments.foreground => Destination::Terminal,
        None => Destination::System,
    };
    log::start(destination, global.verbose)
}

/// Asks the server of a mount to change the mount's options.
fn change(arguments: &Arguments, global: &Global) -> Outcome {
    let name = arguments.directory.as_ref().unwrap_or(&arguments.image);
    let directory = std::fs::canonicalize(name).with_context(|| name.display().to_string())?;
    let mut words = arguments.options.clone();
    if global.read_only {
        words.push("ro".to_owned());
    }
    MountOptions::default().change(&words.join(",")).map_err(Failure::Usage)?;
    let Some(mount) = MountRegistry::read()?.take(&directory) else {
        let name = name.display();
        return Err(anyhow::anyhow!("{name}: no image is mounted there by this user").into());
    };
    Ok(mount.change(&words.join(",")).with_context(|| name.display().to_string())?)
}

/// Fails if nothing may be mounted on a directory. It may hold files, which are hidden meanwhile.
fn check_mount_point(directory: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(directory.is_dir(), "{}: not a directory", directory.display());
    // New programs would find only the image, and not even the command that unmounts it.
    anyhow::ensure!(
        directory != Path::new("/"),
        "/: nothing can be mounted over this machine's root"
    );
    Ok(())
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let full =
        |path: &Path| std::fs::canonicalize(path).with_context(|| path.display().to_string());
    if MountOptions::is_change(&arguments.options) {
        return change(arguments, global);
    }
    let Some(directory) = &arguments.directory else {
        return Err(Failure::Usage("a directory to mount the image on is missing".to_owned()));
    };
    let named = || arguments.image.display().to_string();
    let image = VolumeName::find(&arguments.image).with_context(named)?.full();
    let (image, directory) = (image.with_context(named)?, full(directory)?);
    check_mount_point(&directory)?;
    let mut options = arguments.mount_options(global, &image)?;
    if !arguments.serves() {
        return background::start(&crate::called_as::words()[1..]);
    }
    start_log(arguments, global)?;
    options.open.last_mounted = Some(directory.clone());
    MountServer { image, directory, options }.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_mounted_over_the_root() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(check_mount_point(folder.path()).is_ok());
        assert!(check_mount_point(&folder.path().join("file")).is_err());
        assert!(check_mount_point(Path::new("/")).is_err());
    }
}
