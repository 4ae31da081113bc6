//! The files of a layout: of a directory, or of an archive of one.

use crate::archive::{Archive, Opener};
use crate::directory::open_within;
use crate::error::{Error, OciError, OciProblem, Result};
use crate::host_files::regular;
use crate::input::{FileRange, Input};
use crate::tar::{EntryKind, TarReader};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Most bytes of an index or manifest, as registries have it.
const JSON_BYTES_MAX: u64 = 4 << 20;
/// Links from file to file that are followed.
const LINKS_MAX: u32 = 8;

/// The files of a layout.
#[derive(Debug)]
pub(crate) struct LayoutFiles {
    /// What the user called it.
    pub name: String,
    place: LayoutPlace,
}

#[derive(Debug)]
enum LayoutPlace {
    Directory(OwnedFd),
    Archive { input: FileRange, entries: HashMap<Vec<u8>, EntryKind> },
}

impl LayoutFiles {
    /// Those of a directory.
    pub fn of_directory(name: &str, path: &Path) -> Result<LayoutFiles> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| Error::io(name)(errno.into()))?;
        Ok(LayoutFiles { name: name.to_owned(), place: LayoutPlace::Directory(directory) })
    }

    /// The files of an archive, if it holds a layout: only what belongs there, with `index.json`, or
    /// a `manifest.json` that lists images. Returns `None` for any other archive, at the first
    /// foreign entry.
    pub fn of_archive(archive: &Archive, opener: &Opener) -> Result<Option<LayoutFiles>> {
        let mut entries = HashMap::new();
        let mut reader = TarReader::new(&archive.name, &archive.input);
        while let Some(entry) = reader.next_entry()? {
            opener.go_on()?;
            if !may_be_in_layout(&entry.path) {
                return Ok(None);
            }
            entries.insert(entry.path, entry.kind);
        }
        let input = archive.input.clone();
        let files = LayoutFiles {
            name: archive.name.clone(),
            place: LayoutPlace::Archive { input, entries },
        };
        Ok((files.is_layout() || super::saved_images(&files).is_ok()).then_some(files))
    }

    /// Whether it declares itself to be an OCI layout.
    pub fn is_layout(&self) -> bool {
        self.has("oci-layout") && self.has("index.json")
    }

    pub fn has(&self, path: &str) -> bool {
        match &self.place {
            LayoutPlace::Directory(directory) => {
                rustix::fs::statat(directory, path, AtFlags::empty()).is_ok_and(|stat| {
                    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                })
            }
            LayoutPlace::Archive { entries, .. } => entries.contains_key(path.as_bytes()),
        }
    }

    /// An error about this layout.
    pub fn error(&self, problem: OciProblem) -> Error {
        OciError { layout: self.name.clone(), problem }.into()
    }

    /// Opens a file, which must be in the layout: paths in a layout aren't trusted.
    pub fn open(&self, path: &str) -> Result<FileRange> {
        let missing = || self.error(OciProblem::Missing { path: path.to_owned() });
        match &self.place {
            LayoutPlace::Directory(directory) => {
                // Doesn't wait at a pipe.
                let flags = OFlags::RDONLY | OFlags::NONBLOCK;
                let file = match open_within(directory, path.as_bytes(), flags) {
                    Ok(file) => regular(file.into()),
                    Err(Errno::NOENT) => return Err(missing()),
                    Err(Errno::XDEV) => {
                        return Err(self.error(OciProblem::Outside { path: path.to_owned() }));
                    }
                    Err(errno) => Err(errno.into()),
                };
                let range = file.and_then(|file| FileRange::new(file, 0));
                range.map_err(|error| self.unreadable(path, &error))
            }
            LayoutPlace::Archive { input, entries } => {
                let mut path = path.as_bytes().to_vec();
                for _ in 0..LINKS_MAX {
                    match entries.get(&path) {
                        Some(EntryKind::File { size, runs }) => match runs[..] {
                            [] if *size == 0 => return input.part(0, 0).ok_or_else(missing),
                            [run] if run.length == *size => {
                                return input.part(run.position, run.length).ok_or_else(missing);
                            }
                            _ => return Err(missing()),
                        },
                        Some(EntryKind::HardLink(target)) => path = target.clone(),
                        Some(EntryKind::Symlink(target)) => path = follow(&path, target),
                        _ => return Err(missing()),
                    }
                }
                Err(missing())
            }
        }
    }

    /// All bytes of an index or manifest.
    pub fn read_json(&self, path: &str) -> Result<Vec<u8>> {
        let range = self.open(path)?;
        if range.length() > JSON_BYTES_MAX {
            let error = io::Error::other(format!("{} bytes are too many", range.length()));
            return Err(self.unreadable(path, &error));
        }
        let mut bytes = vec![0; range.length() as usize];
        range.read_at(0, &mut bytes).map_err(|error| self.unreadable(path, &error))?;
        Ok(bytes)
    }

    pub fn unreadable(&self, path: &str, error: &io::Error) -> Error {
        self.error(OciProblem::Read { path: path.to_owned(), problem: error.to_string() })
    }
}

/// Whether an archive of a layout may have this file: `docker save` and OCI tools write only such
/// files.
fn may_be_in_layout(path: &[u8]) -> bool {
    let top = path.split(|&byte| byte == b'/').next().unwrap_or_default();
    let is_digest = top.len() == 64 && top.iter().all(u8::is_ascii_hexdigit);
    let is_layer_or_config = |name: &[u8]| {
        let stem = name.strip_suffix(b".json").or_else(|| name.strip_suffix(b".tar"));
        stem.is_some_and(|stem| {
            let digest = stem.strip_prefix(b"sha256:").unwrap_or(stem);
            digest.len() == 64 && digest.iter().all(u8::is_ascii_hexdigit)
        })
    };
    matches!(
        top,
        b"" | b"oci-layout" | b"index.json" | b"manifest.json" | b"repositories" | b"blobs"
    ) || is_digest
        || is_layer_or_config(top)
}

/// Where a link leads, from the directory that it is in.
fn follow(link: &[u8], target: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = link.split(|&byte| byte == b'/').collect();
    parts.pop();
    for part in target.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join(&b'/')
}
