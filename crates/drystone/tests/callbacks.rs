//! What the library calls back may call the file systems again: nothing is locked then.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone::compare::{CompareOptions, ComparedTree, compare};
use drystone::fsck::{CheckOptions, Decision};
use drystone::inspection::MetadataOptions;
use drystone::reshape::{FreeSpaceAction, NewSize};
use drystone::transfer::{
    self, CopyItem, CopyMonitor, CopyOptions, CopyProblem, Endpoint, Lacking,
};
use drystone::vfs::NewNode;
use drystone::{
    ChangeOptions, CreateOptions, FileSystemKind, Fs, Image, check_image, clear_free_space,
    defragment_image, deleted_files, fragmentation, repair_image, resize_image, save_metadata,
};
use drystone_sync::assert_none_held;
use drystone_sync::atomic::{AtomicU64, Ordering};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Calls two file systems whenever it is called.
struct Caller<'f> {
    file_systems: [Fs<'f>; 2],
    calls: AtomicU64,
}

impl<'f> Caller<'f> {
    fn new(first: &Fs<'f>, second: &Fs<'f>) -> Caller<'f> {
        Caller { file_systems: [first.clone(), second.clone()], calls: AtomicU64::new(0) }
    }

    fn call(&self) {
        assert_none_held();
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let (name, renamed) = (format!("/beside/{number}"), format!("/beside/{number}-renamed"));
        for fs in &self.file_systems {
            fs.write(&name, "called").unwrap();
            fs.rename(&name, &renamed).unwrap();
            assert!(fs.metadata("/tree").unwrap().is_dir());
            assert!(fs.read_dir("/beside").unwrap().count() > 0);
            fs.remove_file(&renamed).unwrap();
        }
    }
}

impl CopyMonitor for Caller<'_> {
    fn bytes(&self, _: u64) {
        self.call();
    }

    fn entry(&self, _: &dyn Fn() -> PathBuf) {
        self.call();
    }

    fn problem(&self, _: &CopyProblem) {
        self.call();
    }

    fn lacking(&self, _: &Lacking<'_>) {
        self.call();
    }

    fn is_cancelled(&self) -> bool {
        self.call();
        false
    }
}

/// An archive that is only counted.
struct Counted<'c, 'f>(&'c Caller<'f>);

impl Write for Counted<'_, '_> {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.0.call();
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.call();
        Ok(())
    }
}

fn filled(kind: FileSystemKind) -> Image {
    let image = Image::in_memory(&CreateOptions::new(256 << 20).kind(kind)).unwrap();
    let fs = image.fs();
    fs.create_dir_all("/tree/below").unwrap();
    fs.create_dir("/beside").unwrap();
    for number in 0..100 {
        fs.write(format!("/tree/below/{number}"), vec![1; 5000]).unwrap();
    }
    fs.hard_link("/tree/below/1", "/tree/1").unwrap();
    fs.symlink("1", "/tree/link").unwrap();
    fs.make_node("/tree/socket", NewNode::Socket, 0o600).unwrap();
    image
}

#[test]
fn monitors_of_copies_and_comparisons_may_call() {
    let (ext4, nilfs2) = (filled(FileSystemKind::Ext4), filled(FileSystemKind::Nilfs2));
    // NILFS2 can't hold it, which the monitor is told.
    ext4.fs().set_xattr("/tree/1", "user.x", b"1").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = CopyOptions::default().threads(3);
    let item = CopyItem { path: "/tree".into(), name: Some("copy".into()) };
    let items = std::slice::from_ref(&item);
    for (from, to) in [(&ext4, &nilfs2), (&nilfs2, &ext4)] {
        let (from, to) = (from.fs(), to.fs());
        let caller = Caller::new(&from, &to);
        let ends = [from.file_system(), to.file_system()].map(Endpoint::Image);
        transfer::copy(ends[0], items, ends[1], Path::new("/tree"), &options, &caller).unwrap();
        transfer::copy(ends[0], items, Endpoint::Host, folder.path(), &options, &caller).unwrap();
        let path = Path::new("/tree");
        let [first, second] = ends.map(|place| ComparedTree { place, path });
        let compared = compare(first, second, &CompareOptions::default(), &caller, &mut |_| {
            caller.call();
        });
        assert!(compared.unwrap().differences > 0);
        let mut out = Counted(&caller);
        let archived = transfer::archive(from.file_system(), &item, &mut out, &options, &caller);
        assert!(archived.unwrap().files > 90);
        assert!(caller.calls.load(Ordering::Relaxed) > 500);
    }
}

#[test]
fn nothing_is_locked_while_progress_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let name = &*folder.path().join("a.img");
    let image = Image::create(name, &CreateOptions::new(64 << 20)).unwrap();
    for number in 0..100 {
        image.fs().write(format!("/{number}"), vec![7; 9000]).unwrap();
    }
    for number in 0..50 {
        image.fs().remove_file(format!("/{number}")).unwrap();
    }
    image.close().unwrap();
    let (options, change) = (CheckOptions::default(), ChangeOptions::default());
    let told = AtomicU64::new(0);
    let tell = || {
        assert_none_held();
        told.fetch_add(1, Ordering::Relaxed);
    };
    let expect_told = |what: &str| assert!(told.swap(0, Ordering::Relaxed) > 0, "{what}");
    check_image(name, &options, &mut |_| tell()).unwrap();
    expect_told("check");
    let choose = &mut |_: &_, _| Decision::Repair;
    repair_image(name, &change, &CheckOptions::default(), choose, &mut |_| tell()).unwrap();
    expect_told("repair");
    fragmentation(name, &mut |_, _| tell()).unwrap();
    expect_told("fragmentation");
    deleted_files(name, &mut |_, _, _| tell()).unwrap();
    expect_told("deleted files");
    let metadata = folder.path().join("metadata.img");
    save_metadata(name, &metadata, &MetadataOptions::default(), &mut |_, _| tell()).unwrap();
    expect_told("metadata");
    defragment_image(name, &change, &mut |_| tell()).unwrap();
    expect_told("defragment");
    clear_free_space(name, FreeSpaceAction::Zero, &mut |_| tell()).unwrap();
    expect_told("free space");
    resize_image(name, NewSize::Exactly(32 << 20), &change, &mut |_| tell()).unwrap();
    expect_told("resize");
}
