//! An entry in the table that mount(8) and umount(8) share, so that umount(8) calls our program.
//!
//! umount(8) asks the mounted file system for its type, gets "fuse", unmounts by itself, and returns
//! while the server still writes. If the table has an entry for the directory, umount(8) takes the
//! whole type from the kernel's table, runs `umount.fuse.drystone`, and waits for it.
//!
//! Only root may change the table. Without an entry everything works but this.
//!
//! # Locking
//! That of util-linux: flock(2) on a file beside the table, which is replaced as a whole.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where util-linux keeps the table.
const FOLDER: &str = "/run/mount";
/// How often, and how long each time, to wait for other programs that change the table: two seconds in
/// all.
const MOMENTS: u32 = 100;
const MOMENT: Duration = Duration::from_millis(20);

/// An entry of a mount.
pub struct UtabEntry {
    folder: PathBuf,
    line: Vec<u8>,
}

impl UtabEntry {
    /// Adds an entry if the caller is root.
    pub fn new(image: &Path, directory: &Path) -> Option<UtabEntry> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        UtabEntry::new_in(Path::new(FOLDER), image, directory)
            .inspect_err(|error| tracing::warn!("umount(8) will not wait: {FOLDER}: {error}"))
            .ok()
    }

    fn new_in(folder: &Path, image: &Path, directory: &Path) -> io::Result<UtabEntry> {
        let mut line = b"SRC=".to_vec();
        put_escaped(&mut line, image.as_os_str());
        line.extend_from_slice(b" TARGET=");
        put_escaped(&mut line, directory.as_os_str());
        line.extend_from_slice(b" ROOT=/ OPTS=x-drystone");
        DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
        let entry = UtabEntry { folder: folder.to_owned(), line };
        entry.replace(true)?;
        Ok(entry)
    }

    /// Takes it out again.
    pub fn remove(self) {
        if let Err(error) = self.replace(false) {
            tracing::warn!("{}: an entry stays in the table: {error}", self.folder.display());
        }
    }

    /// Writes the table with the entry, or without it.
    fn replace(&self, is_there: bool) -> io::Result<()> {
        let open = |name: &str| {
            File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o644)
                .open(self.folder.join(name))
        };
        let lock = open("utab.lock")?;
        lock_soon(&lock)?;
        let table = self.folder.join("utab");
        let before = match std::fs::read(&table) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        // A server that was killed may have left the same.
        let others = before.split(|byte| *byte == b'\n');
        let others = others.filter(|line| !line.is_empty() && *line != self.line);
        let ours = is_there.then_some(self.line.as_slice());
        let lines: Vec<&[u8]> = others.chain(ours).flat_map(|line| [line, b"\n"]).collect();
        let name = format!("utab.drystone.{}", std::process::id());
        let mut new = open(&name)?;
        new.set_len(0)?;
        new.write_all(&lines.concat())?;
        std::fs::rename(self.folder.join(name), table)
    }
}

/// Takes a lock that others hold briefly, but doesn't wait forever.
fn lock_soon(file: &File) -> io::Result<()> {
    let mut moments = 0..MOMENTS;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if moments.next().is_some() => {
                drystone_sync::thread::sleep(MOMENT);
            }
            locked => return Ok(locked?),
        }
    }
}

/// A path as the table has it: what would end the word is octal.
fn put_escaped(line: &mut Vec<u8>, path: &OsStr) {
    for &byte in path.as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' | b'#' => {
                line.extend_from_slice(format!("\\{byte:03o}").as_bytes());
            }
            _ => line.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_and_go_among_others() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("mount");
        let table = || std::fs::read_to_string(folder.join("utab")).unwrap();
        let add =
            || UtabEntry::new_in(&folder, Path::new("/a b.img"), Path::new("/mnt\\x")).unwrap();
        let ours = "SRC=/a\\040b.img TARGET=/mnt\\134x ROOT=/ OPTS=x-drystone\n";
        drop(add());
        assert_eq!(table(), ours);
        let foreign = "ID=1 SRC=/dev/sda1 TARGET=/mnt ROOT=/ OPTS=uhelper=udisks2\n";
        std::fs::write(folder.join("utab"), format!("{ours}{foreign}")).unwrap();
        let entry = add();
        assert_eq!(table(), format!("{foreign}{ours}"));
        entry.remove();
        assert_eq!(table(), foreign);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    }

    #[test]
    fn nobody_waits_for_ever() {
        let scratch = tempfile::tempdir().unwrap();
        let held = File::create(scratch.path().join("utab.lock")).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let added = UtabEntry::new_in(scratch.path(), Path::new("/a"), Path::new("/b"));
        assert_eq!(added.err().unwrap().kind(), io::ErrorKind::WouldBlock);
    }
}
