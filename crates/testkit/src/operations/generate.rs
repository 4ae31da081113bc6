//! Makes sequences of operations that mostly hit: the generator does each on a model of its own
//! and knows from it what there is.

use drystone_vfs::{FileType, InodeFlags, RequestContext};

use super::execute::Executor;
use super::operation::{
    Action, Actor, NodeKind, OpenKind, Operation, RangeKind, RenameKind, SeekKind, XattrKind,
};
use super::profile::{NameStyle, Profile};
use super::text::{Data, Target, Word};
use crate::model::acl::{Acl, AclEntry, Tag};
use crate::model::{Configuration, MemoryFileSystem};

/// Ordinary users that act.
const USERS: u8 = 4;
/// Slots for open files.
const SLOTS: u8 = 6;
/// Longer paths get no entries, so that the kernel takes the paths too.
const PATH_LENGTH_MAX: usize = 3_000;

/// `count` operations from `seed`, below `base` (`/` for everywhere). Operations assume that
/// `base` exists.
pub fn generate(seed: u64, profile: &Profile, base: &str, count: usize) -> Vec<Operation> {
    let model = MemoryFileSystem::new(Configuration::default());
    let base = base.trim_end_matches('/');
    let mut executor = Executor::new(&model);
    for (at, _) in base.match_indices('/').skip(1).chain([(base.len(), "")]) {
        if at > 0 {
            let path = Word(base.as_bytes()[..at].to_vec());
            let action = Action::MakeDirectory { path, mode: 0o777 };
            executor.apply(&Operation { actor: Actor(0), action });
        }
    }
    let mut generator = Generator {
        random: fastrand::Rng::with_seed(seed),
        profile,
        base: base.as_bytes().to_vec(),
        known: Known::default(),
        number_next: 0,
    };
    generator.known.scan(&model, base.as_bytes());
    let mut operations = Vec::with_capacity(count);
    while operations.len() < count {
        let operation = generator.next();
        if executor.apply(&operation).0.is_ok() {
            generator.learn(&model, &operation.action);
        }
        operations.push(operation);
    }
    operations
}

/// Paths that exist.
#[derive(Default)]
struct Known {
    directories: Vec<Vec<u8>>,
    files: Vec<Vec<u8>>,
    others: Vec<Vec<u8>>,
}

impl Known {
    fn len(&self) -> usize {
        self.directories.len() + self.files.len() + self.others.len()
    }

    fn add(&mut self, path: Vec<u8>, file_type: FileType) {
        match file_type {
            FileType::Directory => self.directories.push(path),
            FileType::Regular => self.files.push(path),
            _ => self.others.push(path),
        }
    }

    fn remove(&mut self, path: &[u8]) {
        for list in [&mut self.directories, &mut self.files, &mut self.others] {
            if let Some(at) = list.iter().position(|known| known == path) {
                list.swap_remove(at);
                return;
            }
        }
    }

    /// Finds everything below `base` anew.
    fn scan(&mut self, model: &MemoryFileSystem, base: &[u8]) {
        *self = Known::default();
        let entries = crate::walk::walk(model, &RequestContext::superuser(), base)
            .unwrap_or_else(|error| panic!("the model can't be walked: {error}"));
        self.directories.push(base.to_vec());
        for (path, attributes) in entries {
            if path != base && path != b"/" {
                self.add(path, attributes.file_type);
            }
        }
    }
}

struct Generator<'p> {
    random: fastrand::Rng,
    profile: &'p Profile,
    base: Vec<u8>,
    known: Known,
    number_next: u64,
}

