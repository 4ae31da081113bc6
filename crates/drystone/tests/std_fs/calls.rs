//! The calls, on both sides.

use crate::paths;
use drystone::fs::FileTimes;
use drystone::{Fs, OpenOptions};
use fastrand::Rng;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// What a caller sees, or the kind of the error.
pub type Outcome = Result<String, String>;

/// Somebody who makes calls.
pub struct Identity {
    pub user: u32,
    pub group: u32,
    pub groups: Vec<u32>,
}

impl Identity {
    pub fn of_process() -> Identity {
        let groups = rustix::process::getgroups().unwrap();
        Identity {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
        }
    }

    /// This thread, and no other, is it until the guard is dropped.
    pub fn assume(&self) -> impl Drop + use<> {
        struct Guard(bool);
        impl Drop for Guard {
            fn drop(&mut self) {
                if self.0 {
                    set_thread_res_uid(None, Uid::ROOT, None).unwrap();
                    set_thread_res_gid(None, Gid::ROOT, None).unwrap();
                }
            }
        }
        let is_other = self.user != rustix::process::geteuid().as_raw();
        if is_other {
            let groups: Vec<Gid> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
            set_thread_groups(&groups).unwrap();
            set_thread_res_gid(None, Gid::from_raw(self.group), None).unwrap();
            set_thread_res_uid(None, Uid::from_raw(self.user), None).unwrap();
        }
        Guard(is_other)
    }
}

/// A call of `std::fs`.
#[derive(Clone, Debug)]
pub enum Call {
    Read(String),
    Write(String, usize),
    Open(String, Opening, Vec<FileCall>),
    CreateDir(String),
    CreateDirAll(String),
    RemoveFile(String),
    RemoveDir(String),
    RemoveDirAll(String),
    Rename(String, String),
    HardLink(String, String),
    Symlink(String, String),
    ReadLink(String),
    Metadata(String),
    SymlinkMetadata(String),
    Exists(String),
    Canonicalize(String),
    Copy(String, String),
    SetPermissions(String, u32),
    ReadDir(String),
}

/// How a file is opened: read, write, append, truncate, create, create_new.
#[derive(Clone, Copy, Debug)]
pub struct Opening([bool; 6], u32);

/// A call on an open file.
#[derive(Clone, Debug)]
pub enum FileCall {
    Read(usize),
    Write(usize),
    ReadAt(u64, usize),
    WriteAt(u64, usize),
    Seek(SeekFrom),
    SetLen(u64),
    SetModified(u64),
    Metadata,
    Sync,
}

impl Call {
    /// `is_restricted`: by somebody who may be refused.
    pub fn random(rng: &mut Rng, is_restricted: bool) -> Call {
        let mut path = || paths::random(rng);
        let (first, second) = (path(), path());
        let modes = [0o644, 0o600, 0o755, 0o777, 0o444, 0o4755, 0o2775, 0o1777, 0o311, 0o000];
        match rng.u32(0..46) {
            0..=2 => Call::Read(first),
            3..=6 => Call::Write(first, rng.usize(0..9000)),
            7..=12 => {
                let bits = std::array::from_fn(|at| rng.u32(0..[2, 2, 5, 4, 2, 8][at]) == 0);
                let calls = (0..rng.usize(1..6)).map(|_| FileCall::random(rng)).collect();
                Call::Open(first, Opening(bits, modes[rng.usize(0..4)]), calls)
            }
            13..=17 => Call::CreateDir(first),
            18 | 19 => Call::CreateDirAll(first),
            20..=22 => Call::RemoveFile(first),
            23 => Call::RemoveDir(first),
            // What is left of a tree after a refusal depends on the order of the names.
            24 if is_restricted => Call::RemoveDir(first),
            24 => Call::RemoveDirAll(paths::plain(rng)),
            25..=28 => Call::Rename(first, second),
            29 | 30 => Call::HardLink(first, second),
            31..=33 => Call::Symlink(first, second),
            34 => Call::ReadLink(first),
            35 => Call::Metadata(first),
            36 => Call::SymlinkMetadata(first),
            37 => Call::Exists(first),
            38 | 39 => Call::Canonicalize(first),
            40 | 41 => Call::Copy(first, second),
            42 => Call::SetPermissions(first, modes[rng.usize(0..modes.len())]),
            _ => Call::ReadDir(first),
        }
    }
}

