//! Names: looking up, making, moving and removing them.

use super::{EntryReply, NodeId, Operations, Reply, RequestCaller};
use crate::CountedOperation;
use drystone_vfs::{
    DeviceNumber, Errno, FileType, InodeAttributes, InodeNumber, NewNode, RenameFlags,
    RequestContext, Result,
};
use rustix::fs::OFlags;

/// A file that was made and opened in one request.
#[derive(Clone, Copy, Debug)]
pub struct Created {
    /// The file.
    pub entry: EntryReply,
    /// What later requests name the open file by.
    pub handle: u64,
}

/// Bits of `renameat2`'s flags.
const RENAME_NO_REPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

impl Operations {
    /// Finds a name. A name that isn't there is no error: the kernel may keep that too.
    pub fn lookup(
        &self,
        request: &RequestCaller,
        parent: NodeId,
        name: &[u8],
    ) -> Reply<EntryReply> {
        let found = if name == b"." {
            // The kernel answers this by itself, except for a file handle of an inode that it has
            // forgotten.
            self.find_node(parent)
        } else {
            self.file_system.lookup(&self.context(request, 0), self.inode(parent), name)
        };
        let found = match found {
            Ok(attributes) => Ok(self.entry(attributes)),
            Err(error) if error.errno == Errno::ENOENT => Ok(self.no_entry()),
            Err(error) => Err(error),
        };
        self.done(CountedOperation::Lookup, found)
    }

    fn find_node(&self, node: NodeId) -> Result<InodeAttributes> {
        if node != NodeId::ROOT && InodeNumber(node.0) == self.root {
            // The root has another number here, so no handle has this one.
            return Err(Errno::ESTALE.into());
        }
        self.file_system.find_inode(self.inode(node))
    }

    /// Takes back `count` references.
    pub fn forget(&self, node: NodeId, count: u64) {
        self.counters.count(CountedOperation::Forget);
        // The root is held by the mount itself.
        if node != NodeId::ROOT {
            self.file_system.forget(self.inode(node), count);
        }
    }

    /// Makes a regular file and opens it. `flags` are those of `open`.
    ///
    /// # Errors
    /// `ESTALE` if there is one that may be opened instead.
    pub fn create(
        &self,
        request: &RequestCaller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        umask: u32,
        flags: u32,
    ) -> Reply<Created> {
        let context = self.context(request, umask as u16);
        self.done(CountedOperation::Create, self.create_file(&context, parent, name, mode, flags))
    }

    fn create_file(
        &self,
        context: &RequestContext,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        flags: u32,
    ) -> Result<Created> {
        let parent = self.inode(parent);
        let made =
            self.file_system.create(context, parent, name, NewNode::Regular, permissions(mode));
        let exclusive = OFlags::from_bits_retain(flags).contains(OFlags::EXCL);
        match made {
            Ok(attributes) => Ok(self.created(attributes, flags)),
            // The kernel didn't know the name, and doesn't check permissions of a file that it
            // thinks is new. After `ESTALE` it looks the name up and opens what it finds.
            Err(error) if error.errno == Errno::EEXIST && !exclusive => Err(Errno::ESTALE.into()),
            Err(error) => Err(error),
        }
    }

    fn created(&self, attributes: InodeAttributes, flags: u32) -> Created {
        let handle = self.opened(attributes.inode, OFlags::from_bits_retain(flags));
        Created { entry: self.entry(attributes), handle }
    }

    /// Makes a file without a name (`O_TMPFILE`) and opens it. `flags` are those of `open`.
    pub fn create_unnamed(
        &self,
        request: &RequestCaller,
        parent: NodeId,
        mode: u32,
        umask: u32,
        flags: u32,
    ) -> Reply<Created> {
        let context = self.context(request, umask as u16);
        let made = self.file_system.create_unnamed(&context, self.inode(parent), permissions(mode));
        self.done(
            CountedOperation::CreateUnnamed,
            made.map(|attributes| self.created(attributes, flags)),
        )
    }

    /// Makes an inode of the type in `mode` that isn't a directory or a symbolic link. `device` is
    /// as the protocol has it.
    pub fn make_node(
        &self,
        request: &RequestCaller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        umask: u32,
        device: u32,
    ) -> Reply<EntryReply> {
        let context = self.context(request, umask as u16);
        let node = match FileType::from_mode(mode as u16) {
            None | Some(FileType::Regular) => Ok(NewNode::Regular),
            Some(FileType::CharacterDevice) => Ok(NewNode::CharacterDevice(decode_device(device))),
            Some(FileType::BlockDevice) => Ok(NewNode::BlockDevice(decode_device(device))),
            Some(FileType::Fifo) => Ok(NewNode::Fifo),
            Some(FileType::Socket) => Ok(NewNode::Socket),
            Some(FileType::Directory | FileType::Symlink) => Err(Errno::EINVAL.into()),
        };
        let parent = self.inode(parent);
        let made = node.and_then(|node| {
            self.file_system.create(&context, parent, name, node, permissions(mode))
        });
        self.done(CountedOperation::MakeNode, made.map(|attributes| self.entry(attributes)))
    }

