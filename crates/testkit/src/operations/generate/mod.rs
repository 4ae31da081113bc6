//! Makes sequences of operations that usually succeed: the generator runs each on a model of its
//! own, and so knows what exists.

mod actions;
mod choose;
mod known;

use drystone_vfs::FileType;

use super::execute::Executor;
use super::operation::{Action, Actor, Operation};
use super::profile::Profile;
use super::text::Word;
use crate::model::{Configuration, MemoryFileSystem};
use known::Known;

/// Ordinary users that act.
const USERS: u8 = 4;

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
            _ if self.percent(30) => Action::SyncFile { target: self.file() },
            _ if self.percent(30) => Action::SyncData { target: self.file() },
            _ => Action::Sync {},
        }
    }

    /// Records what a successful operation has changed.
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
