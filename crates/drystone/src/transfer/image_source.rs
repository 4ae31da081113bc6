//! An open image as a source.

use super::ends::{CopySource, EndResult, StoredRange};
use super::facts::{InodeFacts, Xattrs, is_copied_xattr};
use drystone_vfs::{
    Dots, Errno, ExtentFlags, FileSystem, FileType, InodeGuard, RequestContext, SeekFrom,
    check_listed, find_path,
};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Extents that are asked for at a time.
const EXTENTS_AT_ONCE: usize = 256;

/// An image that is read with the rights of the superuser.
pub(crate) struct ImageSource<'f> {
    file_system: &'f dyn FileSystem,
    context: RequestContext,
    /// How much it can store, in bytes.
    size: u64,
}

impl<'f> ImageSource<'f> {
    pub fn new(file_system: &'f dyn FileSystem) -> ImageSource<'f> {
        let size = file_system.statistics().map_or(0, |statistics| {
            statistics.blocks.saturating_mul(u64::from(statistics.block_size))
        });
        ImageSource { file_system, context: RequestContext::superuser(), size }
    }

    fn facts(&self, node: &InodeGuard<'_>) -> EndResult<InodeFacts> {
        let attributes = node.attributes();
        let target = match attributes.file_type {
            FileType::Symlink => self.file_system.read_link(attributes.inode)?,
            _ => Vec::new(),
        };
        Ok(InodeFacts::of_attributes(attributes, target))
    }
}

impl<'f> CopySource for ImageSource<'f> {
    type Node = InodeGuard<'f>;

    const HAS_ONE_NAME: bool = true;

    fn start(&self, path: &Path) -> EndResult<(InodeGuard<'f>, InodeFacts)> {
        let bytes = path.as_os_str().as_bytes();
        let found = find_path(self.file_system, &self.context, bytes, true)?;
        if !found.is_directory() {
            return Err(Errno::ENOTDIR.into());
        }
        let facts = self.facts(&found)?;
        Ok((found, facts))
    }

    fn find(
        &self,
        directory: &InodeGuard<'f>,
        name: &OsStr,
    ) -> EndResult<(InodeGuard<'f>, InodeFacts)> {
        let (file_system, directory) = (self.file_system, directory.inode());
        let found = InodeGuard::lookup(file_system, &self.context, directory, name.as_bytes())?;
        let facts = self.facts(&found)?;
        Ok((found, facts))
    }

    fn is_unused_lost_and_found(
        &self,
        directory: &InodeGuard<'f>,
        name: &OsStr,
        node: &InodeGuard<'f>,
    ) -> bool {
        directory.inode() == self.file_system.root()
            && name == "lost+found"
            && self.list(node).is_ok_and(|names| names.is_empty())
    }

    fn open(&self, _node: &mut InodeGuard<'f>, _facts: &InodeFacts) -> EndResult<()> {
        Ok(())
    }

    fn list(&self, directory: &InodeGuard<'f>) -> EndResult<Vec<OsString>> {
        let mut names = Vec::new();
        let (mut dots, mut impossible) = (Dots::default(), None);
        self.file_system.read_directory(&self.context, directory.inode(), 0, &mut |entry| {
            match check_listed(entry.name, &mut dots) {
                Ok(true) => names.push(OsString::from_vec(entry.name.to_vec())),
                Ok(false) => {}
                Err(error) => impossible = Some(error),
            }
            true
        })?;
        if let Some(error) = impossible {
            return Err(error.into());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn read(&self, file: &InodeGuard<'f>, offset: u64, buffer: &mut [u8]) -> EndResult<usize> {
        Ok(self.file_system.read(file.inode(), offset, buffer)?)
    }

    fn next_data(&self, file: &InodeGuard<'f>, offset: u64) -> EndResult<Option<(u64, u64)>> {
        let seek = |from| self.file_system.seek(file.inode(), from);
        match seek(SeekFrom::Data(offset)) {
            Ok(start) => Ok(Some((start, seek(SeekFrom::Hole(start))?))),
            Err(error) if error.errno == Errno::ENXIO => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn places(&self, file: &InodeGuard<'f>, size: u64) -> EndResult<Vec<StoredRange>> {
        let mut places = Vec::new();
        let mut offset = 0;
        while offset < size {
            let length = size - offset;
            let extents =
                self.file_system.extents(file.inode(), offset, length, EXTENTS_AT_ONCE)?;
            let Some(last) = extents.last() else { break };
            let end = last.logical.saturating_add(last.length);
            // A file that a damaged image contradicts itself about must not turn in circles.
            if end <= offset {
                break;
            }
            offset = end;
            let elsewhere = ExtentFlags::UNKNOWN | ExtentFlags::INLINE | ExtentFlags::UNWRITTEN;
            let stored = extents.iter().filter(|extent| !extent.flags.intersects(elsewhere));
            places.extend(stored.map(|extent| StoredRange {
                start: extent.physical,
                end: extent.physical.saturating_add(extent.length),
                is_shared: extent.flags.contains(ExtentFlags::SHARED),
            }));
        }
        Ok(places)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn xattrs(&self, node: &InodeGuard<'f>) -> EndResult<Xattrs> {
        let mut xattrs = Xattrs::new();
        for name in self.file_system.list_xattrs(&self.context, node.inode())? {
            if is_copied_xattr(&name) {
                let value = self.file_system.xattr(&self.context, node.inode(), &name)?;
                xattrs.push((name, value));
            }
        }
        Ok(xattrs)
    }
}
