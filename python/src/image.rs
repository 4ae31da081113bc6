//! Open images, and operations by path.
//!
//! Calls and files keep an image open; closing it meanwhile fails.

use crate::failure::{at_path, call};
use crate::file::File;
use crate::slot::Slot;
use drystone::transfer::CopySummary;
use drystone::vfs::{Errno, FileType, NewNode, SetAttributes, SetTime, Timestamp};
use drystone::{CreateOptions, FileSystemKind, Fs, OpenOptions};
use drystone_sync::{Arc, LockClass};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

static IMAGE: LockClass = LockClass::new("Python image", 1);

/// Mode, inode, links, user, group, size, times in nanoseconds (last read, content, anything),
/// units of 512 bytes, block size, device numbers.
type Stat = (u32, u64, u32, u32, u32, u64, [i128; 3], u64, u32, (u32, u32));

/// What keeps an image open.
pub struct Open {
    fs: Fs<'static>,
    image: drystone::Image,
}

impl Open {
    /// Makes everything durable and closes the image.
    fn close(self) -> drystone::Result<()> {
        drop(self.fs);
        self.image.close()
    }

    /// Closes an image that nothing else keeps open.
    pub fn release(open: Arc<Open>) -> drystone::Result<()> {
        Arc::into_inner(open).map_or(Ok(()), Open::close)
    }
}

/// An open image.
#[pyclass(frozen)]
pub struct Image {
    open: Slot<Open>,
}

impl Image {
    fn open(&self) -> PyResult<Arc<Open>> {
        self.open.get()
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&Fs<'static>) -> drystone::Result<T> + Send,
    ) -> PyResult<T> {
        let open = self.open()?;
        call(py, move || body(&open.fs))
    }
}

#[pymethods]
impl Image {
    #[new]
    #[pyo3(signature = (name, *, read_only=false, ignore_journal=false, user=None, umask=0o022))]
    fn new(
        py: Python<'_>,
        name: PathBuf,
        read_only: bool,
        ignore_journal: bool,
        user: Option<(u32, u32, Vec<u32>)>,
        umask: u32,
    ) -> PyResult<Image> {
        let open = call(py, || {
            let options = drystone::Image::options().read_only(read_only);
            let image = options.ignore_journal(ignore_journal).open(name)?;
            let fs = match user {
                Some((user, group, groups)) => image.shared_fs().as_user(user, group, &groups),
                None => image.shared_fs(),
            };
            Ok::<_, drystone::Error>(Open { fs: fs.with_umask(umask), image })
        })?;
        Ok(Image { open: Slot::new(&IMAGE, "the image", open) })
    }

