//! Settings that no operation of the model changes, on a device that fails as in `cold`: projects, limits
//! and grace periods of quotas, and freezes.
//!
//! Each stage is one change, so the settings have to be those before or after it. What was frozen holds
//! everything that was done before.

use crate::cold::{Counts, Device, Staged, Trial, count, try_failures};
use crate::images::PROJECTS;
use crate::judge::{check, check_grace, e2fsck};
use crate::record::options;
use drystone_blockdev::{BlockDevice, Faulty, MemoryDevice};
use drystone_ext4::{Ext4, MountOptions, QuotaLimits};
use drystone_ext4_format::quota::QuotaKind;
use drystone_sync::Arc;
use drystone_testkit::judges::{Scratch, have};
use drystone_testkit::operations::{Word, describe};
use drystone_testkit::walk::walk;
use drystone_vfs::{
    FileFlags, FileSystem, InodeGuard, NewNode, RenameFlags, RequestContext, Result, SetAttributes,
    find_path,
};
use std::fmt::Write as _;

/// What the image holds first.
const FILES: [&str; 3] = ["file", "other", "last"];
const FILE_BYTES: usize = 9_000;
const USER: u32 = 1001;
const PROJECT: u32 = 7;
/// Far from other numbers: its record needs blocks of its own in the tree of a usage file.
const FAR_USER: u32 = 0x0102_0304;

struct Change {
    name: &'static str,
    apply: fn(&Ext4) -> Result<()>,
    /// Freezes the image after the change, and thaws it.
    freezes: bool,
}

const fn change(name: &'static str, apply: fn(&Ext4) -> Result<()>) -> Change {
    Change { name, apply, freezes: false }
}

static CHANGES: [Change; 15] = [
    change("a file's project", |fs| set(fs, "/file", &project(PROJECT))),
    change("a file's owner", |fs| {
        set(fs, "/file", &SetAttributes { user: Some(USER), group: Some(USER), ..project(PROJECT) })
    }),
    change("limits of a user, exceeded at once", |fs| {
        limit(fs, QuotaKind::User, USER, QuotaLimits { space_soft: 1, ..QuotaLimits::default() })
    }),
    change("limits of a project", |fs| {
        let limits = QuotaLimits { inodes_soft: 2, inodes_hard: 50, ..QuotaLimits::default() };
        limit(fs, QuotaKind::Project, PROJECT, limits)
    }),
    change("limits of a group without files", |fs| {
        limit(fs, QuotaKind::Group, 70, QuotaLimits { space_hard: 99, ..QuotaLimits::default() })
    }),
    change("limits of a user that needs blocks", |fs| {
        limit(fs, QuotaKind::User, FAR_USER, QuotaLimits { space_hard: 9, ..Default::default() })
    }),
    change("grace periods", |fs| Ok(fs.set_quota_grace(QuotaKind::Project, 1_000, 2_000)?)),
    Change { freezes: true, ..change("a freeze", |fs| set(fs, "/other", &project(PROJECT))) },
    change("a directory's project", |fs| set(fs, "/directory", &project(PROJECT))),
    change("what is inherited", |fs| {
        let flags = flags(fs, "/directory")? | FileFlags::PROJECT_INHERIT;
        set(fs, "/directory", &SetAttributes { flags: Some(flags), ..SetAttributes::default() })
    }),
    change("a file that inherits", |fs| {
        let context = RequestContext::superuser();
        let directory = find_path(fs, &context, b"/directory", true)?;
        InodeGuard::create(fs, &context, directory.inode(), b"new", NewNode::Regular, 0o600)
            .map(drop)
    }),
    change("flags", |fs| {
        let flags = flags(fs, "/last")? | FileFlags::IMMUTABLE | FileFlags::NO_DUMP;
        set(fs, "/last", &SetAttributes { flags: Some(flags), ..SetAttributes::default() })
    }),
    change("an end of a grace period", |fs| {
        set(fs, "/file", &SetAttributes { user: Some(0), ..SetAttributes::default() })
    }),
    Change {
        freezes: true,
        ..change("a freeze after a rename", |fs| {
            let context = RequestContext::superuser();
            let root = fs.root();
            fs.rename(&context, root, b"file", root, b"other", RenameFlags::empty())
        })
    },
    change("a file that goes", |fs| fs.unlink(&RequestContext::superuser(), fs.root(), b"other")),
];

fn project(number: u32) -> SetAttributes {
    SetAttributes { project: Some(number), ..SetAttributes::default() }
}

fn set(fs: &Ext4, path: &str, changes: &SetAttributes) -> Result<()> {
    let context = RequestContext::superuser();
    let found = find_path(fs, &context, path.as_bytes(), true)?;
    fs.set_attributes(&context, found.inode(), changes).map(drop)
}

fn limit(fs: &Ext4, kind: QuotaKind, id: u32, limits: QuotaLimits) -> Result<()> {
    Ok(fs.set_quota_limits(kind, id, &limits)?)
}

fn flags(fs: &Ext4, path: &str) -> Result<FileFlags> {
    let found = find_path(fs, &RequestContext::superuser(), path.as_bytes(), true)?;
    Ok(found.attributes().flags)
}

