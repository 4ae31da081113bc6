//! A file that has another name until it is complete: what had the name before stays until then.
//!
//! # Crash
//! The caller makes the content durable; then the file gets its name, and that is made durable too.

use rustix::fs::{Gid, Mode, Uid};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Links that are followed, as Linux does.
const LINKS_MAX: u32 = 40;
/// Bytes of the name that go into the other one, which is no longer than a name may be.
const NAME_BYTES_MAX: usize = 200;

/// A file that is being written.
#[derive(Debug)]
pub struct Unfinished {
    /// Its name until it is complete.
    name: PathBuf,
    /// The name that it gets.
    to: PathBuf,
}

impl Unfinished {
    /// Makes a file beside `to`, with the owner and the permissions of what is there. If `to` is a
    /// symbolic link, it is what that leads to that is replaced.
    pub fn create(to: &Path) -> io::Result<(Unfinished, File)> {
        let to = followed(to);
        let existing = match fs::symlink_metadata(&to) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            found => Some(found?),
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        if existing.is_some() {
            // Nobody may look in who couldn't before.
            options.mode(0o600);
        }
        let (name, file) = create_beside(&to, &options)?;
        let unfinished = Unfinished { name, to };
        if let Some(existing) = existing
            && let Err(error) = adopt(&file, &existing)
        {
            unfinished.abandon();
            return Err(error);
        }
        Ok((unfinished, file))
    }

    /// Gives the file its name.
    pub fn finish(self) -> io::Result<()> {
        fs::rename(&self.name, &self.to).inspect_err(|_| self.remove())?;
        let directory = match self.to.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        match File::open(directory).and_then(|directory| directory.sync_all()) {
            // A directory that may be written but not read, or a file system that syncs files only.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::InvalidInput
                ) =>
            {
                Ok(())
            }
            synced => synced,
        }
    }

    /// Takes the file away.
    pub fn abandon(self) {
        self.remove();
    }

    fn remove(&self) {
        // What went wrong before is what is told.
        let _ = fs::remove_file(&self.name);
    }
}

/// Makes a file with a name that nothing has, whatever earlier programs left.
fn create_beside(to: &Path, options: &OpenOptions) -> io::Result<(PathBuf, File)> {
    let own = to.file_name().unwrap_or_default().as_bytes();
    let own = OsStr::from_bytes(&own[..own.len().min(NAME_BYTES_MAX)]);
    let process = std::process::id();
    let mut number = 0_u32;
    loop {
        let mut name = OsString::from(".");
        name.push(own);
        name.push(format!(".{process}-{number}.part"));
        let name = to.with_file_name(name);
        match options.open(&name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            opened => return Ok((name, opened?)),
        }
    }
}

/// Gives a file the owner and the permissions of another.
fn adopt(file: &File, existing: &Metadata) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(existing.uid()), Gid::from_raw(existing.gid()));
    let mut permissions = existing.permissions().mode() & 0o777;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (existing.uid(), existing.gid())
        && rustix::fs::fchown(file, Some(user), Some(group)).is_err()
    {
        // What a group of others may do, ours needn't.
        permissions &= 0o707;
    }
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(permissions))?)
}

/// Where a path leads, also if nothing is there yet.
pub fn followed(path: &Path) -> PathBuf {
    let mut at = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&at) else { break };
        at = at.parent().unwrap_or(Path::new("")).join(target);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    fn replace(path: &Path) {
        let (unfinished, mut file) = Unfinished::create(path).unwrap();
        file.write_all(b"new").unwrap();
        unfinished.finish().unwrap();
    }

    #[test]
    fn what_was_there_lends_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for mode in [0o600, 0o640, 0o400] {
            let _ = fs::remove_file(&path);
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let (unfinished, file) = Unfinished::create(&path).unwrap();
            assert_eq!(file.metadata().unwrap().mode() & 0o7777, mode);
            assert_eq!(fs::read(&path).unwrap(), b"old");
            unfinished.finish().unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
        }
    }

    #[test]
    fn links_stay_and_lead_to_the_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("directory")).unwrap();
        symlink("directory/link", at("first")).unwrap();
        // To nothing yet.
        symlink("../file", at("directory/link")).unwrap();
        for _ in 0..2 {
            replace(&at("first"));
            assert_eq!(fs::read(at("file")).unwrap(), b"new");
            assert!(at("first").is_symlink() && at("directory/link").is_symlink());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn left_overs_and_long_names_are_no_hindrance() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n".repeat(255));
        let (_left, _) = Unfinished::create(&path).unwrap();
        replace(&path);
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let (unfinished, _) = Unfinished::create(&path).unwrap();
        unfinished.abandon();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
