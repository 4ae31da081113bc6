//! Unpacks tar archives into the image.
//!
//! Every path of an archive is followed below the directory that it is unpacked into, which is the root for
//! symbolic links and `..` on the way: no archive reaches anything else of the image.
//!
//! An entry is complete before it takes the place of what is there under its name. Directories get their
//! attributes when everything is in them: times would change again, and a directory that may not be written
//! would take no entries.

mod places;

use super::Fs;
use crate::replace::settle;
use crate::transfer::CopySummary;
use crate::transfer::facts::remove_inherited_acls;
use crate::{Error, Result};
use drystone_sources::Opener;
use drystone_sources::input::{FileRange, Input};
use drystone_sources::tar::{DataRun, EntryKind, TarAttributes, TarEntry, TarReader};
use drystone_vfs::{
    Capabilities, DeviceNumber, Errno, FileType, InodeGuard, InodeNumber, NewNode, SetAttributes,
    SetTime, Timestamp, XattrMode,
};
use places::{Missing, Places, beside, split};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Copied at a time.
const COPY_BYTES: u64 = 1 << 20;
/// What an archive is called in errors.
const ARCHIVE_NAME: &str = "the archive";

impl Fs<'_> {
    /// Unpacks a tar archive into the directory `into`, with owners, permissions, times, extended attributes,
    /// ACLs, hard links and holes. A directory that is there is merged into, anything else replaced. It may
    /// be compressed if the feature `compression` is on. An ordinary user owns what is unpacked.
    ///
    /// The archive is first copied to a file without a name in [`std::env::temp_dir`] and read to its end: one
    /// that is cut off in an entry, or has a damaged header, changes nothing. Content has no checksum in a tar.
    ///
    /// ```
    /// # use drystone::{CreateOptions, Image};
    /// # fn main() -> drystone::Result<()> {
    /// # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
    /// let fs = image.fs();
    /// fs.create_dir_all("/etc/ssl")?;
    /// fs.write("/etc/ssl/openssl.cnf", "# none\n")?;
    /// // For a file: fs.import_tar(std::fs::File::open("etc.tar")?, "/etc")?
    /// let mut archive = Vec::new();
    /// fs.extract_tar("/etc", &mut archive)?;
    /// fs.create_dir("/copy")?;
    /// let summary = fs.import_tar(&archive[..], "/copy")?;
    /// assert_eq!((summary.files, summary.directories), (1, 2));
    /// assert_eq!(fs.read("/copy/ssl/openssl.cnf")?, b"# none\n");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The archive can't be read or is damaged, `into` is no directory, or an entry can't be made: then those
    /// before it stay, and what it would have replaced.
    pub fn import_tar(&self, archive: impl Read, into: impl AsRef<Path>) -> Result<CopySummary> {
        let into = into.as_ref();
        let failed = |error: drystone_sources::Error| Error::from(error).during("import").at(into);
        let opener = Opener::new(&std::env::temp_dir());
        let archive = opener.read(ARCHIVE_NAME, archive).map_err(failed)?.input;
        let top = self.run("import", into, |path| self.find(path, true))?;
        if top.attributes().file_type != FileType::Directory {
            return Err(Error::from(Errno::ENOTDIR).during("import").at(into));
        }
        let next =
            |reader: &mut TarReader<'_>| reader.next_entry().map_err(|error| failed(error.into()));
        let mut reader = TarReader::new(ARCHIVE_NAME, &archive);
        while next(&mut reader)?.is_some() {}
        let mut import = Import {
            places: Places { fs: self, top },
            archive: &archive,
            into,
            directories: BTreeMap::new(),
            summary: CopySummary::default(),
        };
        let mut reader = TarReader::new(ARCHIVE_NAME, &archive);
        let mut add_all = || {
            while let Some(entry) = next(&mut reader)? {
                import.add(entry)?;
            }
            Ok(())
        };
        let added = add_all();
        // Also those of an archive that is given up: until then only their owner may use them.
        let finished = import.finish_directories();
        added.and(finished)?;
        Ok(import.summary)
    }
}

/// What an inode is to get.
struct ImportedAttributes {
    permissions: u16,
    user: u32,
    group: u32,
    modified: Timestamp,
    xattrs: TarAttributes,
}

/// A directory that gets its attributes in the end.
struct ImportedDirectory {
    is_new: bool,
    attributes: ImportedAttributes,
}

