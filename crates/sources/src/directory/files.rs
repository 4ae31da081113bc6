//! The files of a directory by number: their paths, and their state when they were listed.
//!
//! # Locking
//! One lock, around the deep directories that are kept open, held for moments.

use crate::version::FileVersion;
use drystone_mkfs::tree::{ContentSource, SourceError};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, LockClass, Mutex, OnceLock};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

/// The table of directories that are kept open.
static DEEP: LockClass = LockClass::new("deep directories", 113);

/// The longest path that is opened with one call; Linux takes 4095 bytes.
const PATH_LENGTH_MAX: usize = 4000;
/// Directories that are kept open, if the tree has longer paths than that.
const DEEP_MAX: usize = 8;
/// The place of the root.
pub(super) const ROOT: u32 = 0;

/// Something with a name: a directory, or a file with data.
#[derive(Clone, Copy, Debug)]
struct NamedPlace {
    parent: u32,
    name_length: u8,
    name_start: u64,
}

/// Names and places of what was found; directories and files share one sequence of numbers.
#[derive(Debug, Default)]
pub(super) struct NamedPlaces {
    places: Vec<NamedPlace>,
    names: Vec<u8>,
    /// By number; those of directories aren't used.
    versions: Vec<FileVersion>,
}

impl NamedPlaces {
    /// Adds something and returns its number; none after 2^32.
    pub fn add(&mut self, parent: u32, name: &[u8], stat: &Stat) -> Option<u32> {
        let number = u32::try_from(self.places.len()).ok()?;
        self.places.push(NamedPlace {
            parent,
            // The host's names aren't longer.
            name_length: name.len().min(255) as u8,
            name_start: self.names.len() as u64,
        });
        self.names.extend_from_slice(name);
        self.versions.push(FileVersion::from(stat));
        Some(number)
    }

    fn name(&self, place: NamedPlace) -> &[u8] {
        let start = place.name_start as usize;
        &self.names[start..start + usize::from(place.name_length)]
    }

    /// The path from the root, without a slash in front.
    pub fn path(&self, number: u32) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = number;
        while at != ROOT {
            let place = self.places[at as usize];
            names.push(self.name(place));
            at = place.parent;
        }
        names.reverse();
        names.join(&b'/')
    }
}

/// A directory that was opened on the way to something that lies deeper.
#[derive(Debug)]
struct DeepDirectory {
    path: Vec<u8>,
    fd: OwnedFd,
}

/// The deep directories that were used last. Opening everything from the root would take time
/// proportional to the square of the tree's depth.
#[derive(Debug)]
struct DeepDirectories(Mutex<VecDeque<Arc<DeepDirectory>>>);

impl DeepDirectories {
    /// One that `path` leads through.
    fn on_the_way_to(&self, path: &[u8]) -> Option<Arc<DeepDirectory>> {
        let leads_through = |directory: &&Arc<DeepDirectory>| {
            path.strip_prefix(&*directory.path).is_some_and(|rest| rest.starts_with(b"/"))
        };
        self.0.lock().iter().find(leads_through).cloned()
    }

    /// Keeps a directory, which is the first to be tried from now on.
    fn keep(&self, directory: &Arc<DeepDirectory>) {
        let mut kept = self.0.lock();
        kept.retain(|other| !Arc::ptr_eq(other, directory));
        kept.push_front(Arc::clone(directory));
        kept.truncate(DEEP_MAX);
    }
}

/// Opens a path below a directory without following a symbolic link anywhere in it.
pub(super) fn open_without_links(
    from: &OwnedFd,
    path: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    open_beneath(from, path, flags, ResolveFlags::NO_SYMLINKS)
}

/// Opens a path below a directory. One that leads out of it is refused with `XDEV`, whether by `..`, from
/// the root, or through a symbolic link. A kernel that can't tell where links lead follows none.
#[cfg(feature = "oci")]
pub(crate) fn open_within(from: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    open_beneath(from, path, flags, ResolveFlags::empty())
}

fn open_beneath(
    from: &OwnedFd,
    path: &[u8],
    flags: OFlags,
    how: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let how = ResolveFlags::BENEATH | how;
    match rustix::fs::openat2(from, path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
        // Linux has this call since 5.6, and some sandboxes forbid it.
        Err(Errno::NOSYS | Errno::PERM) => open_step_by_step(from, path, flags),
        opened => opened,
    }
}

