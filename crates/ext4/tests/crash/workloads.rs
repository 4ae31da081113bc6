//! The operations before the crash.

use drystone_testkit::operations::{
    Action, Actor, Data, NameStyle, OpenKind, Operation, OperationTarget, Profile, RangeKind,
    RenameKind, Word, XattrKind, generate,
};

/// A sequence of operations for one thread, below `base`.
pub type Make = fn(seed: u64, base: &str, count: usize) -> Vec<Operation>;

/// Small changes, often made durable.
const STORM: Profile = Profile {
    name: "storm",
    create: 30,
    remove: 25,
    rename: 20,
    directory: 12,
    write: 14,
    read: 0,
    range: 4,
    xattr: 2,
    attribute: 4,
    look: 0,
    open: 4,
    sync: 25,
    names: &[NameStyle::Few, NameStyle::Numbered],
    entries_max: 60,
    offset_max: 30_000,
    write_max: 9_000,
    xattr_value_max: 60,
    alignment: 1024,
    users_percent: 0,
    guards: false,
    ..Profile::MIXED
};

/// Names are made, replaced, moved and removed.
pub fn storm(seed: u64, base: &str, count: usize) -> Vec<Operation> {
    generated(seed, &STORM, base, count)
}

/// Long names, so that directories of small blocks split every few operations.
pub fn splits(seed: u64, base: &str, count: usize) -> Vec<Operation> {
    const SPLITS: Profile = Profile {
        name: "splits",
        create: 60,
        remove: 6,
        rename: 8,
        directory: 1,
        write: 1,
        range: 0,
        xattr: 0,
        open: 0,
        sync: 20,
        names: &[NameStyle::Long],
        entries_max: 200,
        ..STORM
    };
    generated(seed, &SPLITS, base, count)
}

/// Directories move about.
pub fn moves(seed: u64, base: &str, count: usize) -> Vec<Operation> {
    const MOVES: Profile = Profile { name: "moves", directory: 50, rename: 60, ..STORM };
    generated(seed, &MOVES, base, count)
}

/// Content: writes in all places, every mode of `fallocate`, truncates.
pub fn ranges(seed: u64, base: &str, count: usize) -> Vec<Operation> {
    const RANGES: Profile = Profile {
        name: "ranges",
        create: 6,
        remove: 3,
        rename: 2,
        directory: 1,
        write: 30,
        range: 40,
        offset_max: 90_000,
        write_max: 20_000,
        entries_max: 12,
        sync: 25,
        ..STORM
    };
    generated(seed, &RANGES, base, count)
}

/// Small files that come and go, in little space.
pub fn turnover(seed: u64, base: &str, count: usize) -> Vec<Operation> {
    const TURNOVER: Profile = Profile {
        name: "turnover",
        create: 30,
        remove: 30,
        write: 60,
        range: 15,
        directory: 4,
        offset_max: 9_000,
        write_max: 8_000,
        entries_max: 25,
        sync: 12,
        ..STORM
    };
    generated(seed, &TURNOVER, base, count)
}

/// Extended attributes of all sizes that fit a small block.
pub fn xattrs(seed: u64, base: &str, count: usize) -> Vec<Operation> {
    const XATTRS: Profile =
        Profile { name: "xattrs", xattr: 120, xattr_value_max: 200, entries_max: 20, ..STORM };
    generated(seed, &XATTRS, base, count)
}

/// Owners, permissions, times and flags.
pub fn attributes(seed: u64, base: &str, count: usize) -> Vec<Operation> {
    const ATTRIBUTES: Profile =
        Profile { name: "attributes", attribute: 120, write: 20, entries_max: 20, ..STORM };
    generated(seed, &ATTRIBUTES, base, count)
}

/// Operations of a profile.
fn generated(seed: u64, profile: &Profile, base: &str, count: usize) -> Vec<Operation> {
    let mut operations = generate(seed, profile, base, count);
    for operation in &mut operations {
        // Ownership doesn't matter here.
        if let Action::MakeDirectory { mode, .. } = &mut operation.action {
            *mode &= 0o777;
        }
    }
    operations
}

fn by_superuser(action: Action) -> Operation {
    Operation { actor: Actor(0), action }
}

fn path(base: &str, name: &str) -> Word {
    Word(format!("{base}/{name}").into_bytes())
}

/// Many files without names that stay open over commits.
pub fn orphans(seed: u64, base: &str, count: usize) -> Vec<Operation> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut actions = Vec::new();
    for round in 0.. {
        if actions.len() >= count {
            break;
        }
        let slot = random.u8(0..40);
        let name = path(base, &format!("f{}", random.u32(0..20)));
        let data = Data::Seeded { seed: round, length: random.u32(1..12_000) };
        match random.u32(0..8) {
            0..3 => {
                actions.push(Action::Create { path: name.clone(), mode: 0o644 });
                let kind = OpenKind::Write;
                actions.push(Action::Open { path: name.clone(), slot, kind });
                actions.push(Action::Append { target: OperationTarget::Slot(slot), data });
                actions.push(Action::Unlink { path: name });
            }
            3 => {
                actions.push(Action::Temporary { path: path(base, ""), slot, mode: 0o600 });
                actions.push(Action::Append { target: OperationTarget::Slot(slot), data });
            }
            4 => actions.push(Action::Link { target: OperationTarget::Slot(slot), path: name }),
            5 => actions.push(Action::Close { slot }),
            6 => actions.push(Action::Truncate {
                target: OperationTarget::Slot(slot),
                size: random.u64(0..9000),
            }),
            _ if random.bool() => actions.push(Action::Sync {}),
            _ => actions.push(Action::SyncFile { target: OperationTarget::Slot(slot) }),
        }
    }
    actions.into_iter().map(by_superuser).collect()
}