struct Import<'f> {
    places: Places<'f>,
    archive: &'f FileRange,
    into: &'f Path,
    /// By path: the last entry of a path counts.
    directories: BTreeMap<Vec<u8>, ImportedDirectory>,
    summary: CopySummary,
}

impl<'f> Import<'f> {
    fn add(&mut self, entry: TarEntry) -> Result<()> {
        let path = entry.path.clone();
        self.unpack(entry).map_err(|error| self.error(&path, error))
    }

    fn error(&self, path: &[u8], error: drystone_vfs::Error) -> Error {
        Error::from(error).during("import").at(&self.full_path(path))
    }

    /// Where an entry comes to be, for errors.
    fn full_path(&self, path: &[u8]) -> PathBuf {
        match path.is_empty() {
            true => self.into.to_path_buf(),
            false => self.into.join(OsStr::from_bytes(path)),
        }
    }

    fn unpack(&mut self, entry: TarEntry) -> drystone_vfs::Result<()> {
        let TarEntry { path, kind, mode, user, group, modified, attributes, .. } = entry;
        let modified = Timestamp { seconds: modified.seconds, nanoseconds: modified.nanoseconds };
        let attributes =
            ImportedAttributes { permissions: mode, user, group, modified, xattrs: attributes };
        let (above, name) = split(&path);
        let kind = match kind {
            EntryKind::Directory => return self.directory(path, attributes),
            _ if name.is_empty() => return Err(Errno::EISDIR.into()),
            EntryKind::HardLink(target) => return self.link(&target, above, name),
            other => other,
        };
        let parent = self.places.directory_at(above, Missing::AreMade)?;
        let device = |&major, &minor| DeviceNumber { major, minor };
        let (node, count) = match &kind {
            EntryKind::Symlink(target) => (NewNode::Symlink(target), &mut self.summary.symlinks),
            EntryKind::CharacterDevice { major, minor } => {
                (NewNode::CharacterDevice(device(major, minor)), &mut self.summary.special)
            }
            EntryKind::BlockDevice { major, minor } => {
                (NewNode::BlockDevice(device(major, minor)), &mut self.summary.special)
            }
            EntryKind::Fifo => (NewNode::Fifo, &mut self.summary.special),
            // The others were taken above.
            EntryKind::File { .. } | EntryKind::Directory | EntryKind::HardLink(_) => {
                (NewNode::Regular, &mut self.summary.files)
            }
        };
        *count += 1;
        let file_type = node.file_type();
        let make = |name: &[u8]| self.places.make(parent.inode(), name, node);
        let (made_as, made) = beside(name, make)?;
        let completed = self.complete(made.inode(), file_type, &kind, &attributes);
        let (file_system, context) = (self.places.fs.file_system(), &*self.places.fs.context);
        settle(file_system, context, parent.inode(), &made_as, name, completed)
    }

    /// Gives a new inode its content and its attributes.
    fn complete(
        &mut self,
        inode: InodeNumber,
        file_type: FileType,
        kind: &EntryKind,
        attributes: &ImportedAttributes,
    ) -> drystone_vfs::Result<()> {
        if let EntryKind::File { size, runs } = kind {
            self.write(inode, *size, runs)?;
        }
        self.finish(inode, file_type, true, attributes)?;
        if file_type == FileType::Regular {
            self.places.fs.file_system().closed(inode);
        }
        Ok(())
    }

    /// Makes a directory, or takes the one that is there.
    fn directory(
        &mut self,
        path: Vec<u8>,
        attributes: ImportedAttributes,
    ) -> drystone_vfs::Result<()> {
        let (above, name) = split(&path);
        let mut is_new = false;
        if !name.is_empty() {
            let parent = self.places.directory_at(above, Missing::AreMade)?;
            let found = self.places.look_up(parent.inode(), name)?;
            if found.is_none_or(|found| found.attributes().file_type != FileType::Directory) {
                self.places.new_directory(parent.inode(), name)?;
                is_new = true;
            }
        }
        match self.directories.entry(path) {
            MapEntry::Vacant(place) => {
                self.summary.directories += 1;
                place.insert(ImportedDirectory { is_new, attributes });
            }
            MapEntry::Occupied(mut earlier) => {
                let is_new = is_new || earlier.get().is_new;
                earlier.insert(ImportedDirectory { is_new, attributes });
            }
        }
        Ok(())
    }

