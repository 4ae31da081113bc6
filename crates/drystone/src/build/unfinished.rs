//! A file that has a temporary name until it is complete, and then replaces what had its name.
//!
//! # Crash
//! The caller syncs the content first. Then the file gets its name, and the directory is synced.

use drystone_blockdev::sync_directory_of;
use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::{PathPersistError, TempPath};

/// Links that are followed, as Linux does.
const LINKS_MAX: u32 = 40;
/// Bytes of the name that go into the other one, which is no longer than a name may be.
const NAME_BYTES_MAX: usize = 200;

/// The final name of a file, and what has that name now.
#[derive(Clone, Debug)]
pub struct FilePlace {
    /// The name; of a file, what symbolic links lead to.
    to: PathBuf,
    existing: Option<Metadata>,
}

impl FilePlace {
    /// Looks at what a path leads to.
    ///
    /// The kernel decides what is there, because it doesn't follow every symbolic link: in a
    /// directory that everybody may write to, it doesn't follow those of others
    /// (`fs.protected_symlinks`). Reading a link isn't restricted like that, so the target that was
    /// read must be the file that the kernel found.
    ///
    /// # Errors
    /// What is there can't be found out.
    pub fn find(path: &Path) -> io::Result<FilePlace> {
        let existing = present(fs::metadata(path))?;
        if existing.as_ref().is_some_and(|existing| !existing.is_file()) {
            return Ok(FilePlace { to: path.to_path_buf(), existing });
        }
        let to = followed(path)?;
        let found = present(fs::symlink_metadata(&to))?;
        if existing.as_ref().map(identity) != found.as_ref().map(identity) {
            let problem = "the symbolic link was changed while it was followed; try again";
            return Err(io::Error::other(problem));
        }
        Ok(FilePlace { to, existing })
    }

    /// What is there.
    pub fn existing(&self) -> Option<&Metadata> {
        self.existing.as_ref()
    }

    /// Fails if something else is there now.
    fn check_unchanged(&self) -> io::Result<()> {
        let now = present(fs::symlink_metadata(&self.to))?;
        let is_filled = |existing: &Metadata, now: &Metadata| existing.len() == 0 && now.len() > 0;
        match (&self.existing, now) {
            (None, None) => Ok(()),
            (Some(existing), Some(now))
                if identity(existing) == identity(&now) && !is_filled(existing, &now) =>
            {
                Ok(())
            }
            // Then nothing is lost.
            (Some(_), None) => Ok(()),
            _ => Err(taken()),
        }
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct Unfinished {
    /// Its name until it is complete, which goes away with this.
    name: TempPath,
    /// The name that it gets.
    place: FilePlace,
}

impl Unfinished {
    /// Makes a file beside the one that `place` names, with the owner and the permissions of that.
    pub fn create(place: FilePlace) -> io::Result<(Unfinished, File)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        if place.existing.is_some() {
            // Only users who could read the old file may read the new one.
            options.mode(0o600);
        }
        let (name, file) = create_beside(&place.to, &options)?;
        if let Some(existing) = &place.existing {
            adopt(&file, existing)?;
        }
        Ok((Unfinished { name, place }, file))
    }

    /// Gives the file its name, replacing what had it when the name was looked up. Anything that
    /// took the name since then stays.
    pub fn finish(self) -> io::Result<()> {
        let Unfinished { name, place } = self;
        place.check_unchanged()?;
        match place.existing {
            Some(_) => name.persist(&place.to)?,
            None => take_free_name(name, &place.to)?,
        }
        sync_directory_of(&place.to)
    }

    /// Takes the file away.
    pub fn abandon(self) {
        // The first error is the one to report.
        let _ = self.name.close();
    }
}

/// The directory that a name is in.
fn directory_of(name: &Path) -> &Path {
    match name.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Makes a file with a name that nothing has, whatever earlier programs left.
fn create_beside(to: &Path, options: &OpenOptions) -> io::Result<(TempPath, File)> {
    let mut prefix = OsString::from(".");
    let own = to.file_name().unwrap_or_default().as_bytes();
    prefix.push(OsStr::from_bytes(&own[..own.len().min(NAME_BYTES_MAX)]));
    prefix.push(".");
    let made = tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(".part")
        .make_in(directory_of(to), |name| options.open(name))?;
    let (file, name) = made.into_parts();
    Ok((name, file))
}

/// Gives a file the owner and the permissions of another.
fn adopt(file: &File, existing: &Metadata) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(existing.uid()), Gid::from_raw(existing.gid()));
    let mut permissions = existing.permissions().mode() & 0o777;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (existing.uid(), existing.gid())
        && rustix::fs::fchown(file, Some(user), Some(group)).is_err()
    {
        // If the group can't be set, its permissions must not go to ours.
        permissions &= 0o707;
    }
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(permissions))?)
}

/// Gives a file a name that nothing has.
fn take_free_name(name: TempPath, to: &Path) -> io::Result<()> {
    match name.persist_noclobber(to) {
        Ok(()) => Ok(()),
        Err(PathPersistError { error, .. }) if error.kind() == ErrorKind::AlreadyExists => {
            Err(taken())
        }
        // The file system supports neither a rename without replacement nor links. Just before,
        // nothing was there.
        Err(PathPersistError { error, path })
            if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) =>
        {
            Ok(path.persist(to)?)
        }
        Err(error) => Err(error.into()),
    }
}

fn taken() -> io::Error {
    let problem = "another file got this name meanwhile and stays; look at it and try again";
    io::Error::new(ErrorKind::AlreadyExists, problem)
}

/// Which file it is.
fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// `None` if it doesn't exist, which no other error means.
fn present<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Where a path leads, also if nothing is there yet.
pub fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&at) {
            Ok(target) => at = at.parent().unwrap_or(Path::new("")).join(target),
            // No link, or nothing.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) => {
                return Ok(at);
            }
            Err(error) => return Err(error),
        }
    }
    Err(Errno::LOOP.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    fn create(path: &Path) -> (Unfinished, File) {
        Unfinished::create(FilePlace::find(path).unwrap()).unwrap()
    }

    fn replace(path: &Path) {
        let (unfinished, mut file) = create(path);
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
            let (unfinished, file) = create(&path);
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
        let (_left, _) = create(&path);
        replace(&path);
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let (unfinished, _) = create(&path);
        unfinished.abandon();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_takes_the_name_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let refused = |unfinished: Unfinished| {
            let error = unfinished.finish().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
            assert_eq!(fs::read(&path).unwrap(), b"other");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        };
        // Nothing was there.
        let (unfinished, _) = create(&path);
        fs::write(&path, "other").unwrap();
        refused(unfinished);
        // An empty file was.
        fs::write(&path, "").unwrap();
        let (unfinished, _) = create(&path);
        fs::write(&path, "other").unwrap();
        refused(unfinished);
        // Another one was.
        let (unfinished, _) = create(&path);
        fs::write(folder.path().join("new"), "other").unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        refused(unfinished);
        // What is gone isn't replaced, but missed neither.
        let (unfinished, _) = create(&path);
        fs::remove_file(&path).unwrap();
        unfinished.finish().unwrap();
        assert!(path.exists());
    }

    /// What can't be looked at is not taken for absent.
    #[test]
    fn only_what_is_absent_is_absent() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "old").unwrap();
        assert!(FilePlace::find(&at("none/file")).unwrap().existing().is_none());
        FilePlace::find(&at("file/below")).unwrap_err();
        symlink("loop", at("loop")).unwrap();
        FilePlace::find(&at("loop")).unwrap_err();
    }
}