impl FileCall {
    fn random(rng: &mut Rng) -> FileCall {
        let length = rng.usize(0..6000);
        let offset = rng.u64(0..20_000);
        match rng.u32(0..11) {
            0 | 1 => FileCall::Read(length),
            2 | 3 => FileCall::Write(length),
            4 => FileCall::ReadAt(offset, length),
            5 => FileCall::WriteAt(offset, length),
            6 | 7 => FileCall::Seek(match rng.u32(0..3) {
                0 => SeekFrom::Start(offset),
                1 => SeekFrom::Current(rng.i64(-8000..8000)),
                _ => SeekFrom::End(rng.i64(-8000..2000)),
            }),
            8 => FileCall::SetLen(offset),
            9 => FileCall::SetModified(rng.u64(0..2_000_000_000)),
            _ => [FileCall::Metadata, FileCall::Sync][rng.usize(0..2)].clone(),
        }
    }
}

/// Where a path leads below the base. Empty ones and such with NUL stay as they are.
fn below(root: &Path, base: &str, path: &str) -> PathBuf {
    if path.is_empty() || path.contains('\0') {
        return path.into();
    }
    format!("{}{base}/{path}", root.display()).into()
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + length) as u8).collect()
}

/// A digest that shows in a message.
fn shown(bytes: &[u8]) -> String {
    let sum =
        bytes.iter().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
    format!("{} bytes, {sum:08x}", bytes.len())
}

fn outcome(result: io::Result<String>) -> Outcome {
    result.map_err(|error| format!("{:?}", error.kind()))
}

/// The attributes that both sides have in common: sizes and links of directories are the file system's.
fn attributes(mode: u32, length: u64, links: u64) -> String {
    match mode & 0o170_000 == 0o040_000 {
        true => format!("{mode:o}"),
        false => format!("{mode:o} {length} {links}"),
    }
}

pub fn on_host(call: &Call, root: &Path, base: &str) -> Outcome {
    let at = |path: &String| below(root, base, path);
    let done = |result: io::Result<()>| result.map(|()| String::new());
    let described =
        |metadata: std::fs::Metadata| attributes(metadata.mode(), metadata.len(), metadata.nlink());
    outcome(match call {
        Call::Read(path) => std::fs::read(at(path)).map(|bytes| shown(&bytes)),
        Call::Write(path, length) => done(std::fs::write(at(path), content(*length))),
        Call::Open(path, Opening(bits, mode), calls) => {
            let [read, write, append, truncate, create, create_new] = *bits;
            let mut options = std::fs::OpenOptions::new();
            options.read(read).write(write).append(append).truncate(truncate);
            options.create(create).create_new(create_new).mode(*mode);
            options.open(at(path)).map(|file| {
                let describe = |file: &std::fs::File| file.metadata().map(described);
                let set_times = |file: &std::fs::File, time| file.set_modified(time);
                on_file(&file, calls, describe, std::fs::File::set_len, set_times, |file| {
                    file.sync_all()
                })
            })
        }
        Call::CreateDir(path) => done(std::fs::create_dir(at(path))),
        Call::CreateDirAll(path) => done(std::fs::create_dir_all(at(path))),
        Call::RemoveFile(path) => done(std::fs::remove_file(at(path))),
        Call::RemoveDir(path) => done(std::fs::remove_dir(at(path))),
        Call::RemoveDirAll(path) => done(std::fs::remove_dir_all(at(path))),
        Call::Rename(from, to) => done(std::fs::rename(at(from), at(to))),
        Call::HardLink(from, to) => done(std::fs::hard_link(at(from), at(to))),
        Call::Symlink(target, path) => {
            done(std::os::unix::fs::symlink(target.trim_start_matches('/'), at(path)))
        }
        Call::ReadLink(path) => std::fs::read_link(at(path)).map(|target| format!("{target:?}")),
        Call::Metadata(path) => std::fs::metadata(at(path)).map(described),
        Call::SymlinkMetadata(path) => std::fs::symlink_metadata(at(path)).map(described),
        Call::Exists(path) => std::fs::exists(at(path)).map(|exists| exists.to_string()),
        Call::Canonicalize(path) => std::fs::canonicalize(at(path)).map(|real| {
            let root = root.canonicalize().unwrap();
            format!("/{}", real.strip_prefix(root).unwrap().display())
        }),
        Call::Copy(from, to) => std::fs::copy(at(from), at(to)).map(|bytes| bytes.to_string()),
        Call::SetPermissions(path, mode) => {
            done(std::fs::set_permissions(at(path), Permissions::from_mode(*mode)))
        }
        Call::ReadDir(path) => std::fs::read_dir(at(path)).and_then(|entries| {
            let mut names = entries
                .map(|entry| {
                    let entry = entry?;
                    let kind = entry.file_type()?;
                    Ok(format!("{:?} {} {}", entry.file_name(), kind.is_dir(), kind.is_symlink()))
                })
                .collect::<io::Result<Vec<String>>>()?;
            names.sort();
            Ok(names.join(", "))
        }),
    })
}

