//! Runs operations and describes their outcomes.

mod describe;

pub use describe::{COMPARED_FLAGS, describe};

use std::collections::BTreeMap;
use std::fmt;

use drystone_vfs::{
    Access, DeviceNumber, Errno, FileFlags, FileSystem, InodeGuard, InodeNumber, NewNode,
    OpenFlags, RequestContext, Result, SeekFrom, SetAttributes, SetTime, Timestamp, find_parent,
    find_path,
};

use super::operation::{Action, NodeKind, Operation, SeekKind};
use super::text::{OperationTarget, Word};
use crate::digest::digest;
use describe::list;

/// The outcome of an operation: an error, or a description of its result on which two file systems
/// have to agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome(pub std::result::Result<String, Errno>);

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(text) => write!(f, "ok {text}"),
            Err(errno) => f.write_str(errno.name()),
        }
    }
}

/// Runs operations on a file system and holds the files that they open.
pub struct Executor<'a> {
    file_system: &'a dyn FileSystem,
    slots: BTreeMap<u8, InodeNumber>,
    /// Extra detail of the last error, for reports.
    last_detail: Option<String>,
}

impl<'a> Executor<'a> {
    /// An executor that holds nothing.
    pub fn new(file_system: &'a dyn FileSystem) -> Executor<'a> {
        Executor { file_system, slots: BTreeMap::new(), last_detail: None }
    }

    /// An executor that holds these inodes, whose references it takes over.
    pub fn holding(
        file_system: &'a dyn FileSystem,
        slots: BTreeMap<u8, InodeNumber>,
    ) -> Executor<'a> {
        Executor { file_system, slots, last_detail: None }
    }

    /// What it holds, by slot; the caller takes over the references.
    pub fn into_held(mut self) -> BTreeMap<u8, InodeNumber> {
        std::mem::take(&mut self.slots)
    }

    /// Runs one operation.
    pub fn apply(&mut self, operation: &Operation) -> Outcome {
        let result = self.run(&operation.actor.context(), &operation.action);
        self.last_detail = result.as_ref().err().and_then(|e| e.detail().map(str::to_owned));
        Outcome(result.map_err(|error| error.errno))
    }

    /// What the file system said about the last error beyond its number.
    pub fn last_detail(&self) -> Option<&str> {
        self.last_detail.as_deref()
    }

