//! Trees of directories of the host.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::{
    Collector, PathFacts, TreeOptions, TreeSnapshot, is_ignored, is_xattr_ignored, summarise,
};
use crate::operations::Word;

/// The largest list of names and the largest value that the kernel returns.
const XATTR_BYTES_MAX: usize = 65_536;

impl TreeSnapshot {
    /// Everything below a directory of the host. Has no flags, whatever the options.
    pub fn from_host(directory: &Path, options: &TreeOptions) -> io::Result<TreeSnapshot> {
        let mut collector = Collector::default();
        let mut pending = vec![Vec::new()];
        while let Some(path) = pending.pop() {
            let shown = if path.is_empty() { b"/".to_vec() } else { path.clone() };
            let host_path =
                directory.join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(b"")));
            let metadata = host_path.symlink_metadata()?;
            let facts = facts(&shown, &host_path, &metadata, options, &mut collector)?;
            if metadata.is_dir() {
                for child in std::fs::read_dir(&host_path)? {
                    let child = child?;
                    let path = [&path[..], b"/", &child.file_name().into_vec()].concat();
                    if is_ignored(options, &path) {
                        collector.ignored_at_root += u32::from(child.file_type()?.is_dir());
                    } else {
                        pending.push(path);
                    }
                }
            }
            collector.tree.entries.insert(Word(shown), facts);
        }
        Ok(collector.finish())
    }
}

/// The name that the interface gives to a type.
fn type_name(metadata: &std::fs::Metadata) -> &'static str {
    let file_type = metadata.file_type();
    match () {
        () if file_type.is_dir() => "Directory",
        () if file_type.is_file() => "Regular",
        () if file_type.is_symlink() => "Symlink",
        () if file_type.is_char_device() => "CharacterDevice",
        () if file_type.is_block_device() => "BlockDevice",
        () if file_type.is_fifo() => "Fifo",
        () => "Socket",
    }
}

fn facts(
    path: &[u8],
    host_path: &Path,
    metadata: &std::fs::Metadata,
    options: &TreeOptions,
    collector: &mut Collector,
) -> io::Result<PathFacts> {
    let mut facts = PathFacts::new();
    let mut fact = |name: &str, value: String| facts.insert(name.to_owned(), value);
    fact("type", type_name(metadata).to_owned());
    fact("mode", format!("{:04o}", metadata.mode() & 0o7777));
    fact("links", metadata.nlink().to_string());
    fact("owner", format!("{}:{}", metadata.uid(), metadata.gid()));
    if options.times {
        fact("accessed", format!("{}.{:09}", metadata.atime(), metadata.atime_nsec()));
        fact("modified", format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec()));
    }
    if options.change_times {
        fact("changed", format!("{}.{:09}", metadata.ctime(), metadata.ctime_nsec()));
    }
    if options.inode_numbers {
        fact("inode", metadata.ino().to_string());
    }
    if metadata.is_file() {
        let file = File::open(host_path)?;
        fact("size", metadata.len().to_string());
        if metadata.len() <= options.content_bytes_max {
            fact("content", content(&file, metadata.len())?);
        }
        if options.holes {
            fact("data at", data_ranges(&file, metadata.len())?);
        }
    } else if metadata.is_symlink() {
        fact("size", metadata.len().to_string());
        let target = std::fs::read_link(host_path)?;
        fact("target", Word(target.into_os_string().into_vec()).to_string());
    } else if matches!(type_name(metadata), "CharacterDevice" | "BlockDevice") {
        let device = metadata.rdev();
        fact("device", format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device)));
    }
    for (name, value) in xattrs(host_path)? {
        if !is_xattr_ignored(options, &name) {
            facts.insert(format!("xattr {}", Word(name)), format!("={}", Word(value)));
        }
    }
    if !metadata.is_dir() && metadata.nlink() > 1 {
        collector.note_name(path, metadata.ino());
    }
    Ok(facts)
}

fn next(file: &File, from: SeekFrom) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, from) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn content(file: &File, size: u64) -> io::Result<String> {
    summarise(
        size,
        |offset| match next(file, SeekFrom::Data(offset)) {
            // Data and holes can't be told apart: read everything.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                Ok(Some(offset).filter(|offset| *offset < size))
            }
            found => found,
        },
        |offset, buffer| {
            let mut done = 0;
            while done < buffer.len() {
                match file.read_at(&mut buffer[done..], offset + done as u64)? {
                    0 => break,
                    count => done += count,
                }
            }
            Ok(done)
        },
    )
}

fn data_ranges(file: &File, size: u64) -> io::Result<String> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(start) = next(file, SeekFrom::Data(at))? {
        at = next(file, SeekFrom::Hole(start))?.unwrap_or(size).max(start + 1);
        ranges.push(format!("{start}..{at}"));
    }
    Ok(ranges.join(" "))
}

/// Names and values, none where the host has no extended attributes.
fn xattrs(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut list = vec![0_u8; XATTR_BYTES_MAX];
    let length = match rustix::fs::llistxattr(path, &mut list[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for name in list[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let name_string = CString::new(name)?;
        let mut value = vec![0_u8; XATTR_BYTES_MAX];
        match rustix::fs::lgetxattr(path, &name_string, &mut value[..]) {
            Ok(length) => value.truncate(length),
            Err(error) => return Err(error.into()),
        }
        found.push((name.to_vec(), value));
    }
    Ok(found)
}
