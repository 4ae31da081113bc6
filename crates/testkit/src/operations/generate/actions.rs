//! The operations of each group, and how often each comes.

use super::Generator;
use super::choose::SLOTS;
use crate::operations::operation::{
    Action, NodeKind, OpenKind, RangeKind, RenameKind, SeekKind, XattrKind,
};
use crate::operations::text::{Data, OperationTarget, Word};
use drystone_vfs::FileFlags;

impl Generator<'_> {
    pub(super) fn create(&mut self) -> Action {
        let path = self.new_path();
        match self.random.u32(0..20) {
            0..14 => Action::Create { path, mode: self.mode() },
            14..16 => Action::Link { target: self.file(), path },
            16..18 => {
                let target = match self.random.u32(0..3) {
                    0 => self.any(),
                    1 => Word(vec![b't'; self.random.usize(1..200)]),
                    _ => Word(vec![b'l'; self.random.usize(50..1000)]),
                };
                Action::Symlink { target, path }
            }
            _ => {
                use NodeKind::{BlockDevice, CharacterDevice, Fifo, Socket};
                let kind = [CharacterDevice, BlockDevice, Fifo, Socket][self.random.usize(..4)];
                let (major, minor) = (self.random.u32(..4096), self.random.u32(..1 << 20));
                Action::MakeNode { path, kind, major, minor, mode: self.mode() & 0o777 }
            }
        }
    }

    pub(super) fn rename(&mut self) -> Action {
        let to = if self.percent(50) { self.any() } else { self.new_path() };
        let kind = match self.random.u32(0..20) {
            0..14 => RenameKind::Plain,
            14..17 => RenameKind::NoReplace,
            17..19 => RenameKind::Exchange,
            _ => RenameKind::Whiteout,
        };
        Action::Rename { from: self.any(), to, kind }
    }

    pub(super) fn write(&mut self) -> Action {
        let (target, data) = (self.file(), self.data());
        if self.percent(30) {
            Action::Append { target, data }
        } else {
            Action::Write { target, offset: self.offset(), data }
        }
    }

    pub(super) fn read(&mut self) -> Action {
        let (target, offset) = (self.file(), self.offset());
        match self.random.u32(0..10) {
            0..6 => Action::Read { target, offset, length: self.random.u32(..100_000) },
            6..8 => Action::Seek { target, kind: SeekKind::Data, offset },
            _ => Action::Seek { target, kind: SeekKind::Hole, offset },
        }
    }

    pub(super) fn range(&mut self) -> Action {
        let (target, offset) = (self.file(), self.offset());
        if self.percent(25) {
            return Action::Truncate { target, size: offset };
        }
        use RangeKind::{Allocate, AllocateKeep, Collapse, Insert, Punch, Zero, ZeroKeep};
        let kinds = [Allocate, AllocateKeep, Punch, Punch, Zero, ZeroKeep, Collapse, Insert];
        let kind = kinds[self.random.usize(..kinds.len())];
        let length = 1 + self.offset() / 4;
        let length = match matches!(kind, Collapse | Insert) || self.percent(50) {
            true => length.next_multiple_of(self.profile.alignment),
            false => length,
        };
        Action::Range { target, kind, offset, length }
    }

    pub(super) fn xattr(&mut self) -> Action {
        let target = self.target();
        let names = ["user.a", "user.b", "user.longer-name", "trusted.t", "security.s", "user.c"];
        let mut name = Word::from(names[self.random.usize(..names.len())]);
        match self.random.u32(0..20) {
            0..9 => {
                let length = self.xattr_value_length(&name);
                let value = Data::Seeded { seed: self.random.u64(..1000), length };
                let kind = [XattrKind::Set, XattrKind::Set, XattrKind::Create, XattrKind::Replace]
                    [self.random.usize(..4)];
                Action::SetXattr { target, name, value, kind }
            }
            9..13 => {
                let kind = XattrKind::Set;
                name = self.acl_name();
                Action::SetXattr { target, name, value: self.acl(), kind }
            }
            13..15 => Action::GetXattr { target, name },
            15 => Action::GetXattr { target, name: self.acl_name() },
            16 => Action::RemoveXattr { target, name: self.acl_name() },
            17..19 => Action::RemoveXattr { target, name },
            _ => Action::ListXattrs { target },
        }
    }

    pub(super) fn attribute(&mut self) -> Action {
        let target = self.target();
        match self.random.u32(0..10) {
            0..4 => Action::ChangeMode { target, mode: self.mode() },
            4..7 => {
                let ids = [None, Some(0), Some(1001), Some(1002), Some(2000), Some(70_000)];
                let user = ids[self.random.usize(..ids.len())];
                let group = ids[self.random.usize(..ids.len())];
                Action::ChangeOwner { target, user, group }
            }
            7..9 => {
                let seconds = self.random.i64(-0x8000_0000..0x3_8000_0000 - 1);
                Action::SetTimes { target, seconds, nanoseconds: self.random.u32(..1_000_000_000) }
            }
            _ => {
                let guards = FileFlags::IMMUTABLE | FileFlags::APPEND;
                let mut choice = FileFlags::NO_DUMP | FileFlags::NO_ACCESS_TIME;
                if self.profile.guards {
                    choice |= guards;
                }
                let flags = FileFlags::from_bits_truncate(self.random.u32(..)) & choice;
                // Protected inodes can hardly be changed, so there are few.
                let flags = if self.percent(70) { flags - guards } else { flags };
                Action::SetFlags { target, flags: flags.bits() }
            }
        }
    }

    pub(super) fn look(&mut self) -> Action {
        match self.random.u32(0..10) {
            0..4 => Action::Status { target: self.target() },
            4..6 => Action::List { path: self.directory() },
            6..8 => Action::Access { target: self.target(), bits: self.random.u8(1..8) },
            _ => Action::ReadLink { path: self.removable() },
        }
    }

    pub(super) fn open(&mut self) -> Action {
        let slot = self.random.u8(..SLOTS);
        match self.random.u32(0..10) {
            0..3 => Action::Close { slot },
            3..5 => Action::Temporary { path: self.directory(), slot, mode: self.mode() },
            5..6 => Action::Link { target: OperationTarget::Slot(slot), path: self.new_path() },
            _ => {
                let path = self.removable();
                use OpenKind::{Read, ReadWrite, Truncate, Write};
                let kind = [Read, Write, ReadWrite, Truncate][self.random.usize(..4)];
                Action::Open { path, slot, kind }
            }
        }
    }
}
