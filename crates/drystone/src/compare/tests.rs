//! Compares trees in memory and on the host that differ in one thing or another.

use super::{
    Aspects, CompareOptions, CompareSummary, ComparedTree, Difference, DifferenceKind, Which,
    compare,
};
use crate::Exclude;
use crate::transfer::{self, CopyItem, CopyMonitor, CopyProblem, Endpoint};
use drystone_sync::{LockClass, Mutex};
use drystone_testkit::model::{Configuration, MemoryFileSystem};
use drystone_vfs::FileType;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

static PROBLEMS: LockClass = LockClass::new("problems of a test", 200);

struct GatheredDifferences(Mutex<Vec<String>>);

impl CopyMonitor for GatheredDifferences {
    fn problem(&self, problem: &CopyProblem) {
        self.0.lock().push(problem.to_string());
    }
}

/// Compares and expects no problem.
fn differences(
    first: ComparedTree<'_>,
    second: ComparedTree<'_>,
    options: &CompareOptions,
) -> (Vec<Difference>, CompareSummary) {
    let monitor = GatheredDifferences(Mutex::new(&PROBLEMS, Vec::new()));
    let mut found = Vec::new();
    let summary =
        compare(first, second, options, &monitor, &mut |difference| found.push(difference.clone()))
            .unwrap();
    assert_eq!(monitor.0.into_inner(), [""; 0]);
    assert_eq!(summary.differences, found.len() as u64);
    (found, summary)
}

fn host(path: &Path) -> ComparedTree<'_> {
    ComparedTree { place: Endpoint::Host, path }
}

fn tree_in<'t>(image: &'t MemoryFileSystem, path: &'t str) -> ComparedTree<'t> {
    ComparedTree { place: Endpoint::Image(image), path: Path::new(path) }
}

/// The content of a directory in an image.
fn image_of(root: &Path) -> MemoryFileSystem {
    let image = MemoryFileSystem::new(Configuration::default());
    let monitor = GatheredDifferences(Mutex::new(&PROBLEMS, Vec::new()));
    let items = [CopyItem { path: root.to_path_buf(), name: None }];
    let (to, into) = (Endpoint::Image(&image), Path::new("/"));
    let options = transfer::CopyOptions::default();
    transfer::copy(Endpoint::Host, &items, to, into, &options, &monitor).unwrap();
    assert_eq!(monitor.0.into_inner(), [""; 0]);
    image
}

fn make(root: &Path) {
    for directory in ["a", "a/deep", "b"] {
        fs::create_dir_all(root.join(directory)).unwrap();
        for file in 0..200 {
            let path = root.join(directory).join(format!("file-{file}"));
            fs::write(path, vec![file as u8; file * 50]).unwrap();
        }
    }
    fs::write(root.join("large"), vec![1; 3 << 20]).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"data", 1 << 20).unwrap();
    sparse.set_len(4 << 20).unwrap();
    symlink("a/deep", root.join("link")).unwrap();
    fs::hard_link(root.join("large"), root.join("b/large too")).unwrap();
}

#[test]
fn a_copy_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path());
    let image = image_of(folder.path());
    for threads in [1, 4] {
        let options = CompareOptions { threads, ..CompareOptions::default() };
        let (found, summary) = differences(host(folder.path()), tree_in(&image, "/"), &options);
        assert_eq!(found, []);
        assert_eq!(summary.entries, 1 + 3 + 600 + 4);
        let (found, _) = differences(tree_in(&image, "/"), tree_in(&image, "/"), &options);
        assert_eq!(found, []);
    }
    let (found, summary) = differences(
        host(&folder.path().join("large")),
        tree_in(&image, "/b/large too"),
        &CompareOptions::default(),
    );
    assert_eq!((found.len(), summary.entries), (0, 1));
    assert_eq!(image.references(), 0);
}

#[test]
fn every_difference_is_found_in_order() {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path());
    let image = image_of(folder.path());
    let root = folder.path();
    let time = fs::metadata(root.join("a")).unwrap().modified().unwrap();
    fs::remove_file(root.join("a/deep/file-7")).unwrap();
    fs::remove_dir_all(root.join("b")).unwrap();
    fs::create_dir_all(root.join("c/d")).unwrap();
    fs::set_permissions(root.join("a/file-1"), PermissionsExt::from_mode(0o4711)).unwrap();
    fs::remove_file(root.join("a/file-2")).unwrap();
    symlink("x", root.join("a/file-2")).unwrap();
    fs::remove_file(root.join("link")).unwrap();
    symlink("elsewhere", root.join("link")).unwrap();
    let file = |name: &str| fs::File::options().write(true).open(root.join(name)).unwrap();
    file("large").write_all_at(b"x", (2 << 20) + 5).unwrap();
    file("a/file-9").set_len(1000).unwrap();
    file("sparse").write_all_at(&[0; 4096], 2 << 20).unwrap();
    for name in ["a", "a/deep", "a/file-9", "large", "sparse", ""] {
        fs::File::open(root.join(name)).unwrap().set_modified(time).unwrap();
    }
    let aspects = Aspects { times: false, ..Aspects::default() };
    let options = CompareOptions { aspects, ..CompareOptions::default() };
    let (found, _) = differences(tree_in(&image, "/"), host(root), &options);
    let second = Which::Second;
    let expected = [
        ("a/deep/file-7", DifferenceKind::OnlyIn(Which::First, FileType::Regular)),
        ("a/file-1", DifferenceKind::Mode(0o644, 0o4711)),
        ("a/file-2", DifferenceKind::Type(FileType::Regular, FileType::Symlink)),
        ("a/file-9", DifferenceKind::Size(450, 1000)),
        ("b", DifferenceKind::OnlyIn(Which::First, FileType::Directory)),
        ("c", DifferenceKind::OnlyIn(second, FileType::Directory)),
        ("large", DifferenceKind::Content((2 << 20) + 5)),
        ("link", DifferenceKind::Target(b"a/deep".to_vec(), b"elsewhere".to_vec())),
        ("sparse", DifferenceKind::Holes(2 << 20)),
    ];
    let expected = expected.map(|(path, kind)| Difference { path: path.into(), kind });
    assert_eq!(found, expected);
    let aspects = Aspects { holes: false, content: false, mode: false, ..aspects };
    let exclude = Exclude::new(["file-*", "/b", "c/*"].map(OsString::from));
    let options = CompareOptions { aspects, exclude, ..CompareOptions::default() };
    let (found, _) = differences(tree_in(&image, "/"), host(root), &options);
    let paths: Vec<_> = found.iter().map(|difference| difference.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["c", "link"]);
    assert_eq!(image.references(), 0);
}
