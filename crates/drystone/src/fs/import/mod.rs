//! Unpacks tar archives into the image.
//!
//! Every path of an archive is followed below the directory that it is unpacked into, which is the root for
//! symbolic links and `..` on the way: no archive reaches anything else of the image.
//!
//! Directories get their attributes when everything is in them: times would change again, and a
//! directory that may not be written would take no entries.

use super::Fs;
use crate::transfer::CopySummary;
use crate::transfer::facts::remove_inherited_acls;
use crate::{Error, Result};
use drystone_sources::Opener;
use drystone_sources::input::{FileRange, Input};
use drystone_sources::tar::{DataRun, EntryKind, TarAttributes, TarEntry, TarReader};
use drystone_vfs::{
    Capabilities, DeviceNumber, Errno, FileType, FollowedLinks, InodeGuard, InodeNumber, NewNode,
    OpenFlags, RequestContext, SetAttributes, SetTime, Timestamp, XattrMode,
};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Copied at a time.
const COPY_BYTES: u64 = 1 << 20;
/// What an archive is called in errors.
const ARCHIVE_NAME: &str = "the archive";
/// Permissions of directories that an archive has entries in, but doesn't have itself.
const PARENT_PERMISSIONS: u16 = 0o755;

impl Fs<'_> {
    /// Unpacks a tar archive into the directory `into`, with owners, permissions, times, extended attributes,
    /// ACLs, hard links and holes. A directory that is there is merged into, anything else replaced. It may
    /// be compressed if the feature `compression` is on. An ordinary user owns what is unpacked.
    ///
    /// The archive is first copied to a file without a name in [`std::env::temp_dir`], and checked: one that is
    /// cut off or damaged changes nothing.
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
    /// before it stay.
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
            fs: self,
            archive: &archive,
            into,
            top,
            directories: Vec::new(),
            summary: CopySummary::default(),
        };
        let mut reader = TarReader::new(ARCHIVE_NAME, &archive);
        while let Some(entry) = next(&mut reader)? {
            import.add(entry)?;
        }
        import.finish_directories()
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
    path: Vec<u8>,
    is_new: bool,
    attributes: ImportedAttributes,
}

/// What happens to directories on a way that aren't there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parents {
    AreMade,
    Stay,
}

struct Import<'f> {
    fs: &'f Fs<'f>,
    archive: &'f FileRange,
    into: &'f Path,
    top: InodeGuard<'f>,
    directories: Vec<ImportedDirectory>,
    summary: CopySummary,
}

impl<'f> Import<'f> {
    fn add(&mut self, entry: TarEntry) -> Result<()> {
        let path = entry.path.clone();
        self.unpack(entry).map_err(|error| self.error(&path, error))
    }

    fn error(&self, path: &[u8], error: drystone_vfs::Error) -> Error {
        Error::from(error).during("import").at(&self.place(path))
    }

    /// Where an entry comes to be, for errors.
    fn place(&self, path: &[u8]) -> PathBuf {
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
        let parent = self.directory_at(above, Parents::AreMade)?;
        self.clear(parent.inode(), name)?;
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
        let made = self.make(parent.inode(), name, node)?;
        if let EntryKind::File { size, runs } = &kind {
            self.write(made.inode(), *size, runs)?;
        }
        self.finish(made.inode(), file_type, true, &attributes)?;
        if file_type == FileType::Regular {
            self.fs.file_system().closed(made.inode());
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
            let parent = self.directory_at(above, Parents::AreMade)?;
            let found = self.look_up(parent.inode(), name)?;
            if found.is_none_or(|found| found.attributes().file_type != FileType::Directory) {
                self.clear(parent.inode(), name)?;
                self.make(parent.inode(), name, NewNode::Directory)?;
                is_new = true;
            }
        }
        self.summary.directories += 1;
        self.directories.push(ImportedDirectory { path, is_new, attributes });
        Ok(())
    }

    fn link(&mut self, target: &[u8], above: &[u8], name: &[u8]) -> drystone_vfs::Result<()> {
        let (target_above, target_name) = split(target);
        let missing = || {
            let target = self.place(target);
            let detail = format!("a hard link to '{}', which isn't there", target.display());
            drystone_vfs::Error::with_detail(Errno::ENOENT, detail)
        };
        let holder = self.directory_at(target_above, Parents::Stay)?;
        let original = self.look_up(holder.inode(), target_name)?.ok_or_else(missing)?;
        let parent = self.directory_at(above, Parents::AreMade)?;
        let there = self.look_up(parent.inode(), name)?;
        if there.is_none_or(|there| there.inode() != original.inode()) {
            self.clear(parent.inode(), name)?;
            let file_system = self.fs.file_system();
            let context = &self.fs.context;
            let linked = file_system.link(context, original.inode(), parent.inode(), name)?;
            drop(InodeGuard::new(file_system, linked));
        }
        self.summary.hard_links += 1;
        Ok(())
    }