    fn link(&mut self, target: &[u8], above: &[u8], name: &[u8]) -> drystone_vfs::Result<()> {
        let (target_above, target_name) = split(target);
        let missing = || {
            let target = self.full_path(target);
            let detail = format!("a hard link to '{}', which isn't there", target.display());
            drystone_vfs::Error::with_detail(Errno::ENOENT, detail)
        };
        let holder = self.places.directory_at(target_above, Missing::AreErrors)?;
        let original = self.places.look_up(holder.inode(), target_name)?.ok_or_else(missing)?;
        let parent = self.places.directory_at(above, Missing::AreMade)?;
        let there = self.places.look_up(parent.inode(), name)?;
        if there.is_none_or(|there| there.inode() != original.inode()) {
            let (file_system, context) = (self.places.fs.file_system(), &*self.places.fs.context);
            let link = |name: &[u8]| {
                let linked = file_system.link(context, original.inode(), parent.inode(), name)?;
                Ok(InodeGuard::new(file_system, linked))
            };
            let (linked_as, _) = beside(name, link)?;
            settle(file_system, context, parent.inode(), &linked_as, name, Ok(()))?;
        }
        self.summary.hard_links += 1;
        Ok(())
    }

    fn write(
        &mut self,
        file: InodeNumber,
        size: u64,
        runs: &[DataRun],
    ) -> drystone_vfs::Result<()> {
        let (file_system, context) = (self.places.fs.file_system(), &*self.places.fs.context);
        let mut buffer = Vec::new();
        for run in runs {
            let mut done = 0;
            while done < run.length {
                let length = (run.length - done).min(COPY_BYTES);
                buffer.resize(length as usize, 0);
                self.archive.read_at(run.position + done, &mut buffer).map_err(|error| {
                    let detail = format!("the archive can't be read: {error}");
                    drystone_vfs::Error::with_detail(Errno::EIO, detail)
                })?;
                file_system.write_all(context, file, run.offset + done, &buffer)?;
                done += length;
            }
            self.summary.bytes += run.length;
        }
        let end = runs.last().map_or(0, |run| run.offset + run.length);
        if end < size {
            let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
            file_system.set_attributes(context, file, &changes)?;
        }
        Ok(())
    }

    /// Gives an inode its attributes. The owner comes first: a new one takes file capabilities away.
    fn finish(
        &mut self,
        inode: InodeNumber,
        file_type: FileType,
        is_new: bool,
        attributes: &ImportedAttributes,
    ) -> drystone_vfs::Result<()> {
        let (file_system, context) = (self.places.fs.file_system(), &*self.places.fs.context);
        if context.has(Capabilities::CHOWN) {
            let (user, group) = (Some(attributes.user), Some(attributes.group));
            let changes = SetAttributes { user, group, ..SetAttributes::default() };
            file_system.set_attributes(context, inode, &changes)?;
        }
        if is_new {
            remove_inherited_acls(file_system, context, inode, file_type, &attributes.xattrs)?;
        }
        for (name, value) in &attributes.xattrs {
            match file_system.set_xattr(context, inode, name, value, XattrMode::Set) {
                Err(error) if is_not_kept(error.errno) => self.summary.not_kept += 1,
                other => other?,
            }
        }
        let permissions = (file_type != FileType::Symlink).then_some(attributes.permissions);
        let modified = Some(SetTime::At(attributes.modified));
        let changes = SetAttributes { permissions, modified, ..SetAttributes::default() };
        file_system.set_attributes(context, inode, &changes)?;
        Ok(())
    }

    /// Gives directories their attributes, those within before those around them. Goes on after a failure, and
    /// returns the first.
    fn finish_directories(&mut self) -> Result<()> {
        let mut finished = Ok(());
        while let Some((path, ImportedDirectory { is_new, attributes })) =
            self.directories.pop_last()
        {
            let done = self.places.directory_at(&path, Missing::AreErrors).and_then(|directory| {
                self.finish(directory.inode(), FileType::Directory, is_new, &attributes)
            });
            finished = finished.and(done.map_err(|error| self.error(&path, error)));
        }
        finished
    }
}

/// Whether an attribute is left out that gives this error: the image doesn't hold its kind, the user may not set
/// it, or it is too large.
const fn is_not_kept(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::EPERM
            | Errno::EOPNOTSUPP
            | Errno::ENOSPC
            | Errno::EDQUOT
            | Errno::E2BIG
            | Errno::ERANGE
    )
}
