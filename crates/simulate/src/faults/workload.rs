//! What the threads of a seed do: operations on a few names in a few directories, so that they meet, each
//! of them one call of the file system, so that it takes effect at one moment.

use drystone_testkit::operations::{
    Action, Actor, Data, Operation, OperationTarget, Outcome, RangeKind, RenameKind, Word,
    XattrKind,
};

/// What everything is below.
pub const BASE: &str = "/w";
/// Directories that are there from the start and stay.
const DIRECTORIES: [&str; 3] = ["/w/d", "/w/e", "/w/d/s"];
/// Names in them.
const NAMES: [&str; 7] = ["f", "a", "b", "g", "c", "d", "e"];
/// Names in them that are files from the start.
const FILES: [&str; 2] = ["f", "g"];
/// The length of long names.
const NAME_LENGTH_LONG: usize = 240;
/// The directory that is hashed from the start, and how many long names make it so.
const HASHED: &str = "/w/e";
const HASHED_NAMES: usize = 6;
/// Slots of each thread.
const SLOTS: u8 = 3;
/// The largest offset of a write, and the most bytes of it.
const OFFSET_MAX: u64 = 20_000;
const WRITE_MAX: u32 = 6_000;
const SECTOR_BYTES: u64 = 512;

/// How much is written and cut at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteSizes {
    /// A sector, within a block: what others see of the file changes at once.
    Sectors,
    /// Any number of bytes. As on Linux, others may see a part of a write, so what they see of sizes and
    /// content isn't judged.
    Any,
}

impl WriteSizes {
    /// What an operation's caller can rely on.
    pub fn seen(self, operation: &Operation, outcome: Outcome) -> Outcome {
        let Ok(text) = outcome.0 else { return outcome };
        Outcome(Ok(match (&operation.action, self) {
            (
                Action::Read { .. } | Action::Status { .. } | Action::Append { .. },
                WriteSizes::Sectors,
            )
            | (Action::GetXattr { .. } | Action::Write { .. }, _) => text,
            (Action::Read { .. } | Action::Append { .. }, WriteSizes::Any) => String::new(),
            (Action::Status { .. }, WriteSizes::Any) => match text.split_once(" size ") {
                Some((before, after)) => {
                    let rest = after.split_once(' ').map_or("", |(_, rest)| rest);
                    format!("{before} {rest}")
                }
                None => text,
            },
            // They show attributes as they are some time later; only the type stays.
            _ => text.split_once(' ').map_or(String::new(), |(file_type, _)| file_type.to_owned()),
        }))
    }
}

/// The operations before the threads begin.
pub fn setup() -> Vec<Operation> {
    let path = |text: &str| Word::from(text);
    let mut actions: Vec<Action> = std::iter::once(&BASE)
        .chain(&DIRECTORIES)
        .map(|directory| Action::MakeDirectory { path: path(directory), mode: 0o755 })
        .collect();
    for (directory, number) in DIRECTORIES.iter().zip(1..) {
        for file in FILES {
            let path = path(&format!("{directory}/{file}"));
            let target = OperationTarget::Path(path.clone());
            let data = Data::Seeded { seed: number, length: 3 * 1024 * number as u32 };
            actions.push(Action::Create { path, mode: 0o644 });
            actions.push(Action::Append { target, data });
        }
    }
    actions.extend((0..HASHED_NAMES).map(|number| Action::Create {
        path: path(&format!("{HASHED}/{number:x<NAME_LENGTH_LONG$}")),
        mode: 0o644,
    }));
    actions.into_iter().map(|action| Operation { actor: Actor(0), action }).collect()
}

/// The paths that operations are about: the fewer, the more threads meet.
#[derive(Clone, Copy, Debug)]
pub struct PathChoice {
    directories: usize,
    names: usize,
    /// Long names fill several blocks of a directory.
    has_long_names: bool,
}

impl PathChoice {
    /// As many as chance says.
    pub fn new(random: &mut fastrand::Rng) -> PathChoice {
        PathChoice {
            directories: random.usize(1..=DIRECTORIES.len()),
            names: random.usize(2..=NAMES.len()),
            has_long_names: random.bool(),
        }
    }
}

/// `count` operations of a thread.
pub fn operations(
    random: &mut fastrand::Rng,
    sizes: WriteSizes,
    paths: PathChoice,
    count: usize,
) -> Vec<Operation> {
    let mut choice = Choice { random, sizes, paths };
    (0..count).map(|_| Operation { actor: Actor(0), action: choice.action() }).collect()
}