/// Appends, each followed by a sync of that file: what databases do to their logs.
pub fn appends(seed: u64, base: &str, count: usize) -> Vec<Operation> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut actions = Vec::new();
    for file in 0..6 {
        actions.push(Action::Create { path: path(base, &format!("log{file}")), mode: 0o600 });
    }
    while actions.len() < count {
        let log = path(base, &format!("log{}", random.u32(0..6)));
        let target = OperationTarget::Path(log.clone());
        let data = Data::Seeded { seed: random.u64(..), length: random.u32(1..5_000) };
        actions.push(Action::Append { target: target.clone(), data });
        match random.u32(0..10) {
            0..6 => actions.push(Action::SyncFile { target }),
            6 => {
                let old = path(base, "old");
                let kind = RenameKind::Plain;
                actions.push(Action::Rename { from: log.clone(), to: old, kind });
                actions.push(Action::Create { path: log, mode: 0o600 });
            }
            _ => {}
        }
    }
    actions.into_iter().map(by_superuser).collect()
}

/// Files grow far beyond the space of a small image. Some are synced, cut or removed, and others take
/// the space.
pub fn fill(seed: u64, base: &str, count: usize) -> Vec<Operation> {
    const LENGTHS: [u32; 4] = [100, 3_000, 20_000, 120_000];
    let mut random = fastrand::Rng::with_seed(seed);
    let mut actions = Vec::new();
    while actions.len() < count {
        let name = path(base, &format!("f{}", random.u32(0..24)));
        let target = OperationTarget::Path(name.clone());
        let longest = LENGTHS[random.usize(..LENGTHS.len())];
        let length = random.u32(1..longest);
        let data = Data::Seeded { seed: random.u64(..), length };
        let offset = random.u64(0..100_000);
        actions.push(match random.u32(0..40) {
            0..6 => Action::Create { path: name, mode: 0o600 },
            6..16 => Action::Append { target, data },
            16..21 => Action::Write { target, offset, data },
            21..23 => Action::Range {
                target,
                kind: RangeKind::AllocateKeep,
                offset,
                length: u64::from(length),
            },
            23..31 => Action::SyncFile { target },
            31..33 => Action::Sync {},
            33 => Action::Truncate { target, size: offset },
            34 => Action::Rename {
                from: name,
                to: path(base, &format!("f{}", random.u32(0..24))),
                kind: RenameKind::Plain,
            },
            35 => Action::Symlink { target: Word(vec![b'x'; 200]), path: name },
            36 => Action::MakeDirectory { path: name, mode: 0o700 },
            37 => Action::SetXattr {
                target,
                name: Word::from("user.a"),
                value: Data::Seeded { seed: random.u64(..), length: 300 },
                kind: XattrKind::Set,
            },
            38 => Action::RemoveDirectory { path: name },
            _ => Action::Unlink { path: name },
        });
    }
    actions.into_iter().map(by_superuser).collect()
}

/// Fragmented files, made before the recording starts.
pub fn fragments(seed: u64, base: &str) -> Vec<Operation> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut actions = Vec::new();
    for file in 0..4 {
        let target = OperationTarget::Path(path(base, &format!("long{file}")));
        actions.push(Action::Create { path: path(base, &format!("long{file}")), mode: 0o600 });
        let mut places: Vec<u64> = (0..300).collect();
        random.shuffle(&mut places);
        for place in places {
            let data = Data::Seeded { seed: random.u64(..), length: 1024 };
            actions.push(Action::Write { target: target.clone(), offset: place * 2048, data });
        }
    }
    actions.into_iter().map(by_superuser).collect()
}

/// Fragmented files are truncated, punched, collapsed and removed while open.
pub fn cuts(seed: u64, base: &str, count: usize) -> Vec<Operation> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut actions = Vec::new();
    while actions.len() < count {
        let name = path(base, &format!("long{}", random.u32(0..4)));
        let target = OperationTarget::Path(name.clone());
        let offset = random.u64(0..600) * 1024;
        match random.u32(0..12) {
            0..3 => actions.push(Action::Truncate { target, size: offset + random.u64(0..1024) }),
            3..6 => {
                let kinds = [RangeKind::Punch, RangeKind::Collapse, RangeKind::Insert];
                let kind = kinds[random.usize(..3)];
                let length = random.u64(1..100) * 1024;
                actions.push(Action::Range { target, kind, offset, length });
            }
            6 => {
                actions.push(Action::Open { path: name.clone(), slot: 1, kind: OpenKind::Write });
                actions.push(Action::Unlink { path: name.clone() });
                actions.push(Action::Create { path: name, mode: 0o600 });
                actions.push(Action::Close { slot: 1 });
            }
            7 => actions.push(Action::Sync {}),
            _ => {
                for _ in 0..6 {
                    let data = Data::Seeded { seed: random.u64(..), length: 1024 };
                    let offset = random.u64(0..600) * 1024;
                    actions.push(Action::Write { target: target.clone(), offset, data });
                }
                actions.push(Action::SyncFile { target });
            }
        }
    }
    actions.into_iter().map(by_superuser).collect()
}
