//! Mounts and unmounts: gives a descriptor of the FUSE device for a new mount.
//!
//! The superuser calls mount(2). For other users the set-user-id program `fusermount3` does it: it checks
//! that the caller may mount, and passes the descriptor back over a socket.

use crate::dirty_limit;
pub use crate::mount_table::{device_on, is_mounted, is_on};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The device.
const DEVICE: &str = "/dev/fuse";

/// Programs that mount for ordinary users, in the order they are looked for.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];

/// Why a mount or an unmount failed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The device isn't there or may not be opened.
    #[error("can't open {DEVICE} (is the fuse module loaded?): {0}")]
    Device(#[source] Errno),
    /// The mount point isn't a directory that can be looked at.
    #[error("can't mount on {}: {source}", path.display())]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: Errno,
    },
    /// mount(2) refused.
    #[error("can't mount on {}: {source}", path.display())]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: Errno,
    },
    /// umount(2) refused.
    #[error("can't unmount {}: {source}", path.display())]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: Errno,
    },
    /// The program that mounts for ordinary users isn't there or failed.
    #[error("{program}: {reason}")]
    Helper {
        /// The program.
        program: &'static str,
        /// What it said.
        reason: String,
    },
}

/// The mount flags about access times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessTimeFlags {
    /// `noatime`.
    pub never: bool,
    /// `strictatime`.
    pub always: bool,
    /// `nodiratime`.
    pub not_of_directories: bool,
}

impl AccessTimeFlags {
    fn flags(self) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::NOATIME, self.never);
        flags.set(MountFlags::STRICTATIME, self.always);
        // The default, but not where a mount is changed.
        flags.set(MountFlags::RELATIME, !self.never && !self.always);
        flags.set(MountFlags::NODIRATIME, self.not_of_directories);
        flags
    }
}

/// How a file system is mounted.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MountOptions {
    /// What is mounted, as `mount` and `df` show it.
    pub source: String,
    /// What comes after `fuse.` in the type.
    pub subtype: String,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Users other than the mounting one may use it.
    pub allow_other: bool,
    /// The kernel checks permissions.
    pub default_permissions: bool,
    /// Set-user-id bits count. For the superuser only.
    pub set_user_id: bool,
    /// Device nodes count. For the superuser only.
    pub devices: bool,
    /// No program may be run.
    pub no_execution: bool,
    /// What the mount table says about access times, which the server keeps.
    pub access_times: AccessTimeFlags,
    /// Bytes that a read may have at most; zero: as the kernel likes.
    pub read_max: u32,
}

drystone_options::setters! {
    MountOptions {
        source: impl Into<String>,
        subtype: impl Into<String>,
        read_only: bool,
        allow_other: bool,
        default_permissions: bool,
        set_user_id: bool,
        devices: bool,
        no_execution: bool,
        access_times: AccessTimeFlags,
        read_max: u32,
    }
}

impl MountOptions {
    /// The part that the FUSE module understands.
    fn data(&self) -> String {
        let mut data = String::new();
        if self.default_permissions {
            data.push_str(",default_permissions");
        }
        if self.allow_other {
            data.push_str(",allow_other");
        }
        if self.read_max > 0 {
            data.push_str(&format!(",max_read={}", self.read_max));
        }
        data
    }

    fn flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NOSUID, !self.set_user_id);
        flags.set(MountFlags::NODEV, !self.devices);
        flags.set(MountFlags::NOEXEC, self.no_execution);
        flags | self.access_times.flags()
    }
}

/// The path of a mount point as the mount table names it: absolute, and without symbolic links.
///
/// # Errors
///
/// There is no such directory, or it can't be reached.
pub(crate) fn mount_point(directory: &Path) -> Result<PathBuf, AttachError> {
    std::fs::canonicalize(directory).map_err(|error| AttachError::MountPoint {
        path: directory.to_owned(),
        source: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })
}

/// Mounts on `target`, and gives the descriptor that requests come from.
pub fn mount(target: &Path, options: &MountOptions) -> Result<OwnedFd, AttachError> {
    if rustix::process::geteuid().is_root() {
        mount_directly(target, options)
    } else {
        mount_with_helper(target, options)
    }
}

fn mount_directly(target: &Path, options: &MountOptions) -> Result<OwnedFd, AttachError> {
    let failed = |source| AttachError::MountPoint { path: target.to_owned(), source };
    let root_mode = rustix::fs::stat(target).map_err(failed)?.st_mode & 0o170_000;
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(AttachError::Device)?;
    let data = format!(
        "fd={},rootmode={root_mode:o},user_id={},group_id={}{}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        options.data()
    );
    let data = CString::new(data).map_err(|_| failed(Errno::INVAL))?;
    let kind = match options.subtype.as_str() {
        "" => String::from("fuse"),
        subtype => format!("fuse.{subtype}"),
    };
    rustix::mount::mount(options.source.as_str(), target, kind, options.flags(), data.as_c_str())
        .map_err(|source| AttachError::Mount { path: target.to_owned(), source })?;
    if let Some(number) = device_on(target) {
        dirty_limit::lift(number);
    }
    Ok(device)
}

