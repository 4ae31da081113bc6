//! Chooses the arguments of operations: names, paths, files, bytes and offsets.

use super::Generator;
use crate::model::acl::{AclSubject, ModelAcl, ModelAclEntry};
use crate::operations::profile::NameStyle;
use crate::operations::text::{Data, OperationTarget, Word};

/// Slots for open files.
pub(super) const SLOTS: u8 = 6;
/// Longer paths get no entries, so that the kernel accepts the paths too.
const PATH_LENGTH_MAX: usize = 3_000;

impl Generator<'_> {
    pub(super) fn mode(&mut self) -> u16 {
        const COMMON: [u16; 6] = [0o755, 0o777, 0o700, 0o1777, 0o2775, 0o770];
        match self.percent(85) {
            true => COMMON[self.random.usize(..COMMON.len())],
            false => self.random.u16(0..=0o7777),
        }
    }

    pub(super) fn name(&mut self) -> Vec<u8> {
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

    pub(super) fn directory(&mut self) -> Word {
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

    pub(super) fn new_path(&mut self) -> Word {
        let mut path = self.directory().0;
        path.push(b'/');
        path.extend(self.name());
        Word(path)
    }

    pub(super) fn any(&mut self) -> Word {
        let known = &self.known;
        let at = self.random.usize(..known.len());
        let all = known.directories.iter().chain(&known.files).chain(&known.others);
        let path = all.skip(at).step_by(usize::MAX).next().cloned().unwrap_or_default();
        if self.percent(4) { self.new_path() } else { self.named(path) }
    }

    /// The base itself is never moved, removed or changed.
    pub(super) fn named(&mut self, path: Vec<u8>) -> Word {
        if path == self.base { self.new_path() } else { Word(path) }
    }

    pub(super) fn removable(&mut self) -> Word {
        let others = !self.known.others.is_empty() && self.percent(30);
        let list = if others { &self.known.others } else { &self.known.files };
        if list.is_empty() || self.random.u32(0..100) < 5 {
            return self.any();
        }
        Word(list[self.random.usize(..list.len())].clone())
    }

    pub(super) fn target(&mut self) -> OperationTarget {
        if self.percent(15) {
            OperationTarget::Slot(self.random.u8(..SLOTS))
        } else {
            OperationTarget::Path(self.any())
        }
    }

    pub(super) fn file(&mut self) -> OperationTarget {
        if self.known.files.is_empty() || self.percent(20) {
            return self.target();
        }
        let at = self.random.usize(..self.known.files.len());
        OperationTarget::Path(Word(self.known.files[at].clone()))
    }

    pub(super) fn data(&mut self) -> Data {
        let length = self.random.u32(..=self.profile.write_max);
        let length = if self.percent(30) { length % 100 } else { length };
        Data::Seeded { seed: self.random.u64(..1_000_000), length }
    }

    /// An offset in a file, usually aligned.
    pub(super) fn offset(&mut self) -> u64 {
        let offset = self.random.u64(..=self.profile.offset_max);
        match self.random.u32(0..10) {
            0..4 => offset,
            4..8 => offset - offset % self.profile.alignment,
            _ => offset % 1000,
        }
    }

    pub(super) fn xattr_value_length(&mut self, name: &Word) -> u32 {
        match &self.profile.xattr_values_large {
            Some(large) if name.0.starts_with(b"user.") && self.random.bool() => {
                self.random.u32(large.clone())
            }
            _ => self.random.u32(..=self.profile.xattr_value_max),
        }
    }

    pub(super) fn acl_name(&mut self) -> Word {
        let default = self.percent(40);
        Word::from(if default { "system.posix_acl_default" } else { "system.posix_acl_access" })
    }

    pub(super) fn acl(&mut self) -> Data {
        let mut entries = vec![(AclSubject::UserObject, 7)];
        let users = self.random.u32(0..3);
        entries.extend((1..=users).map(|user| (AclSubject::User(1000 + user), 6)));
        entries.push((AclSubject::GroupObject, 5));
        let groups = self.random.u32(0..2);
        entries.extend((0..groups).map(|group| (AclSubject::Group(2000 + group), 7)));
        if users + groups > 0 {
            entries.push((AclSubject::Mask, 7));
        }
        entries.push((AclSubject::Other, 1));
        let entry = |(tag, most)| ModelAclEntry { tag, permissions: most & self.random.u16(0..8) };
        let mut acl = ModelAcl(entries.into_iter().map(entry).collect());
        acl.0[0].permissions = 7;
        Data::Given(Word(acl.to_bytes()))
    }
}
