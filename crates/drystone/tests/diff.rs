//! Trees of one image, of two and of this machine, compared by the calls of `Fs`.
#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]

use drystone::compare::{CompareOptions, ComparedTree, DifferenceKind, Which};
use drystone::vfs::FileType;
use drystone::{CreateOptions, Fs, Image};
use std::io::ErrorKind;
use std::path::Path;

fn image() -> Image {
    Image::in_memory(&CreateOptions::new(16 << 20)).unwrap()
}

fn differences(fs: &Fs<'_>, path: &str, other: ComparedTree<'_>) -> Vec<(String, DifferenceKind)> {
    let (mut options, mut found) = (CompareOptions::default(), Vec::new());
    options.aspects.times = false;
    options.aspects.owner = false;
    let summary = fs.diff(path, other, &options, |difference| {
        found.push((difference.path.display().to_string(), difference.kind.clone()));
    });
    assert_eq!(summary.unwrap().differences, found.len() as u64);
    found
}

fn fill(fs: &Fs<'_>, top: &str) {
    fs.create_dir_all(Path::new(top).join("b/c")).unwrap();
    fs.write(Path::new(top).join("a"), "same").unwrap();
    fs.write(Path::new(top).join("b/c/d"), "before").unwrap();
}

#[test]
fn trees_are_compared_wherever_they_are() {
    let (first, second) = (image(), image());
    let (first, second) = (first.fs(), second.fs());
    fill(&first, "/one");
    fill(&first, "/two");
    fill(&second, "/three");
    let folder = tempfile::tempdir().unwrap();
    let host = folder.path().join("four");
    first.copy_out("/one", &host).unwrap();
    assert_eq!(differences(&first, "/one", first.tree("/two")), []);
    assert_eq!(differences(&first, "/one", second.tree("/three")), []);
    assert_eq!(differences(&first, "/one", ComparedTree::host(&host)), []);
    first.write("/one/b/c/d", "beyond").unwrap();
    first.remove_file("/one/a").unwrap();
    let expected = [
        ("a".to_string(), DifferenceKind::OnlyIn(Which::Second, FileType::Regular)),
        ("b/c/d".to_string(), DifferenceKind::Content(2)),
    ];
    assert_eq!(differences(&first, "/one", first.tree("/two")), expected);
    assert_eq!(differences(&first, "/one", second.tree("/three")), expected);
    assert_eq!(differences(&first, "/one", ComparedTree::host(&host)), expected);
    let of_files = differences(&first, "/one/b/c/d", second.tree("/three/b/c/d"));
    assert_eq!(of_files, [(String::new(), DifferenceKind::Content(2))]);
}

#[test]
fn errors_say_what_and_where() {
    let image = image();
    let fs = image.fs();
    fill(&fs, "/one");
    let options = CompareOptions::default();
    let none = fs.diff("/one", fs.tree("/none"), &options, |_| {}).unwrap_err();
    assert_eq!((none.operation(), none.path()), (Some("open"), Some(Path::new("/none"))));
    assert_eq!(none.kind(), ErrorKind::NotFound);
    let none = fs.diff("/one", ComparedTree::host("/nowhere/at/all"), &options, |_| {});
    assert_eq!(none.unwrap_err().kind(), ErrorKind::NotFound);
    let user = fs.as_user(1000, 1000, &[]);
    let refused = user.diff("/one", fs.tree("/one/b"), &options, |_| {}).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    assert_eq!(refused.to_string(), "cannot compare '/one' to '/one/b': operation not permitted");
}
