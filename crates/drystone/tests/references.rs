//! Whatever fails on the way, nothing keeps a reference to an inode: after copies, archives, comparisons
//! and calls by path, no inode is held.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone::compare::{CompareOptions, ComparedTree, compare};
use drystone::transfer::{self, CopyItem, CopyMonitor, CopyOptions, CopyProblem, Endpoint};
use drystone::vfs::{FileSystem, InodeGuard, InodeNumber, NewNode, RequestContext};
use drystone::{Fs, replace};
use drystone_testkit::failing::FailingFileSystem;
use drystone_testkit::model::{Configuration, MemoryFileSystem};
use std::io::{Read, Write};
use std::path::Path;

struct Heedless;

impl CopyMonitor for Heedless {
    fn problem(&self, _: &CopyProblem) {}
}

fn fill(fs: &Fs<'_>, top: &str) {
    let at = |name: &str| format!("{top}/{name}");
    fs.create_dir_all(at("below/deeper")).unwrap();
    fs.write(at("a"), "the same").unwrap();
    fs.hard_link(at("a"), at("below/b")).unwrap();
    fs.symlink("a", at("link")).unwrap();
    fs.set_xattr(at("a"), "user.x", b"1").unwrap();
    fs.create(at("below/deeper/sparse")).unwrap().set_len(1 << 20).unwrap();
    fs.make_node(at("pipe"), NewNode::Fifo, 0o600).unwrap();
}

/// Does the same work again and again, on a tree in `/from` and another in `/to`, with a file system that
/// fails one call later each time, until the work needs no more calls.
fn at_each_failure(work: impl Fn(&dyn FileSystem)) {
    for before in 0.. {
        let image = MemoryFileSystem::new(Configuration::default());
        let fs = Fs::over(&image);
        fill(&fs, "/from");
        fill(&fs, "/to");
        fs.write("/to/link2", "to be replaced").unwrap();
        let failing = FailingFileSystem::new(&image, before);
        work(&failing);
        assert_eq!(image.references(), 0, "after a failure of call {before}");
        if !failing.has_failed() {
            assert!(before > 5, "the work did little");
            return;
        }
    }
}

fn copy_to(from: Endpoint<'_>, path: &Path, to: Endpoint<'_>, into: &Path) {
    let items = [
        CopyItem { path: path.to_path_buf(), name: None },
        CopyItem { path: path.join("below"), name: Some("again".into()) },
    ];
    let options = CopyOptions::default().threads(2);
    let _ = transfer::copy(from, &items, to, into, &options, &Heedless);
}

#[test]
fn copies_hold_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (tree, out) = (folder.path().join("tree"), folder.path().join("out"));
    std::fs::create_dir_all(tree.join("below")).unwrap();
    std::fs::write(tree.join("a"), "of the host").unwrap();
    std::fs::hard_link(tree.join("a"), tree.join("below/b")).unwrap();
    std::fs::create_dir(&out).unwrap();
    let (from, to) = (Path::new("/from"), Path::new("/to"));
    at_each_failure(|fs| copy_to(Endpoint::Image(fs), from, Endpoint::Image(fs), to));
    at_each_failure(|fs| copy_to(Endpoint::Image(fs), from, Endpoint::Host, &out));
    at_each_failure(|fs| copy_to(Endpoint::Host, &tree, Endpoint::Image(fs), to));
}

/// A copy that is told to end after some questions.
struct Impatient(drystone_sync::atomic::AtomicU64);

impl CopyMonitor for Impatient {
    fn problem(&self, _: &CopyProblem) {}

    fn is_cancelled(&self) -> bool {
        use drystone_sync::atomic::Ordering::Relaxed;
        self.0.load(Relaxed) == 0 || self.0.fetch_sub(1, Relaxed) == 1
    }
}

#[test]
fn what_is_cancelled_holds_nothing() {
    for questions in 1..60 {
        let image = MemoryFileSystem::new(Configuration::default());
        let fs = Fs::over(&image);
        fill(&fs, "/from");
        fill(&fs, "/to");
        let monitor = || Impatient(drystone_sync::atomic::AtomicU64::new(questions));
        let item = CopyItem { path: "/from".into(), name: Some("x".into()) };
        let (place, items) = (Endpoint::Image(&image), std::slice::from_ref(&item));
        let options = CopyOptions::default().threads(2);
        transfer::copy(place, items, place, Path::new("/to"), &options, &monitor()).unwrap();
        let _ = transfer::archive(&image, &item, &mut Vec::new(), &options, &monitor());
        let trees = ["/from", "/to"].map(|path| ComparedTree { place, path: Path::new(path) });
        let [first, second] = trees;
        let compared = compare(first, second, &CompareOptions::default(), &monitor(), &mut |_| ());
        compared.unwrap();
        assert_eq!(image.references(), 0, "after {questions} questions");
    }
}

#[test]
fn archives_and_comparisons_hold_nothing() {
    at_each_failure(|fs| {
        let mut archive = Vec::new();
        for (path, name) in [("/from", None), ("/from/a", Some("one"))] {
            let item = CopyItem { path: path.into(), name: name.map(Into::into) };
            let options = CopyOptions::default();
            let _ = transfer::archive(fs, &item, &mut archive, &options, &Heedless);
        }
        let _ = Fs::over(fs).import_tar(&archive[..], "/to");
    });
    at_each_failure(|fs| {
        let place = Endpoint::Image(fs);
        let trees = ["/from", "/to"].map(|path| ComparedTree { place, path: Path::new(path) });
        let [first, second] = trees;
        let _ = compare(first, second, &CompareOptions::default(), &Heedless, &mut |_| ());
    });
}

#[test]
fn calls_by_path_hold_nothing() {
    at_each_failure(|fs| {
        let by_path = Fs::over(fs);
        let _ = by_path.copy("/from/a", "/to/new");
        let _ = by_path.canonicalize("/from/below/../link");
        let _ = by_path.rename("/from/a", "/to/below/renamed");
        let _ = by_path.read_dir("/to").map(Iterator::count);
        let _ = by_path.walk("/").count();
        let _ = by_path.open("/from/link").map(|mut file| {
            let clone = file.try_clone();
            let _ = file.read_to_end(&mut Vec::new());
            drop(clone);
        });
        let _ = by_path.create("/to/made").map(|mut file| file.write_all(b"made"));
        let _ = by_path.remove_dir_all("/to");
        let context = RequestContext::superuser();
        let put = |directory: InodeNumber| {
            replace(fs, &context, directory, b"pipe", &|name| {
                InodeGuard::create(fs, &context, directory, name, NewNode::Regular, 0o600)
            })
        };
        if let Ok(from) = InodeGuard::lookup(fs, &context, fs.root(), b"from") {
            let _ = put(from.inode()).map(drop);
        }
    });
}