pub fn on_image(call: &Call, fs: &Fs<'_>, base: &str) -> Outcome {
    let at = |path: &String| below(Path::new(""), base, path);
    let done = |result: drystone::Result<()>| result.map(|()| String::new());
    let described = |metadata: drystone::fs::Metadata| {
        attributes(metadata.mode(), metadata.len(), metadata.nlink())
    };
    let result = match call {
        Call::Read(path) => fs.read(at(path)).map(|bytes| shown(&bytes)),
        Call::Write(path, length) => done(fs.write(at(path), content(*length))),
        Call::Open(path, Opening(bits, mode), calls) => {
            let [read, write, append, truncate, create, create_new] = *bits;
            let options = OpenOptions::new().read(read).write(write).append(append);
            let options = options.truncate(truncate).create(create).create_new(create_new);
            fs.open_with(at(path), options.mode(*mode)).map(|file| {
                let describe = |file: &drystone::File<'_>| Ok(file.metadata().map(described)?);
                let set_times = |file: &drystone::File<'_>, time| {
                    Ok(file.set_times(FileTimes::new().set_modified(time))?)
                };
                let set_len = |file: &drystone::File<'_>, size| Ok(file.set_len(size)?);
                on_file(&file, calls, describe, set_len, set_times, |file| Ok(file.sync_all()?))
            })
        }
        Call::CreateDir(path) => done(fs.create_dir(at(path))),
        Call::CreateDirAll(path) => done(fs.create_dir_all(at(path))),
        Call::RemoveFile(path) => done(fs.remove_file(at(path))),
        Call::RemoveDir(path) => done(fs.remove_dir(at(path))),
        Call::RemoveDirAll(path) => done(fs.remove_dir_all(at(path))),
        Call::Rename(from, to) => done(fs.rename(at(from), at(to))),
        Call::HardLink(from, to) => done(fs.hard_link(at(from), at(to))),
        Call::Symlink(target, path) => done(fs.symlink(target.trim_start_matches('/'), at(path))),
        Call::ReadLink(path) => fs.read_link(at(path)).map(|target| format!("{target:?}")),
        Call::Metadata(path) => fs.metadata(at(path)).map(described),
        Call::SymlinkMetadata(path) => fs.symlink_metadata(at(path)).map(described),
        Call::Exists(path) => fs.exists(at(path)).map(|exists| exists.to_string()),
        Call::Canonicalize(path) => {
            fs.canonicalize(at(path)).map(|real| real.display().to_string())
        }
        Call::Copy(from, to) => fs.copy(at(from), at(to)).map(|bytes| bytes.to_string()),
        Call::SetPermissions(path, mode) => {
            done(fs.set_permissions(at(path), Permissions::from_mode(*mode)))
        }
        Call::ReadDir(path) => fs.read_dir(at(path)).and_then(|entries| {
            let mut names = entries
                .map(|entry| {
                    let entry = entry?;
                    let kind = entry.file_type()?;
                    Ok(format!("{:?} {} {}", entry.file_name(), kind.is_dir(), kind.is_symlink()))
                })
                .collect::<drystone::Result<Vec<String>>>()?;
            names.sort();
            Ok(names.join(", "))
        }),
    };
    outcome(result.map_err(io::Error::from))
}