    fn look_up(
        &self,
        directory: InodeNumber,
        name: &[u8],
    ) -> drystone_vfs::Result<Option<InodeGuard<'f>>> {
        let file_system = self.fs.file_system();
        match file_system.lookup(&self.fs.context, directory, name) {
            Ok(found) => Ok(Some(InodeGuard::new(file_system, found))),
            Err(error) if error.errno == Errno::ENOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes place for a new entry. A directory stays, which is an error.
    fn clear(&self, directory: InodeNumber, name: &[u8]) -> drystone_vfs::Result<()> {
        match self.fs.file_system().unlink(&self.fs.context, directory, name) {
            Err(error) if error.errno != Errno::ENOENT => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes an entry that only its owner may use until it is complete.
    fn make(
        &self,
        directory: InodeNumber,
        name: &[u8],
        node: NewNode<'_>,
    ) -> drystone_vfs::Result<InodeGuard<'f>> {
        let permissions = match node {
            NewNode::Symlink(_) => 0o777,
            NewNode::Directory => 0o700,
            _ => 0o600,
        };
        let file_system = self.fs.file_system();
        let made = file_system.create(&self.fs.context, directory, name, node, permissions)?;
        Ok(InodeGuard::new(file_system, made))
    }

    fn write(
        &mut self,
        file: InodeNumber,
        size: u64,
        runs: &[DataRun],
    ) -> drystone_vfs::Result<()> {
        let (file_system, context) = (self.fs.file_system(), &*self.fs.context);
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
        let (file_system, context) = (self.fs.file_system(), &*self.fs.context);
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
                Err(error) if matches!(error.errno, Errno::EPERM | Errno::EOPNOTSUPP) => {
                    self.summary.not_kept += 1;
                }
                other => other?,
            }
        }
        let permissions = (file_type != FileType::Symlink).then_some(attributes.permissions);
        let modified = Some(SetTime::At(attributes.modified));
        let changes = SetAttributes { permissions, modified, ..SetAttributes::default() };
        file_system.set_attributes(context, inode, &changes)?;
        Ok(())
    }

    /// Gives directories their attributes, those within before those around them.
    fn finish_directories(mut self) -> Result<CopySummary> {
        while let Some(ImportedDirectory { path, is_new, attributes }) = self.directories.pop() {
            let finished = self.directory_at(&path, Parents::Stay).and_then(|directory| {
                self.finish(directory.inode(), FileType::Directory, is_new, &attributes)
            });
            finished.map_err(|error| self.error(&path, error))?;
        }
        Ok(self.summary)
    }

    /// The directory at a path of the archive.
    fn directory_at(&self, path: &[u8], parents: Parents) -> drystone_vfs::Result<InodeGuard<'f>> {
        let file_system = self.fs.file_system();
        // What is on the way below the top.
        let mut way: Vec<InodeGuard<'f>> = Vec::new();
        let parts = |path: &[u8]| path.split(|&byte| byte == b'/').map(<[u8]>::to_vec).collect();
        let mut rest: VecDeque<Vec<u8>> = parts(path);
        let mut links = FollowedLinks::default();
        while let Some(name) = rest.pop_front() {
            match &name[..] {
                b"" | b"." => continue,
                b".." => {
                    way.pop();
                    continue;
                }
                _ => {}
            }
            let directory = way.last().unwrap_or(&self.top).inode();
            let found = match self.look_up(directory, &name)? {
                Some(found) => found,
                None if parents == Parents::Stay => return Err(Errno::ENOENT.into()),
                None => {
                    let (context, node) = (&self.fs.context, NewNode::Directory);
                    let made =
                        file_system.create(context, directory, &name, node, PARENT_PERMISSIONS)?;
                    InodeGuard::new(file_system, made)
                }
            };
            match found.attributes().file_type {
                FileType::Directory => way.push(found),
                FileType::Symlink => {
                    let target = links.target(file_system, &found)?;
                    if target.first() == Some(&b'/') {
                        way.clear();
                    }
                    let mut target: VecDeque<Vec<u8>> = parts(&target);
                    target.append(&mut rest);
                    rest = target;
                }
                _ => return Err(Errno::ENOTDIR.into()),
            }
        }
        match way.pop() {
            Some(directory) => Ok(directory),
            None => {
                let (superuser, top) = (RequestContext::superuser(), self.top.inode());
                let again = file_system.open(&superuser, top, OpenFlags::empty())?;
                Ok(InodeGuard::new(file_system, again))
            }
        }
    }
}

/// The directory and the name of a path of the archive.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}