/// Everything that the changes change.
fn read(fs: &Ext4) -> Result<String> {
    let mut text = String::new();
    for (path, found) in walk(fs, &RequestContext::superuser(), b"/")? {
        let _ = writeln!(text, "{}: {} project {}", Word(path), describe(&found), found.project);
    }
    for report in fs.quota_reports()? {
        let (space, inodes) = (report.info.space_grace_seconds, report.info.inode_grace_seconds);
        let _ = writeln!(text, "{}: grace periods {space} {inodes}", report.kind);
        for entry in &report.entries {
            let limits = QuotaLimits::of(entry);
            // A record comes before the limits that it is made for.
            if limits != QuotaLimits::default() {
                let _ = writeln!(text, "{} {}: {limits:?}", report.kind, entry.id);
            }
        }
    }
    Ok(text)
}

struct Stage {
    image: MemoryDevice,
    before: String,
    after: String,
}

/// The changes, each with the image that it begins with.
struct Settings {
    stages: Vec<Stage>,
    scratch: Scratch,
    has_e2fsck: bool,
}

fn open(device: Arc<dyn BlockDevice>, memory_budget_bytes: usize) -> Ext4 {
    Ext4::open(device, options(5000).memory_budget_bytes(memory_budget_bytes)).unwrap()
}

impl Settings {
    fn new() -> Option<Settings> {
        let device = Arc::new(PROJECTS.make()?);
        let memory_bytes = MountOptions::default().memory_budget_bytes;
        let mount = || open(device.clone() as Arc<dyn BlockDevice>, memory_bytes);
        let fs = mount();
        let context = RequestContext::superuser();
        for name in FILES {
            let name = name.as_bytes();
            let made = fs.create(&context, fs.root(), name, NewNode::Regular, 0o644).unwrap();
            fs.write(&context, made.inode, 0, &[1; FILE_BYTES]).unwrap();
            fs.forget(made.inode, 1);
        }
        let made = fs.create(&context, fs.root(), b"directory", NewNode::Directory, 0o755).unwrap();
        fs.forget(made.inode, 1);
        let mut before = read(&fs).unwrap();
        fs.close().unwrap();
        let mut stages = Vec::new();
        for change in &CHANGES {
            let image = device.snapshot();
            let fs = mount();
            (change.apply)(&fs).unwrap();
            let after = read(&fs).unwrap();
            fs.close().unwrap();
            assert_ne!(before, after, "{}", change.name);
            stages.push(Stage { image, before, after: after.clone() });
            before = after;
        }
        let scratch = Scratch::new("settings").unwrap();
        Some(Settings { stages, scratch, has_e2fsck: have("e2fsck") })
    }

    /// Recovers an image, which has to show one of these settings.
    fn judge(
        &self,
        image: MemoryDevice,
        possible: &[&String],
        with_e2fsck: bool,
    ) -> std::result::Result<(), String> {
        let device: Arc<dyn BlockDevice> = Arc::new(image);
        let fs = Ext4::open(Arc::clone(&device), options(5000))
            .map_err(|error| format!("can't be opened: {error}"))?;
        compare(&fs, possible)?;
        check_grace(&fs)?;
        fs.close().map_err(|error| format!("can't be closed: {error}"))?;
        check(&*device)?;
        if self.has_e2fsck && with_e2fsck { e2fsck(&*device, &self.scratch) } else { Ok(()) }
    }
}

fn compare(fs: &Ext4, possible: &[&String]) -> std::result::Result<(), String> {
    let found = read(fs).map_err(|error| format!("can't be read: {error}"))?;
    if possible.contains(&&found) {
        return Ok(());
    }
    Err(format!("settings:\n{found}\nnone of:\n{possible:#?}"))
}

impl Staged for Settings {
    fn stages(&self) -> usize {
        self.stages.len()
    }

    fn run(&self, trial: &Trial, with_e2fsck: bool) -> std::result::Result<Counts, String> {
        let (stage, change) = (&self.stages[trial.stage], &CHANGES[trial.stage]);
        let device: Arc<Device> = Arc::new(Faulty::new(stage.image.snapshot()));
        let fs = open(device.clone() as Arc<dyn BlockDevice>, trial.memory_bytes);
        let before = count(&device);
        for fault in &trial.faults {
            device.inject(fault.clone());
        }
        let mut frozen = None;
        let mut done = (change.apply)(&fs);
        if change.freezes && done.is_ok() {
            done = fs.freeze().and_then(|()| {
                frozen = Some(device.inner().snapshot());
                fs.thaw()
            });
        }
        let is_synced = fs.sync().is_ok();
        let counts = count(&device).since(before);
        device.repair();
        let (either, after) = ([&stage.before, &stage.after], [&stage.after]);
        let mut possible: &[&String] = &either;
        if done.is_ok() && is_synced {
            possible = &after;
        }
        if is_synced || fs.sync().is_ok() {
            compare(&fs, possible).map_err(|why| format!("while mounted: {why}"))?;
        }
        if fs.close().is_ok() && done.is_ok() {
            possible = &after;
        }
        drop(fs);
        let what = |why| format!("{}, {done:?}: {why}", change.name);
        self.judge(device.inner().snapshot(), possible, with_e2fsck).map_err(what)?;
        if let Some(frozen) = frozen {
            self.judge(frozen, &after, with_e2fsck).map_err(|why| format!("frozen: {why}"))?;
        }
        Ok(counts)
    }
}

#[test]
fn cold_settings() {
    if let Some(settings) = Settings::new() {
        try_failures(PROJECTS.name, &settings);
    }
}