    /// Makes a directory.
    pub fn make_directory(
        &self,
        request: &RequestCaller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Reply<EntryReply> {
        let context = self.context(request, umask as u16);
        let parent = self.inode(parent);
        let made =
            self.file_system.create(&context, parent, name, NewNode::Directory, permissions(mode));
        self.done(CountedOperation::MakeDirectory, made.map(|attributes| self.entry(attributes)))
    }

    /// Makes a symbolic link to `target`.
    pub fn symlink(
        &self,
        request: &RequestCaller,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Reply<EntryReply> {
        let context = self.context(request, 0);
        let parent = self.inode(parent);
        let made = self.file_system.create(&context, parent, name, NewNode::Symlink(target), 0o777);
        self.done(CountedOperation::Symlink, made.map(|attributes| self.entry(attributes)))
    }

    /// Gives `node` one more name.
    pub fn link(
        &self,
        request: &RequestCaller,
        node: NodeId,
        parent: NodeId,
        name: &[u8],
    ) -> Reply<EntryReply> {
        let context = self.context(request, 0);
        let linked = self.file_system.link(&context, self.inode(node), self.inode(parent), name);
        self.done(CountedOperation::Link, linked.map(|attributes| self.entry(attributes)))
    }

    /// Removes the name of something that isn't a directory.
    pub fn unlink(&self, request: &RequestCaller, parent: NodeId, name: &[u8]) -> Reply<()> {
        let context = self.context(request, 0);
        let removed = self.file_system.unlink(&context, self.inode(parent), name);
        self.done(CountedOperation::Unlink, removed)
    }

    /// Removes an empty directory.
    pub fn remove_directory(
        &self,
        request: &RequestCaller,
        parent: NodeId,
        name: &[u8],
    ) -> Reply<()> {
        let context = self.context(request, 0);
        let removed = self.file_system.remove_directory(&context, self.inode(parent), name);
        self.done(CountedOperation::RemoveDirectory, removed)
    }

    /// Moves a name; `flags` are those of `renameat2`.
    pub fn rename(
        &self,
        request: &RequestCaller,
        parent: NodeId,
        name: &[u8],
        new_parent: NodeId,
        new_name: &[u8],
        flags: u32,
    ) -> Reply<()> {
        let context = self.context(request, 0);
        let known = RENAME_NO_REPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT;
        let renamed = if flags & !known != 0 {
            Err(Errno::EINVAL.into())
        } else {
            let mut how = RenameFlags::empty();
            how.set(RenameFlags::NO_REPLACE, flags & RENAME_NO_REPLACE != 0);
            how.set(RenameFlags::EXCHANGE, flags & RENAME_EXCHANGE != 0);
            how.set(RenameFlags::WHITEOUT, flags & RENAME_WHITEOUT != 0);
            let (parent, new_parent) = (self.inode(parent), self.inode(new_parent));
            self.file_system.rename(&context, parent, name, new_parent, new_name, how)
        };
        self.done(CountedOperation::Rename, renamed)
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, node: NodeId) -> Reply<Vec<u8>> {
        let inode = self.inode(node);
        let target = self.done(CountedOperation::ReadLink, self.file_system.read_link(inode))?;
        self.file_system.accessed(inode);
        Ok(target)
    }
}

fn permissions(mode: u32) -> u16 {
    mode as u16 & drystone_vfs::mode::PERMISSIONS
}

/// A device number as the protocol carries it: 12 bits of major number between the low 8 and the
/// high 12 bits of the minor number.
fn decode_device(device: u32) -> DeviceNumber {
    DeviceNumber { major: device >> 8 & 0xfff, minor: device & 0xff | device >> 12 & 0xf_ff00 }
}

/// What the protocol carries for a device number, for `rdev` of a reply.
pub fn encode_device(device: DeviceNumber) -> u32 {
    device.minor & 0xff | (device.major & 0xfff) << 8 | (device.minor & 0xf_ff00) << 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_the_way() {
        for (major, minor) in [(0, 0), (1, 3), (8, 17), (4095, 0xf_ffff), (259, 0x1234)] {
            let device = DeviceNumber { major, minor };
            assert_eq!(decode_device(encode_device(device)), device);
        }
        // /dev/null, as `stat` prints it.
        assert_eq!(encode_device(DeviceNumber { major: 1, minor: 3 }), 0x103);
    }
}