impl Generator<'_> {
    fn percent(&mut self, odds: u32) -> bool {
        self.random.u32(0..100) < odds
    }

    fn next(&mut self) -> Operation {
        let users_percent = self.profile.users_percent;
        let actor =
            if self.percent(users_percent) { Actor(self.random.u8(1..=USERS)) } else { Actor(0) };
        Operation { actor, action: self.action() }
    }

    fn action(&mut self) -> Action {
        let profile = self.profile;
        let crowded = self.known.len() > profile.entries_max;
        let (create, remove) = match crowded {
            true => (profile.create / 4, profile.remove + profile.create),
            false => (profile.create, profile.remove),
        };
        let weights = [
            create,
            remove,
            profile.rename,
            profile.directory,
            profile.write,
            profile.read,
            profile.range,
            profile.xattr,
            profile.attribute,
            profile.look,
            profile.open,
            profile.sync,
        ];
        let mut ticket = self.random.u32(0..weights.iter().sum());
        let group = weights.iter().position(|&weight| {
            let hit = ticket < weight;
            ticket = ticket.wrapping_sub(if hit { 0 } else { weight });
            hit
        });
        match group {
            Some(0) => self.create(),
            Some(1) => Action::Unlink { path: self.removable() },
            Some(2) => self.rename(),
            Some(3) if crowded || self.percent(25) => {
                let path = self.directory().0;
                Action::RemoveDirectory { path: self.named(path) }
            }
            Some(3) => Action::MakeDirectory { path: self.new_path(), mode: self.mode() },
            Some(4) => self.write(),
            Some(5) => self.read(),
            Some(6) => self.range(),
            Some(7) => self.xattr(),
            Some(8) => self.attribute(),
            Some(9) => self.look(),
            Some(10) => self.open(),
            _ if self.percent(50) => Action::SyncFile { target: self.file() },
            _ => Action::Sync {},
        }
    }

    fn mode(&mut self) -> u16 {
        const COMMON: [u16; 6] = [0o755, 0o777, 0o700, 0o1777, 0o2775, 0o770];
        match self.percent(85) {
            true => COMMON[self.random.usize(..COMMON.len())],
            false => self.random.u16(0..=0o7777),
        }
    }

    fn name(&mut self) -> Vec<u8> {
        let style = self.profile.names[self.random.usize(..self.profile.names.len())];
        self.number_next += 1;
        let mut any_bytes = |length| -> Vec<u8> {
            let byte = |random: &mut fastrand::Rng| match random.u8(1..) {
                b'/' => b'_',
                byte => byte,
            };
            (0..length).map(|_| byte(&mut self.random)).collect()
        };
        let name = match style {
            NameStyle::Few => format!("n{}", self.random.u32(0..40)).into_bytes(),
            NameStyle::Numbered => format!("file-{}", self.number_next).into_bytes(),
            NameStyle::AnyBytes => {
                let random = any_bytes(3);
                let length = 1 + usize::from(random[0]) % 40;
                any_bytes(length)
            }
            NameStyle::Long => {
                let mut name = format!("{}-", self.number_next).into_bytes();
                name.resize(self.random.usize(100..=255), b'l');
                name
            }
            NameStyle::Alike => {
                let mut name = b"alike-alike-alike-alike-alike-alike-alike".to_vec();
                let at = self.random.usize(..name.len());
                // 'a'..'z' with a flipped bit never gives '/' or NUL.
                name[at] ^= [0x80, 0x02, 0x01, 0x20][self.random.usize(..4)];
                name
            }
        };
        if name == b"." || name == b".." { b"dots".to_vec() } else { name }
    }

    fn directory(&mut self) -> Word {
        let deep_percent = self.profile.deep_percent;
        let short = |path: &&Vec<u8>| path.len() < PATH_LENGTH_MAX;
        if self.percent(deep_percent)
            && let Some(deepest) =
                self.known.directories.iter().filter(short).max_by_key(|path| path.len())
        {
            return Word(deepest.clone());
        }
        let at = self.random.usize(..self.known.directories.len());
        let path = &self.known.directories[at];
        Word(if path.len() < PATH_LENGTH_MAX { path.clone() } else { self.base.clone() })
    }

    fn new_path(&mut self) -> Word {
        let mut path = self.directory().0;
        path.push(b'/');
        path.extend(self.name());
        Word(path)
    }

    fn any(&mut self) -> Word {
        let known = &self.known;
        let at = self.random.usize(..known.len());
        let all = known.directories.iter().chain(&known.files).chain(&known.others);
        let path = all.skip(at).step_by(usize::MAX).next().cloned().unwrap_or_default();
        if self.percent(4) { self.new_path() } else { self.named(path) }
    }

    /// The base itself is never moved, removed or changed.
    fn named(&mut self, path: Vec<u8>) -> Word {
        if path == self.base { self.new_path() } else { Word(path) }
    }

    fn removable(&mut self) -> Word {
        let others = !self.known.others.is_empty() && self.percent(30);
        let list = if others { &self.known.others } else { &self.known.files };
        if list.is_empty() || self.random.u32(0..100) < 5 {
            return self.any();
        }
        Word(list[self.random.usize(..list.len())].clone())
    }

    fn target(&mut self) -> Target {
        if self.percent(15) {
            Target::Slot(self.random.u8(..SLOTS))
        } else {
            Target::Path(self.any())
        }
    }

    fn file(&mut self) -> Target {
        if self.known.files.is_empty() || self.percent(20) {
            return self.target();
        }
        let at = self.random.usize(..self.known.files.len());
        Target::Path(Word(self.known.files[at].clone()))
    }

    fn create(&mut self) -> Action {
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

    fn rename(&mut self) -> Action {
        let to = if self.percent(50) { self.any() } else { self.new_path() };
        let kind = match self.random.u32(0..20) {
            0..14 => RenameKind::Plain,
            14..17 => RenameKind::NoReplace,
            17..19 => RenameKind::Exchange,
            _ => RenameKind::Whiteout,
        };
        Action::Rename { from: self.any(), to, kind }
    }

    fn data(&mut self) -> Data {
        let length = self.random.u32(..=self.profile.write_max);
        let length = if self.percent(30) { length % 100 } else { length };
        Data::Seeded { seed: self.random.u64(..1_000_000), length }
    }

    /// A place in a file, aligned more often than not.
    fn offset(&mut self) -> u64 {
        let offset = self.random.u64(..=self.profile.offset_max);
        match self.random.u32(0..10) {
            0..4 => offset,
            4..8 => offset - offset % self.profile.alignment,
            _ => offset % 1000,
        }
    }

    fn write(&mut self) -> Action {
        let (target, data) = (self.file(), self.data());
        if self.percent(30) {
            Action::Append { target, data }
        } else {
            Action::Write { target, offset: self.offset(), data }
        }
    }

    fn read(&mut self) -> Action {
        let (target, offset) = (self.file(), self.offset());
        match self.random.u32(0..10) {
            0..6 => Action::Read { target, offset, length: self.random.u32(..100_000) },
            6..8 => Action::Seek { target, kind: SeekKind::Data, offset },
            _ => Action::Seek { target, kind: SeekKind::Hole, offset },
        }
    }

    fn range(&mut self) -> Action {
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

    fn xattr(&mut self) -> Action {
        let target = self.target();
        let names = ["user.a", "user.b", "user.longer-name", "trusted.t", "security.s", "user.c"];
        let mut name = Word::from(names[self.random.usize(..names.len())]);
        match self.random.u32(0..20) {
            0..9 => {
                let length = self.random.u32(..=self.profile.xattr_value_max);
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

    fn acl_name(&mut self) -> Word {
        let default = self.percent(40);
        Word::from(if default { "system.posix_acl_default" } else { "system.posix_acl_access" })
    }

    fn acl(&mut self) -> Data {
        let mut entries = vec![(Tag::UserObject, 7)];
        let users = self.random.u32(0..3);
        entries.extend((1..=users).map(|user| (Tag::User(1000 + user), 6)));
        entries.push((Tag::GroupObject, 5));
        let groups = self.random.u32(0..2);
        entries.extend((0..groups).map(|group| (Tag::Group(2000 + group), 7)));
        if users + groups > 0 {
            entries.push((Tag::Mask, 7));
        }
        entries.push((Tag::Other, 1));
        let entry = |(tag, most)| AclEntry { tag, permissions: most & self.random.u16(0..8) };
        let mut acl = Acl(entries.into_iter().map(entry).collect());
        acl.0[0].permissions = 7;
        Data::Given(Word(acl.to_bytes()))
    }

    fn attribute(&mut self) -> Action {
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
                let guards = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
                let mut choice = InodeFlags::NO_DUMP | InodeFlags::NO_ACCESS_TIME;
                if self.profile.guards {
                    choice |= guards;
                }
                let flags = InodeFlags::from_bits_truncate(self.random.u32(..)) & choice;
                // Guarded inodes can hardly be changed: keep them few.
                let flags = if self.percent(70) { flags - guards } else { flags };
                Action::SetFlags { target, flags: flags.bits() }
            }
        }
    }

    fn look(&mut self) -> Action {
        match self.random.u32(0..10) {
            0..4 => Action::Status { target: self.target() },
            4..6 => Action::List { path: self.directory() },
            6..8 => Action::Access { target: self.target(), bits: self.random.u8(1..8) },
            _ => Action::ReadLink { path: self.removable() },
        }
    }

    fn open(&mut self) -> Action {
        let slot = self.random.u8(..SLOTS);
        match self.random.u32(0..10) {
            0..3 => Action::Close { slot },
            3..5 => Action::Temporary { path: self.directory(), slot, mode: self.mode() },
            5..6 => Action::Link { target: Target::Slot(slot), path: self.new_path() },
            _ => {
                let path = self.removable();
                use OpenKind::{Read, ReadWrite, Truncate, Write};
                let kind = [Read, Write, ReadWrite, Truncate][self.random.usize(..4)];
                Action::Open { path, slot, kind }
            }
        }
    }

    /// Takes note of what a successful operation has changed.
    fn learn(&mut self, model: &MemoryFileSystem, action: &Action) {
        match action {
            Action::Create { path, .. } => self.known.add(path.0.clone(), FileType::Regular),
            Action::MakeDirectory { path, .. } => {
                self.known.add(path.0.clone(), FileType::Directory);
            }
            Action::Symlink { path, .. } => self.known.add(path.0.clone(), FileType::Symlink),
            Action::MakeNode { path, .. } => self.known.add(path.0.clone(), FileType::Fifo),
            Action::Link { path, .. } => self.known.add(path.0.clone(), FileType::Regular),
            Action::Unlink { path } | Action::RemoveDirectory { path } => {
                self.known.remove(&path.0);
            }
            Action::Rename { .. } => self.known.scan(model, &self.base),
            _ => {}
        }
    }
}
