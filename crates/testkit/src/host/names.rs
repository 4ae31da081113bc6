//! System calls on names.

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, linkat, makedev, mkdirat, mknodat, openat,
    readlinkat, renameat_with, symlinkat, unlinkat,
};

use super::{HostExecutor, HostOutcome, Result, describe};
use crate::operations::{Action, NodeKind, OperationTarget, RenameKind, Word};
use rustix::fd::{AsFd, OwnedFd};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

impl HostExecutor {
    pub(super) fn run_on_names(&mut self, action: &Action) -> HostOutcome {
        match action {
            Action::Create { path, mode } => self.make(path, |parent, name| {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                openat(parent, name, flags, Mode::from_raw_mode((*mode).into())).map(drop)
            }),
            Action::MakeDirectory { path, mode } => self.make(path, |parent, name| {
                mkdirat(parent, name, Mode::from_raw_mode((*mode).into()))
            }),
            Action::Symlink { target, path } => self
                .make(path, |parent, name| symlinkat(OsStr::from_bytes(&target.0), parent, name)),
            Action::MakeNode { path, kind, major, minor, mode } => {
                self.make(path, |parent, name| {
                    let (kind, device) = match kind {
                        NodeKind::CharacterDevice => {
                            (FileType::CharacterDevice, makedev(*major, *minor))
                        }
                        NodeKind::BlockDevice => (FileType::BlockDevice, makedev(*major, *minor)),
                        NodeKind::Fifo => (FileType::Fifo, 0),
                        NodeKind::Socket => (FileType::Socket, 0),
                    };
                    mknodat(parent, name, kind, Mode::from_raw_mode((*mode).into()), device)
                })
            }
            Action::Temporary { path, slot, mode } => {
                let (parent, name) = self.parent(path)?;
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let file = openat(parent, name, flags, Mode::from_raw_mode((*mode).into()))?;
                let description = describe(file.as_fd())?;
                self.slots.insert(*slot, file);
                Ok(description)
            }
            Action::Link { target, path } => self.make(path, |parent, name| match target {
                OperationTarget::Path(from) => {
                    let (old_parent, old_name) = self.parent(from)?;
                    linkat(old_parent, old_name, parent, name, AtFlags::empty())
                }
                OperationTarget::Slot(_) => self
                    .at_inode(target, |file| linkat(file, "", parent, name, AtFlags::EMPTY_PATH)),
            }),
            Action::Unlink { path } => self.remove(path, AtFlags::empty()),
            Action::RemoveDirectory { path } => self.remove(path, AtFlags::REMOVEDIR),
            Action::Rename { from, to, kind } => {
                let (old_parent, old_name) = self.parent(from)?;
                let (parent, name) = self.parent(to)?;
                let flags = match kind {
                    RenameKind::Plain => RenameFlags::empty(),
                    RenameKind::NoReplace => RenameFlags::NOREPLACE,
                    RenameKind::Exchange => RenameFlags::EXCHANGE,
                    RenameKind::Whiteout => RenameFlags::WHITEOUT,
                };
                renameat_with(old_parent, old_name, parent, name, flags)?;
                Ok(String::new())
            }
            Action::ReadLink { path } => {
                let (parent, name) = self.parent(path)?;
                let target = readlinkat(parent, name, Vec::new())?;
                Ok(Word(target.into_bytes()).to_string())
            }
            Action::List { path } => {
                let directory = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
                let mut names = Vec::new();
                for entry in Dir::read_from(&directory)? {
                    let name = entry?.file_name().to_bytes().to_vec();
                    if name != b"lost+found" {
                        names.push(Word(name));
                    }
                }
                names.sort();
                Ok(names.iter().map(Word::to_string).collect::<Vec<_>>().join(" "))
            }
            _ => unreachable!("not about names: {action}"),
        }
    }

    /// Makes a name and describes what it names.
    fn make(
        &self,
        path: &Word,
        action: impl FnOnce(&OwnedFd, &OsStr) -> Result<()>,
    ) -> HostOutcome {
        let (parent, name) = self.parent(path)?;
        action(&parent, name)?;
        self.at_inode(&OperationTarget::Path(path.clone()), describe)
    }

    fn remove(&self, path: &Word, flags: AtFlags) -> HostOutcome {
        let (parent, name) = self.parent(path)?;
        unlinkat(parent, name, flags).map(|()| String::new())
    }
}