    /// Makes everything durable and closes the image. One that is closed stays so.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.open.take_unused()? {
            Some(open) => call(py, || open.close()),
            None => Ok(()),
        }
    }

    #[getter]
    fn closed(&self) -> bool {
        self.open.is_closed()
    }

    /// `ext4` or `nilfs2`.
    #[getter]
    fn kind(&self) -> PyResult<&'static str> {
        Ok(self.open()?.image.kind().name())
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |fs| fs.sync())
    }

    #[expect(clippy::too_many_arguments, reason = "each is a letter of a mode")]
    fn open_file(
        &self,
        py: Python<'_>,
        path: PathBuf,
        read: bool,
        write: bool,
        append: bool,
        truncate: bool,
        create: bool,
        create_new: bool,
    ) -> PyResult<File> {
        let options = OpenOptions::new().read(read).write(write).append(append);
        let options = options.truncate(truncate).create(create).create_new(create_new);
        let open = self.open()?;
        let (file, is_directory) = call(py, || {
            let file = open.fs.open_with(&path, options)?;
            let is_directory = file.metadata()?.is_dir();
            Ok::<_, drystone::Error>((file, is_directory))
        })?;
        match is_directory {
            true => Err(at_path(Errno::EISDIR, &path)),
            false => Ok(File::new(file, open)),
        }
    }

    fn read_bytes<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.run(py, |fs| fs.read(path))?))
    }

    fn write_bytes(&self, py: Python<'_>, path: PathBuf, data: PyBackedBytes) -> PyResult<usize> {
        self.run(py, |fs| fs.write(path, &data[..]))?;
        Ok(data.len())
    }

    fn stat(&self, py: Python<'_>, path: PathBuf, follow_symlinks: bool) -> PyResult<Stat> {
        self.run(py, |fs| match follow_symlinks {
            true => fs.metadata(path).map(stat),
            false => fs.symlink_metadata(path).map(stat),
        })
    }

    /// Names, inodes and the type bits of modes, sorted by names.
    fn list(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<(OsString, u64, u32)>> {
        self.run(py, |fs| {
            let mut entries = Vec::new();
            for entry in fs.read_dir(path)? {
                let entry = entry?;
                let kind = u32::from(entry.file_type()?.mode_bits());
                entries.push((entry.file_name().to_owned(), entry.ino(), kind));
            }
            entries.sort_unstable();
            Ok(entries)
        })
    }

    fn mkdir(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        self.make(py, &path, NewNode::Directory, mode)
    }

    fn mknod(&self, py: Python<'_>, path: PathBuf, mode: u32, device: (u32, u32)) -> PyResult<()> {
        let device = drystone::vfs::DeviceNumber { major: device.0, minor: device.1 };
        let kind = u16::try_from(mode).ok().and_then(FileType::from_mode);
        let node = match kind.unwrap_or(FileType::Regular) {
            FileType::Regular => NewNode::Regular,
            FileType::CharacterDevice => NewNode::CharacterDevice(device),
            FileType::BlockDevice => NewNode::BlockDevice(device),
            FileType::Fifo => NewNode::Fifo,
            FileType::Socket => NewNode::Socket,
            FileType::Directory | FileType::Symlink => {
                return Err(PyValueError::new_err("mknod makes no directories and symbolic links"));
            }
        };
        self.make(py, &path, node, mode)
    }

    fn makedirs(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(py, |fs| fs.create_dir_all(path))
    }

    fn symlink(&self, py: Python<'_>, target: PathBuf, path: PathBuf) -> PyResult<()> {
        self.run(py, |fs| fs.symlink(target, path))
    }

    fn link(&self, py: Python<'_>, original: PathBuf, path: PathBuf) -> PyResult<()> {
        self.run(py, |fs| fs.hard_link(original, path))
    }

    fn readlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        self.run(py, |fs| fs.read_link(path).map(PathBuf::into_os_string))
    }

    fn realpath(&self, py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        self.run(py, |fs| fs.canonicalize(path).map(PathBuf::into_os_string))
    }

    fn rename(&self, py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<()> {
        self.run(py, |fs| fs.rename(from, to))
    }

    fn copy(&self, py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<u64> {
        self.run(py, |fs| fs.copy(from, to))
    }

    fn remove(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(py, |fs| fs.remove_file(path))
    }

    fn rmdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(py, |fs| fs.remove_dir(path))
    }

    fn rmtree(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(py, |fs| fs.remove_dir_all(path))
    }

    fn chmod(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        self.run(py, |fs| fs.set_permissions(path, Permissions::from_mode(mode)))
    }

    fn chown(
        &self,
        py: Python<'_>,
        path: PathBuf,
        user: Option<u32>,
        group: Option<u32>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        self.run(py, |fs| match follow_symlinks {
            true => fs.chown(path, user, group),
            false => fs.lchown(path, user, group),
        })
    }

    /// Times in nanoseconds since 1970; `None` for now.
    fn utime(
        &self,
        py: Python<'_>,
        path: PathBuf,
        times: Option<(i128, i128)>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let at = |nanoseconds: i128| -> PyResult<SetTime> {
            let seconds = i64::try_from(nanoseconds.div_euclid(SECOND))
                .map_err(|_| PyValueError::new_err("a time is out of range"))?;
            // A remainder is less than a second.
            let nanoseconds = nanoseconds.rem_euclid(SECOND) as u32;
            Ok(SetTime::At(Timestamp { seconds, nanoseconds }))
        };
        let (accessed, modified) = match times {
            Some((accessed, modified)) => (at(accessed)?, at(modified)?),
            None => (SetTime::Now, SetTime::Now),
        };
        let (accessed, modified) = (Some(accessed), Some(modified));
        let changes = SetAttributes { accessed, modified, ..SetAttributes::default() };
        self.run(py, |fs| fs.set_attributes(path, &changes, follow_symlinks))
    }

    fn truncate(&self, py: Python<'_>, path: PathBuf, size: u64) -> PyResult<()> {
        self.run(py, |fs| fs.truncate(path, size))
    }

    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        name: OsString,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.run(py, |fs| match follow_symlinks {
            true => fs.xattr(&path, &name),
            false => fs.lxattr(&path, &name),
        })?;
        let value = value.ok_or_else(|| at_path(Errno::ENODATA, &path))?;
        Ok(PyBytes::new(py, &value))
    }

    fn setxattr(
        &self,
        py: Python<'_>,
        path: PathBuf,
        name: OsString,
        value: PyBackedBytes,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        self.run(py, |fs| match follow_symlinks {
            true => fs.set_xattr(path, name, &value[..]),
            false => fs.set_lxattr(path, name, &value[..]),
        })
    }

    fn listxattr(
        &self,
        py: Python<'_>,
        path: PathBuf,
        follow_symlinks: bool,
    ) -> PyResult<Vec<OsString>> {
        self.run(py, |fs| match follow_symlinks {
            true => fs.list_xattrs(path),
            false => fs.list_lxattrs(path),
        })
    }

    fn removexattr(
        &self,
        py: Python<'_>,
        path: PathBuf,
        name: OsString,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        self.run(py, |fs| match follow_symlinks {
            true => fs.remove_xattr(path, name),
            false => fs.remove_lxattr(path, name),
        })
    }

    /// Block size, blocks, free, available; inodes, free; longest name.
    fn statvfs(&self, py: Python<'_>) -> PyResult<(u32, u64, u64, u64, u64, u64, u32)> {
        self.run(py, |fs| {
            let found = fs.statistics()?;
            Ok((
                found.block_size,
                found.blocks,
                found.blocks_free,
                found.blocks_available,
                found.inodes,
                found.inodes_free,
                found.name_length_max,
            ))
        })
    }

    fn copy_in(&self, py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<Copied> {
        self.run(py, |fs| fs.copy_in(from, to).map(copied))
    }

    fn copy_out(&self, py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<Copied> {
        self.run(py, |fs| fs.copy_out(from, to).map(copied))
    }
}

impl Image {
    fn make(&self, py: Python<'_>, path: &Path, node: NewNode<'_>, mode: u32) -> PyResult<()> {
        self.run(py, |fs| fs.make_node(path, node, mode))
    }
}

const SECOND: i128 = 1_000_000_000;

/// The fields of the package's `CopySummary`.
type Copied = (u64, u64, u64, u64, u64, u64, u64, u64);

fn copied(summary: CopySummary) -> Copied {
    let CopySummary { files, hard_links, directories, symlinks, special, .. } = summary;
    let CopySummary { bytes, not_made, not_kept, .. } = summary;
    (files, hard_links, directories, symlinks, special, bytes, not_made, not_kept)
}

fn stat(found: drystone::fs::Metadata) -> Stat {
    let found = found.attributes();
    let time = |time: Timestamp| i128::from(time.seconds) * SECOND + i128::from(time.nanoseconds);
    (
        u32::from(found.mode()),
        found.inode.0,
        found.links,
        found.user,
        found.group,
        found.size,
        [found.accessed, found.modified, found.changed].map(time),
        found.sectors,
        found.block_size,
        (found.device.major, found.device.minor),
    )
}

/// Makes an image.
#[pyfunction]
#[pyo3(signature = (name, size, *, kind="ext4", label="", uuid=None, overwrite=false))]
pub fn mkfs(
    py: Python<'_>,
    name: PathBuf,
    size: u64,
    kind: &str,
    label: &str,
    uuid: Option<&str>,
    overwrite: bool,
) -> PyResult<()> {
    let kind = match kind {
        "ext4" => FileSystemKind::Ext4,
        "nilfs2" => FileSystemKind::Nilfs2,
        other => {
            let message = format!("no kind '{other}': there are ext4 and nilfs2");
            return Err(PyValueError::new_err(message));
        }
    };
    let mut options = CreateOptions::new(size).kind(kind).label(label).overwrite(overwrite);
    if let Some(uuid) = uuid {
        let uuid = uuid::Uuid::parse_str(uuid);
        options = options.uuid(uuid.map_err(|error| PyValueError::new_err(error.to_string()))?);
    }
    call(py, || drystone::Image::create(name, &options)?.close())
}
