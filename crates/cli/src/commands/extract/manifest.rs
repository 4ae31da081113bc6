//! The manifest of metadata that could not be kept, a line for each entry:
//! `/usr/bin/passwd mode=4755 uid=0 gid=0`.

use super::whole_file::WholeFile;
use anyhow::Context;
use drystone::EntryPath;
use drystone::transfer::Lacking;
use drystone::vfs::{FileType, Timestamp};
use drystone_sources::decimal_seconds;
use drystone_sync::{Arc, LockClass, Mutex};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

static LINES: LockClass = LockClass::new("manifest", 101);

/// The lines so far, and the file for them.
pub struct LossManifest {
    path: PathBuf,
    file: WholeFile,
    /// Paths of entries, and their lines.
    lines: Mutex<Vec<(Arc<EntryPath>, String)>>,
}

impl LossManifest {
    /// Makes the file first, so that an error comes before any work is done. It has a temporary name
    /// until all lines are in it, because a partial manifest would look complete.
    pub fn new(path: &Path) -> anyhow::Result<LossManifest> {
        let file = WholeFile::new(path)?;
        let lines = Mutex::new(&LINES, Vec::new());
        Ok(LossManifest { path: path.to_path_buf(), file, lines })
    }

    /// Adds an entry.
    pub fn add(&self, entry: &Lacking<'_>) {
        let line = (entry.way.clone(), properties(entry));
        self.lines.lock().push(line);
    }

    /// Writes all lines, sorted by path, and gives the file its name.
    pub fn write(mut self) -> anyhow::Result<()> {
        let mut lines = self.lines.into_inner();
        lines.sort_unstable();
        let mut file = BufWriter::new(&mut self.file);
        let written = lines.iter().try_for_each(|(way, properties)| {
            writeln!(file, "/{}{properties}", EscapedField(way.path().as_os_str().as_bytes()))
        });
        let written = written.and_then(|()| file.flush());
        drop(file);
        if written.is_err() {
            self.file.discard();
            return written.with_context(|| self.path.display().to_string());
        }
        self.file.keep()
    }

    /// Takes the file away.
    pub fn discard(self) {
        self.file.discard();
    }
}

/// What the line of an entry says after its path.
fn properties(entry: &Lacking<'_>) -> String {
    let mut line = String::new();
    let mut add = |part: std::fmt::Arguments<'_>| line += &part.to_string();
    let type_name = match entry.file_type {
        FileType::CharacterDevice => "character",
        FileType::BlockDevice => "block",
        _ => "",
    };
    if entry.is_missing {
        let device = entry.device;
        add(format_args!(" type={type_name} device={}:{}", device.major, device.minor));
    }
    if entry.file_type != FileType::Symlink {
        add(format_args!(" mode={:04o}", entry.permissions));
    }
    add(format_args!(" uid={} gid={}", entry.user, entry.group));
    if entry.is_missing {
        let Timestamp { seconds, nanoseconds } = entry.modified;
        add(format_args!(" mtime={}", decimal_seconds(seconds, nanoseconds)));
    }
    for (name, value) in &entry.xattrs {
        add(format_args!(" xattr.{}={}", EscapedField(name), EscapedField(value)));
    }
    line
}

/// Bytes without anything that would end a field.
struct EscapedField<'f>(&'f [u8]);

impl std::fmt::Display for EscapedField<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use std::fmt::Write;
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => f.write_str("\\\\")?,
                    ' ' => f.write_str("\\s")?,
                    '\t' => f.write_str("\\t")?,
                    '\n' => f.write_str("\\n")?,
                    '=' => f.write_str("\\x3d")?,
                    _ if character.is_control() || character.is_whitespace() => {
                        let mut bytes = [0; 4];
                        for byte in character.encode_utf8(&mut bytes).bytes() {
                            write!(f, "\\x{byte:02x}")?;
                        }
                    }
                    _ => f.write_char(character)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone::vfs::{DeviceNumber, Timestamp};

    #[test]
    fn lines() {
        let way = EntryPath::top("").to("dev".as_ref()).to("a b".as_ref());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("manifest");
        let written = |entry: &Lacking<'_>| {
            let manifest = LossManifest::new(&path).unwrap();
            manifest.add(entry);
            manifest.write().unwrap();
            std::fs::read_to_string(&path).unwrap()
        };
        let entry = Lacking {
            way: &way,
            is_missing: true,
            file_type: FileType::BlockDevice,
            permissions: 0o660,
            user: 0,
            group: 6,
            modified: Timestamp { seconds: -1, nanoseconds: 5 },
            device: DeviceNumber { major: 8, minor: 1 },
            xattrs: vec![(b"user.x", b"a\0\xff=\\")],
        };
        assert_eq!(
            written(&entry),
            "/dev/a\\sb type=block device=8:1 mode=0660 uid=0 gid=6 mtime=-0.999999995 \
             xattr.user.x=a\\x00\\xff\\x3d\\\\\n"
        );
        let link = Lacking { is_missing: false, file_type: FileType::Symlink, ..entry };
        assert!(written(&link).starts_with("/dev/a\\sb uid=0 gid=6 xattr"));
    }
}