pub(super) fn open_step_by_step(
    from: &OwnedFd,
    path: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let open = |from: &OwnedFd, name: &[u8], flags: OFlags| {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(from, name, flags, Mode::empty())
    };
    if path.starts_with(b"/") || path.split(|&byte| byte == b'/').any(|name| name == b"..") {
        return Err(Errno::XDEV);
    }
    let mut holder: Option<OwnedFd> = None;
    let mut rest = path;
    while let Some(slash) = rest.iter().position(|&byte| byte == b'/') {
        let from = holder.as_ref().unwrap_or(from);
        holder = Some(open(from, &rest[..slash], OFlags::PATH | OFlags::DIRECTORY)?);
        rest = &rest[slash + 1..];
    }
    open(holder.as_ref().unwrap_or(from), rest, flags)
}

/// The data of a directory's files.
#[derive(Debug)]
pub(super) struct DirectoryFiles {
    pub root: OwnedFd,
    /// The directory as the user named it.
    pub name: Vec<u8>,
    /// Set when all is listed, before anything is read.
    pub places: OnceLock<NamedPlaces>,
    /// Cleared if the host doesn't let us open files without updating access times.
    keeps_access_times: AtomicBool,
    deep: DeepDirectories,
}

impl DirectoryFiles {
    /// The files of an open directory, not listed yet.
    pub fn new(root: OwnedFd, name: Vec<u8>) -> DirectoryFiles {
        DirectoryFiles {
            root,
            name,
            places: OnceLock::new(),
            keeps_access_times: AtomicBool::new(true),
            deep: DeepDirectories(Mutex::new(&DEEP, VecDeque::new())),
        }
    }

    pub fn error(&self, path: &[u8], problem: impl std::fmt::Display) -> SourceError {
        let mut whole = self.name.clone();
        if !path.is_empty() {
            if !whole.ends_with(b"/") {
                whole.push(b'/');
            }
            whole.extend_from_slice(path);
        }
        SourceError { path: whole, problem: problem.to_string() }
    }

    /// Opens a file for reading, without updating its access time if possible. Doesn't wait if the
    /// file was replaced by a pipe.
    pub fn open(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        if self.keeps_access_times.load(Ordering::Relaxed) {
            match self.open_below(path, flags | OFlags::NOATIME) {
                // Files of others, and we aren't root.
                Err(Errno::PERM) => self.keeps_access_times.store(false, Ordering::Relaxed),
                result => return result,
            }
        }
        self.open_below(path, flags)
    }

    /// Opens a path below the root, however deep. Even if a directory on the way is replaced, no
    /// symbolic link is followed, and nothing is opened that wasn't below the root.
    pub fn open_below(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let is_deep = path.len() > PATH_LENGTH_MAX;
        let mut above = if is_deep { self.deep.on_the_way_to(path) } else { None };
        let mut start = above.as_ref().map_or(0, |above| above.path.len() + 1);
        while path.len() - start > PATH_LENGTH_MAX {
            let piece = &path[start..start + PATH_LENGTH_MAX];
            let Some(slash) = piece.iter().rposition(|&byte| byte == b'/') else {
                return Err(Errno::NAMETOOLONG);
            };
            let from = above.as_ref().map_or(&self.root, |above| &above.fd);
            let steps = OFlags::PATH | OFlags::DIRECTORY;
            let fd = open_without_links(from, &piece[..slash], steps)?;
            let path = path[..start + slash].to_vec();
            start += slash + 1;
            above = Some(Arc::new(DeepDirectory { path, fd }));
        }
        if let Some(above) = &above {
            self.deep.keep(above);
        }
        let from = above.as_ref().map_or(&self.root, |above| &above.fd);
        let rest = &path[start..];
        open_without_links(from, if rest.is_empty() { b"." } else { rest }, flags)
    }
}

impl ContentSource for DirectoryFiles {
    fn read_at(&self, object: u32, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        let Some(places) = self.places.get() else {
            return Err(self.error(b"", "not listed to the end"));
        };
        let path = places.path(object);
        let replaced = || self.error(&path, "was replaced while the image was built");
        let failed = |errno: Errno| match errno {
            Errno::NOENT => self.error(&path, "vanished while the image was built"),
            // A link, a socket, or something in the place of a directory.
            Errno::LOOP | Errno::NOTDIR | Errno::NXIO => replaced(),
            errno => self.error(&path, errno),
        };
        let file = self.open(&path).map_err(failed)?;
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(replaced());
        }
        let mut done = 0;
        while done < buffer.len() {
            match rustix::io::pread(file.as_fd(), &mut buffer[done..], offset + done as u64) {
                Ok(0) => return Err(self.error(&path, "became shorter while the image was built")),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        // Looked at after reading: what was read is then what was listed.
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        if FileVersion::from(&stat) != places.versions[object as usize] {
            return Err(self.error(&path, "changed while the image was built"));
        }
        Ok(())
    }
}