struct Choice<'r> {
    random: &'r mut fastrand::Rng,
    sizes: WriteSizes,
    paths: PathChoice,
}

impl Choice<'_> {
    fn path(&mut self) -> Word {
        let PathChoice { directories, names, has_long_names } = self.paths;
        let directory = DIRECTORIES[self.random.usize(..directories)];
        let name = NAMES[self.random.usize(..names)];
        let length = if has_long_names && !FILES.contains(&name) { NAME_LENGTH_LONG } else { 0 };
        Word::from(&format!("{directory}/{name:x<length$}")[..])
    }

    fn slot(&mut self) -> u8 {
        self.random.u8(..SLOTS)
    }

    fn target(&mut self) -> OperationTarget {
        OperationTarget::Slot(self.slot())
    }

    /// Different modes tell files apart.
    fn mode(&mut self) -> u16 {
        0o400 | self.random.u16(..0o400)
    }

    fn offset(&mut self) -> u64 {
        let offset = self.random.u64(..OFFSET_MAX);
        match self.sizes {
            WriteSizes::Sectors => offset / SECTOR_BYTES * SECTOR_BYTES,
            WriteSizes::Any if self.random.bool() => offset / 1024 * 1024,
            WriteSizes::Any => offset,
        }
    }

    fn data(&mut self) -> Data {
        let length = match self.sizes {
            WriteSizes::Sectors => SECTOR_BYTES as u32,
            WriteSizes::Any => self.random.u32(1..WRITE_MAX),
        };
        Data::Seeded { seed: self.random.u64(..1 << 20), length }
    }

    fn xattr(&mut self) -> Word {
        Word::from(["user.one", "user.two"][self.random.usize(..2)])
    }

    fn range(&mut self) -> RangeKind {
        let kinds = [
            RangeKind::Allocate,
            RangeKind::AllocateKeep,
            RangeKind::Punch,
            RangeKind::Zero,
            RangeKind::ZeroKeep,
        ];
        kinds[self.random.usize(..kinds.len())]
    }

    fn rename(&mut self) -> RenameKind {
        match self.random.u8(..8) {
            0 => RenameKind::NoReplace,
            1 | 2 => RenameKind::Exchange,
            _ => RenameKind::Plain,
        }
    }

    fn action(&mut self) -> Action {
        match self.random.u32(..120) {
            0..9 => Action::Create { path: self.path(), mode: self.mode() },
            9..15 => Action::MakeDirectory { path: self.path(), mode: self.mode() },
            15..17 => Action::Symlink { target: self.path(), path: self.path() },
            17..21 => {
                let path = Word::from(DIRECTORIES[self.random.usize(..DIRECTORIES.len())]);
                Action::Temporary { path, slot: self.slot(), mode: self.mode() }
            }
            21..26 => Action::Link { target: self.target(), path: self.path() },
            26..34 => Action::Unlink { path: self.path() },
            34..39 => Action::RemoveDirectory { path: self.path() },
            39..51 => Action::Rename { from: self.path(), to: self.path(), kind: self.rename() },
            51..66 => Action::Lookup { path: self.path(), slot: self.slot() },
            66..70 => Action::Close { slot: self.slot() },
            70..80 => {
                Action::Write { target: self.target(), offset: self.offset(), data: self.data() }
            }
            80..84 => Action::Append { target: self.target(), data: self.data() },
            84..88 => Action::Truncate { target: self.target(), size: self.offset() },
            88..92 => Action::Range {
                target: self.target(),
                kind: self.range(),
                offset: self.offset(),
                length: self.offset() + SECTOR_BYTES,
            },
            92..98 => {
                Action::Read { target: self.target(), offset: self.offset(), length: WRITE_MAX }
            }
            98..101 => Action::SetXattr {
                target: self.target(),
                name: self.xattr(),
                value: Data::Seeded { seed: self.random.u64(..64), length: self.random.u32(..300) },
                kind: XattrKind::Set,
            },
            101..103 => Action::GetXattr { target: self.target(), name: self.xattr() },
            103 => Action::RemoveXattr { target: self.target(), name: self.xattr() },
            104..107 => Action::ChangeMode { target: self.target(), mode: self.mode() },
            107..112 => Action::Status { target: self.target() },
            112..116 => Action::SyncFile { target: self.target() },
            116..118 => Action::SyncData { target: self.target() },
            _ => Action::Sync {},
        }
    }
}
