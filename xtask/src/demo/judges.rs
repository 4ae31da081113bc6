//! Readers of an image that aren't ours: the kernel's ext4 where it can be mounted, otherwise the
//! `ext4-view` library.

use crate::process;
use anyhow::{Context, anyhow};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set to compare through `ext4-view` also where the image could be mounted.
const WITHOUT_MOUNT: &str = "DRYSTONE_WITHOUT_MOUNT";

/// The metadata of an inode that is compared.
#[derive(Debug, PartialEq, Eq)]
pub struct ComparedMetadata {
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    /// Content length; zero for what isn't a regular file.
    pub size: u64,
    /// The target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// What only the kernel tells.
    pub more: Option<KernelMetadata>,
}

/// Metadata that only the kernel shows, and `ext4-view` doesn't.
#[derive(Debug, PartialEq, Eq)]
pub struct KernelMetadata {
    pub modified: (i64, i64),
    pub device: u64,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A reader.
pub enum Judge {
    /// The kernel, with the image mounted here.
    Kernel(PathBuf),
    /// The library.
    View(ext4_view::Ext4),
}

impl std::fmt::Display for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Judge::Kernel(_) => "the kernel's mount",
            Judge::View(_) => "ext4-view, without a mount",
        })
    }
}

impl Judge {
    /// The best reader that this machine allows.
    pub fn open(image: &Path, mount_point: &Path) -> anyhow::Result<Judge> {
        let may_mount = std::env::var_os(WITHOUT_MOUNT).is_none();
        if may_mount && rustix::process::geteuid().is_root() {
            let mut mount = Command::new("mount");
            mount.args(["-o", "loop,ro"]).arg(image).arg(mount_point);
            match process::run(&mut mount) {
                Ok(()) => return Ok(Judge::Kernel(mount_point.to_path_buf())),
                Err(error) => eprintln!("can't mount here: {error:#}"),
            }
        }
        let view = ext4_view::Ext4::load_from_path(image)
            .map_err(|error| anyhow!("ext4-view can't read {}: {error}", image.display()))?;
        Ok(Judge::View(view))
    }

    /// Lets go of the image.
    pub fn close(self) -> anyhow::Result<()> {
        match self {
            Judge::Kernel(mount_point) => process::run(Command::new("umount").arg(mount_point)),
            Judge::View(_) => Ok(()),
        }
    }

    /// True if times, devices and extended attributes are seen.
    pub fn tells_more(&self) -> bool {
        matches!(self, Judge::Kernel(_))
    }

    /// The names in a directory of the image, sorted.
    pub fn names(&self, path: &Path) -> anyhow::Result<Vec<OsString>> {
        let mut names = match self {
            Judge::Kernel(mount_point) => names_on_host(&on_mount(mount_point, path))?,
            Judge::View(view) => {
                let mut names = Vec::new();
                for entry in view.read_dir(path.as_os_str().as_bytes())? {
                    let name = entry?.file_name().as_ref().to_vec();
                    if name != b"." && name != b".." {
                        names.push(OsString::from_vec(name));
                    }
                }
                names
            }
        };
        names.sort();
        Ok(names)
    }

    /// What is compared of an inode of the image.
    pub fn facts(&self, path: &Path) -> anyhow::Result<ComparedMetadata> {
        match self {
            Judge::Kernel(mount_point) => facts_on_host(&on_mount(mount_point, path), true),
            Judge::View(view) => {
                let path = path.as_os_str().as_bytes();
                let metadata = view.symlink_metadata(path)?;
                let target = match metadata.is_symlink() {
                    true => Some(view.read_link(path)?.as_ref().to_vec()),
                    false => None,
                };
                let kind = metadata.file_type();
                let type_bits = if kind.is_dir() {
                    0o040_000
                } else if kind.is_symlink() {
                    0o120_000
                } else if kind.is_block_dev() {
                    0o060_000
                } else if kind.is_char_dev() {
                    0o020_000
                } else if kind.is_fifo() {
                    0o010_000
                } else if kind.is_socket() {
                    0o140_000
                } else {
                    0o100_000
                };
                Ok(ComparedMetadata {
                    mode: type_bits | u32::from(metadata.mode()),
                    user: metadata.uid(),
                    group: metadata.gid(),
                    size: if type_bits == 0o100_000 { metadata.len() } else { 0 },
                    target,
                    more: None,
                })
            }
        }
    }

    /// The content of a regular file of the image.
    pub fn content(&self, path: &Path) -> anyhow::Result<Box<dyn Read + '_>> {
        Ok(match self {
            Judge::Kernel(mount_point) => {
                Box::new(std::fs::File::open(on_mount(mount_point, path))?)
            }
            Judge::View(view) => Box::new(view.open(path.as_os_str().as_bytes())?),
        })
    }
}

/// Where an absolute path of the image is on the host.
fn on_mount(mount_point: &Path, path: &Path) -> PathBuf {
    mount_point.join(path.strip_prefix("/").unwrap_or(path))
}

/// The names in a directory of the host, sorted.
pub fn names_on_host(path: &Path) -> anyhow::Result<Vec<OsString>> {
    let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
    let mut names =
        entries.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// What is compared of an inode of the host.
pub fn facts_on_host(path: &Path, more: bool) -> anyhow::Result<ComparedMetadata> {
    let metadata = path.symlink_metadata().with_context(|| path.display().to_string())?;
    let target = match metadata.is_symlink() {
        true => Some(std::fs::read_link(path)?.into_os_string().into_vec()),
        false => None,
    };
    let more = match more {
        true => Some(KernelMetadata {
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            device: metadata.rdev(),
            xattrs: xattrs_on_host(path)?,
        }),
        false => None,
    };
    Ok(ComparedMetadata {
        mode: metadata.mode(),
        user: metadata.uid(),
        group: metadata.gid(),
        size: if metadata.is_file() { metadata.len() } else { 0 },
        target,
        more,
    })
}

fn xattrs_on_host(path: &Path) -> anyhow::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0_u8; 65536];
    let length = match rustix::fs::llistxattr(path, &mut names) {
        Ok(length) => length,
        Err(rustix::io::Errno::NOTSUP) => 0,
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    let mut xattrs = BTreeMap::new();
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0_u8; 65536];
        let length = rustix::fs::lgetxattr(path, name, &mut value)?;
        value.truncate(length);
        xattrs.insert(name.to_vec(), value);
    }
    Ok(xattrs)
}