/// Makes calls on an open file of either side.
fn on_file<F: FileExt>(
    file: &F,
    calls: &[FileCall],
    describe: impl Fn(&F) -> io::Result<String>,
    set_len: impl Fn(&F, u64) -> io::Result<()>,
    set_modified: impl Fn(&F, std::time::SystemTime) -> io::Result<()>,
    sync: impl Fn(&F) -> io::Result<()>,
) -> String
where
    for<'f> &'f F: Read + Write + Seek,
{
    let mut all = String::new();
    let is_directory = describe(file).is_ok_and(|text| text.starts_with('4'));
    for call in calls {
        let mut handle = file;
        let buffer = |length: &usize| vec![0; *length];
        let done = |result: io::Result<()>| result.map(|()| String::new());
        let result = match call {
            // Where a directory can be sought to is the file system's business.
            FileCall::Seek(_) if is_directory => continue,
            FileCall::Read(length) => {
                let mut buffer = buffer(length);
                handle.read(&mut buffer).map(|read| shown(&buffer[..read]))
            }
            FileCall::Write(length) => handle.write(&content(*length)).map(|n| n.to_string()),
            FileCall::ReadAt(offset, length) => {
                let mut buffer = buffer(length);
                file.read_at(&mut buffer, *offset).map(|read| shown(&buffer[..read]))
            }
            FileCall::WriteAt(offset, length) => {
                file.write_at(&content(*length), *offset).map(|n| n.to_string())
            }
            FileCall::Seek(to) => handle.seek(*to).map(|offset| offset.to_string()),
            FileCall::SetLen(length) => done(set_len(file, *length)),
            FileCall::SetModified(seconds) => {
                done(set_modified(file, UNIX_EPOCH + Duration::new(*seconds, 7)))
            }
            FileCall::Metadata => describe(file),
            FileCall::Sync => done(sync(file)),
        };
        write!(all, "{:?}; ", outcome(result)).unwrap();
    }
    all
}

/// Everything below a directory, with what both sides have in common.
pub fn tree_of_host(top: &Path) -> Vec<String> {
    fn add(path: &Path, name: &str, tree: &mut Vec<String>) {
        let Ok(metadata) = std::fs::symlink_metadata(path) else { return };
        let target = std::fs::read_link(path).unwrap_or_default();
        tree.push(format!(
            "{name} {} {} {} {target:?}",
            attributes(metadata.mode(), metadata.len(), metadata.nlink()),
            metadata.uid(),
            metadata.gid()
        ));
        if metadata.is_dir() {
            let Ok(entries) = std::fs::read_dir(path) else { return };
            for entry in entries {
                let entry = entry.unwrap();
                let name = format!("{name}/{}", entry.file_name().display());
                add(&entry.path(), &name, tree);
            }
        }
    }
    let mut tree = Vec::new();
    add(top, "", &mut tree);
    tree.sort();
    tree
}

pub fn tree_of_image(fs: &Fs<'_>, top: &str) -> Vec<String> {
    let entries = fs.walk(top).filter_map(Result::ok).map(|entry| {
        let metadata = entry.metadata();
        let target = fs.read_link(entry.path()).unwrap_or_default();
        format!(
            "{} {} {} {} {target:?}",
            &entry.path().to_str().unwrap()[top.len()..],
            attributes(metadata.mode(), metadata.len(), metadata.nlink()),
            metadata.uid(),
            metadata.gid()
        )
    });
    let mut tree: Vec<String> = entries.collect();
    tree.sort();
    tree
}