/// Changes the flags of a mount. What has been written goes to the server first if nothing may be changed
/// any more.
///
/// # Errors
///
/// `EBUSY` if nothing is to be changed and a file is open for writing; `EPERM` unless the superuser calls.
pub fn remount(target: &Path, options: &MountOptions) -> Result<(), AttachError> {
    rustix::mount::mount_remount(target, options.flags(), c"")
        .map_err(|source| AttachError::Mount { path: target.to_owned(), source })
}

fn mount_with_helper(target: &Path, options: &MountOptions) -> Result<OwnedFd, AttachError> {
    let mut words = format!("fsname={}{}", escaped(&options.source), options.data());
    if !options.subtype.is_empty() {
        words.push_str(&format!(",subtype={}", escaped(&options.subtype)));
    }
    let flags = [
        (options.read_only, ",ro"),
        // The kernel doesn't know the other flags.
        (options.access_times.never, ",noatime"),
        (options.no_execution, ",noexec"),
    ];
    for (set, word) in flags {
        if set {
            words.push_str(word);
        }
    }
    let mut missing = None;
    for program in HELPERS {
        let failed = |reason: String| AttachError::Helper { program, reason };
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|error| failed(error.to_string()))?;
        // The socket is the child's standard input, which needs no descriptor to be passed on.
        let child = Command::new(program)
            .args(["-o", &words, "--"])
            .arg(target)
            .env("_FUSE_COMMFD", "0")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                missing.get_or_insert(not_started(program, &error));
                continue;
            }
        };
        let device = receive_descriptor(&ours);
        drop(ours);
        let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
        return match device {
            Some(device) if output.status.success() => Ok(device),
            _ => Err(failed(message_of(&output.stderr, output.status))),
        };
    }
    Err(missing.unwrap_or(AttachError::Device(Errno::NOENT)))
}

/// Why a helper can't be run.
fn not_started(program: &'static str, error: &io::Error) -> AttachError {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "not found; only root mounts without it (Debian: fuse3)".into(),
        _ => error.to_string(),
    };
    AttachError::Helper { program, reason }
}

/// Escapes commas and backslashes in a comma-separated list.
fn escaped(word: &str) -> String {
    word.replace('\\', "\\\\").replace(',', "\\,")
}

/// The first descriptor that comes over a socket; none if the other side closes it before.
fn receive_descriptor(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    loop {
        let mut data = [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

fn message_of(stderr: &[u8], status: std::process::ExitStatus) -> String {
    let text = String::from_utf8_lossy(stderr);
    match text.trim() {
        "" => format!("failed with {status}"),
        text => text.trim_start_matches("fusermount3: ").to_string(),
    }
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Refused with `EBUSY` while a file is open or a process is in it.
    WhenIdle,
    /// The mount disappears at once, and ends with its last user.
    Lazily,
}

/// Unmounts.
pub fn unmount(target: &Path, how: Unmount) -> Result<(), AttachError> {
    let flags = match how {
        Unmount::WhenIdle => UnmountFlags::empty(),
        Unmount::Lazily => UnmountFlags::DETACH,
    };
    let failed = |source| AttachError::Unmount { path: target.to_owned(), source };
    match rustix::mount::unmount(target, flags | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => unmount_with_helper(target, how),
        result => result.map_err(failed),
    }
}

fn unmount_with_helper(target: &Path, how: Unmount) -> Result<(), AttachError> {
    let mut missing = None;
    for program in HELPERS {
        let mut command = Command::new(program);
        command.arg(if how == Unmount::Lazily { "-uz" } else { "-u" }).arg("--").arg(target);
        match command.stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let reason = message_of(&output.stderr, output.status);
                return Err(AttachError::Helper { program, reason });
            }
            Err(error) => {
                missing.get_or_insert(not_started(program, &error));
            }
        }
    }
    Err(missing.unwrap_or(AttachError::Device(Errno::NOENT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_backslashes_in_options_are_escaped() {
        assert_eq!(escaped(r"a,b\c"), r"a\,b\\c");
    }

    #[test]
    fn options_become_words() {
        let options = MountOptions {
            allow_other: true,
            default_permissions: true,
            read_max: 4096,
            ..MountOptions::default()
        };
        assert_eq!(options.data(), ",default_permissions,allow_other,max_read=4096");
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RELATIME;
        assert_eq!(options.flags(), flags);
    }

    #[test]
    fn a_missing_mount_point_is_named() {
        let missing = Path::new("/nonexistent/mount point");
        let error = mount_directly(missing, &MountOptions::default()).unwrap_err();
        assert!(
            matches!(&error, AttachError::MountPoint { path, .. } if path == missing),
            "{error}"
        );
        assert!(!is_mounted(missing));
    }
}