    /// What the operations are done on.
    pub fn file_system(&self) -> &'a dyn FileSystem {
        self.file_system
    }

    /// The inode of the file that is open in a slot.
    pub fn open_inode(&self, slot: u8) -> Option<InodeNumber> {
        self.slots.get(&slot).copied()
    }

    /// The inodes of the files that are open.
    pub fn open_inodes(&self) -> impl Iterator<Item = InodeNumber> {
        self.slots.values().copied()
    }

    /// Closes all open files.
    pub fn close_all(&mut self) {
        for inode in std::mem::take(&mut self.slots).into_values() {
            self.file_system.forget(inode, 1);
        }
    }

    fn hold(&mut self, slot: u8, inode: InodeNumber) {
        if let Some(before) = self.slots.insert(slot, inode) {
            self.file_system.forget(before, 1);
        }
    }

    /// Calls `action` with the directory and the last name of a path.
    fn at_name<T>(
        &self,
        context: &RequestContext,
        path: &Word,
        action: impl FnOnce(InodeNumber, &[u8]) -> Result<T>,
    ) -> Result<T> {
        let (parent, name) = find_parent(self.file_system, context, &path.0)?;
        action(parent.inode(), name)
    }

    /// Makes an inode at a path and describes it.
    fn make(
        &self,
        context: &RequestContext,
        path: &Word,
        node: NewNode<'_>,
        mode: u16,
    ) -> Result<String> {
        self.at_name(context, path, |parent, name| {
            let made = InodeGuard::create(self.file_system, context, parent, name, node, mode)?;
            Ok(describe(made.attributes()))
        })
    }

    /// Calls `action` with the inode of a target.
    fn at_inode<T>(
        &self,
        context: &RequestContext,
        target: &OperationTarget,
        action: impl FnOnce(InodeNumber) -> Result<T>,
    ) -> Result<T> {
        match target {
            OperationTarget::Slot(slot) => action(self.open_inode(*slot).ok_or(Errno::EBADF)?),
            OperationTarget::Path(path) => {
                action(find_path(self.file_system, context, &path.0, false)?.inode())
            }
        }
    }

    /// As `at_inode`, but a path is opened first.
    fn at_open<T>(
        &self,
        context: &RequestContext,
        target: &OperationTarget,
        flags: OpenFlags,
        action: impl FnOnce(InodeNumber) -> Result<T>,
    ) -> Result<T> {
        self.at_inode(context, target, |inode| {
            if matches!(target, OperationTarget::Slot(_)) {
                return action(inode);
            }
            let opened = self.file_system.open(context, inode, flags)?;
            let _opened = InodeGuard::new(self.file_system, opened);
            action(inode)
        })
    }

    fn change(
        &self,
        context: &RequestContext,
        target: &OperationTarget,
        changes: SetAttributes,
    ) -> Result<String> {
        self.at_inode(context, target, |inode| {
            let after = self.file_system.set_attributes(context, inode, &changes)?;
            Ok(describe(&after))
        })
    }

    fn run(&mut self, context: &RequestContext, action: &Action) -> Result<String> {
        match action {
            _ if action.is_on_names() => self.run_on_names(context, action),
            _ if action.is_on_content() => self.run_on_content(context, action),
            Action::Open { path, slot, kind } => {
                let target = OperationTarget::Path(path.clone());
                let opened = self.at_inode(context, &target, |inode| {
                    self.file_system.open(context, inode, kind.flags())
                })?;
                self.hold(*slot, opened.inode);
                Ok(describe(&opened))
            }
            Action::Close { slot } => {
                let inode = self.slots.remove(slot).ok_or(Errno::EBADF)?;
                self.file_system.forget(inode, 1);
                Ok(String::new())
            }
            Action::Sync {} => self.file_system.sync().map(|()| String::new()),
            _ => self.run_on_attributes(context, action),
        }
    }

    fn run_on_names(&mut self, context: &RequestContext, action: &Action) -> Result<String> {
        let file_system = self.file_system;
        match action {
            Action::Create { path, mode } => self.make(context, path, NewNode::Regular, *mode),
            Action::MakeDirectory { path, mode } => {
                self.make(context, path, NewNode::Directory, *mode)
            }
            Action::Symlink { target, path } => {
                self.make(context, path, NewNode::Symlink(&target.0), 0o777)
            }
            Action::MakeNode { path, kind, major, minor, mode } => {
                let device = DeviceNumber { major: *major, minor: *minor };
                let node = match kind {
                    NodeKind::CharacterDevice => NewNode::CharacterDevice(device),
                    NodeKind::BlockDevice => NewNode::BlockDevice(device),
                    NodeKind::Fifo => NewNode::Fifo,
                    NodeKind::Socket => NewNode::Socket,
                };
                self.make(context, path, node, *mode)
            }
            Action::Temporary { path, slot, mode } => {
                let target = OperationTarget::Path(path.clone());
                let made = self.at_inode(context, &target, |parent| {
                    file_system.create_unnamed(context, parent, *mode)
                })?;
                self.hold(*slot, made.inode);
                Ok(describe(&made))
            }
            Action::Link { target, path } => self.at_inode(context, target, |inode| {
                self.at_name(context, path, |parent, name| {
                    let linked = InodeGuard::link(file_system, context, inode, parent, name)?;
                    Ok(describe(linked.attributes()))
                })
            }),
            Action::Unlink { path } => self.at_name(context, path, |parent, name| {
                file_system.unlink(context, parent, name).map(|()| String::new())
            }),
            Action::RemoveDirectory { path } => self.at_name(context, path, |parent, name| {
                file_system.remove_directory(context, parent, name).map(|()| String::new())
            }),
            Action::Rename { from, to, kind } => {
                self.at_name(context, from, |old_parent, old_name| {
                    self.at_name(context, to, |parent, name| {
                        let flags = kind.flags();
                        file_system.rename(context, old_parent, old_name, parent, name, flags)
                    })
                })?;
                Ok(String::new())
            }
            Action::ReadLink { path } => {
                self.at_inode(context, &OperationTarget::Path(path.clone()), |inode| {
                    file_system.read_link(inode).map(|target| Word(target).to_string())
                })
            }
            Action::Lookup { path, slot } => {
                let found = self.at_name(context, path, |parent, name| {
                    file_system.lookup(context, parent, name)
                })?;
                self.hold(*slot, found.inode);
                Ok(describe(&found))
            }
            Action::List { path } => {
                self.at_inode(context, &OperationTarget::Path(path.clone()), |inode| {
                    list(file_system, context, inode)
                })
            }
            _ => unreachable!("not about names: {action}"),
        }
    }

    fn run_on_content(&self, context: &RequestContext, action: &Action) -> Result<String> {
        let file_system = self.file_system;
        match action {
            Action::Read { target, offset, length } => {
                self.at_open(context, target, OpenFlags::READ, |inode| {
                    let mut buffer = vec![0xa5; *length as usize];
                    let count = file_system.read(inode, *offset, &mut buffer)?;
                    Ok(format!("{count} bytes {:016x}", digest(&buffer[..count])))
                })
            }
            Action::Write { target, offset, data } => {
                self.at_open(context, target, OpenFlags::WRITE, |inode| {
                    let count = file_system.write(context, inode, *offset, &data.bytes())?;
                    Ok(format!("{count} bytes"))
                })
            }
            Action::Append { target, data } => {
                self.at_open(context, target, OpenFlags::WRITE, |inode| {
                    let (offset, count) = file_system.append(context, inode, &data.bytes())?;
                    Ok(format!("{count} bytes at {offset}"))
                })
            }
            Action::Truncate { target, size } => {
                let changes = SetAttributes { size: Some(*size), ..Default::default() };
                self.change(context, target, changes)
            }
            Action::Range { target, kind, offset, length } => {
                self.at_open(context, target, OpenFlags::WRITE, |inode| {
                    file_system.fallocate(context, inode, kind.mode(), *offset, *length)?;
                    Ok(describe(&file_system.attributes(inode)?))
                })
            }
            Action::Seek { target, kind, offset } => {
                self.at_open(context, target, OpenFlags::READ, |inode| {
                    let from = match kind {
                        SeekKind::Data => SeekFrom::Data(*offset),
                        SeekKind::Hole => SeekFrom::Hole(*offset),
                    };
                    file_system.seek(inode, from).map(|found| found.to_string())
                })
            }
            Action::SyncFile { target } => self.at_inode(context, target, |inode| {
                file_system.sync_inode(inode, false).map(|()| String::new())
            }),
            Action::SyncData { target } => self.at_inode(context, target, |inode| {
                file_system.sync_inode(inode, true).map(|()| String::new())
            }),
            _ => unreachable!("not about content: {action}"),
        }
    }

    fn run_on_attributes(&self, context: &RequestContext, action: &Action) -> Result<String> {
        let file_system = self.file_system;
        match action {
            Action::Status { target } => self.at_inode(context, target, |inode| {
                file_system.attributes(inode).map(|attributes| describe(&attributes))
            }),
            Action::Access { target, bits } => self.at_inode(context, target, |inode| {
                let access = Access::from_bits_truncate(*bits);
                file_system.check_access(context, inode, access).map(|()| String::new())
            }),
            Action::SetXattr { target, name, value, kind } => {
                self.at_inode(context, target, |inode| {
                    let (value, mode) = (value.bytes(), kind.mode());
                    file_system.set_xattr(context, inode, &name.0, &value, mode)?;
                    Ok(String::new())
                })
            }
            Action::GetXattr { target, name } => self.at_inode(context, target, |inode| {
                let value = file_system.xattr(context, inode, &name.0)?;
                Ok(format!("{} bytes {:016x}", value.len(), digest(&value)))
            }),
            Action::RemoveXattr { target, name } => self.at_inode(context, target, |inode| {
                file_system.remove_xattr(context, inode, &name.0).map(|()| String::new())
            }),
            Action::ListXattrs { target } => self.at_inode(context, target, |inode| {
                let mut names = file_system.list_xattrs(context, inode)?;
                names.sort();
                let names: Vec<_> = names.into_iter().map(|name| Word(name).to_string()).collect();
                Ok(names.join(" "))
            }),
            Action::ChangeMode { target, mode } => {
                let changes = SetAttributes { permissions: Some(*mode), ..Default::default() };
                self.change(context, target, changes)
            }
            Action::ChangeOwner { target, user, group } => {
                let changes = SetAttributes { user: *user, group: *group, ..Default::default() };
                self.change(context, target, changes)
            }
            Action::SetTimes { target, seconds, nanoseconds } => {
                let time = Timestamp { seconds: *seconds, nanoseconds: *nanoseconds };
                let time = Some(SetTime::At(time));
                let changes =
                    SetAttributes { accessed: time, modified: time, ..Default::default() };
                self.at_inode(context, target, |inode| {
                    let after = file_system.set_attributes(context, inode, &changes)?;
                    let Timestamp { seconds, nanoseconds } = after.modified;
                    Ok(format!("{seconds}.{nanoseconds:09} {}", after.accessed == after.modified))
                })
            }
            Action::SetFlags { target, flags } => {
                let flags = Some(FileFlags::from_bits_truncate(*flags));
                // Flags about how an inode is stored must not change.
                self.at_inode(context, target, |inode| {
                    let stored = file_system.attributes(inode)?.flags - COMPARED_FLAGS;
                    let flags = flags.map(|flags| (flags & COMPARED_FLAGS) | stored);
                    let changes = SetAttributes { flags, ..Default::default() };
                    let after = file_system.set_attributes(context, inode, &changes)?;
                    Ok(describe(&after))
                })
            }
            _ => unreachable!("not about attributes: {action}"),
        }
    }
}

impl Drop for Executor<'_> {
    fn drop(&mut self) {
        self.close_all();
    }
}
