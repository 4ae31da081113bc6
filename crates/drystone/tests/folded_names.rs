//! Directories that compare names without case. A copy makes the first of several names that are one entry
//! there, and refuses the others instead of letting them replace it.
#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]

use drystone::sources::tar::{DataRun, EntryKind, NewTarEntry, Time, padding};
use drystone::transfer::{CopyItem, CopyMonitor, CopyOptions, CopyProblem, Endpoint, copy};
use drystone::vfs::{FileFlags, SetAttributes};
use drystone::{Fs, Image, ImageOptions, MemoryDevice};
use drystone_ext4_format::features::Incompat;
use drystone_mkfs::{MkfsOptions, NewImage};
use drystone_sync::{Arc, LockClass, Mutex};
use std::path::Path;

static PROBLEMS: LockClass = LockClass::new("problems of a test", 200);

/// An image whose directory `d` folds names.
fn image() -> Image {
    let mut options = MkfsOptions::new(64 << 20, [7; 16], [1, 2, 3, 4], 1_700_000_000);
    options.features.incompat |= Incompat::CASEFOLD;
    let device = Arc::new(MemoryDevice::new(64 << 20));
    NewImage::new(&options).unwrap().write(&*device, true).unwrap();
    let image = ImageOptions::default().open_device(device).unwrap();
    image.fs().create_dir("/d").unwrap();
    let flags = image.fs().metadata("/d").unwrap().attributes().flags | FileFlags::CASEFOLD;
    let folds = SetAttributes { flags: Some(flags), ..SetAttributes::default() };
    image.fs().set_attributes("/d", &folds, true).unwrap();
    image
}

struct Problems(Mutex<Vec<String>>);

impl CopyMonitor for Problems {
    fn problem(&self, problem: &CopyProblem) {
        self.0.lock().push(problem.to_string());
    }
}

/// The names below a directory and what is in the files, sorted.
fn content(fs: &Fs<'_>, path: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs.read_dir(path).unwrap() {
        let name = entry.unwrap().file_name().to_str().unwrap().to_owned();
        let below = format!("{path}/{name}");
        match fs.metadata(&below).unwrap().is_dir() {
            true => found.extend(content(fs, &below)),
            false => {
                found.push((below.clone(), String::from_utf8(fs.read(&below).unwrap()).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn expected(entries: &[(&str, &str)]) -> Vec<(String, String)> {
    entries.iter().map(|(path, text)| ((*path).to_string(), (*text).to_string())).collect()
}

#[test]
fn a_copy_never_replaces_what_it_has_just_made() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir_all(tree.join("Sub")).unwrap();
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    // More than one thread takes at a time, with the twins far apart.
    for index in 0..300 {
        std::fs::write(tree.join(format!("N{index}")), "upper").unwrap();
        std::fs::write(tree.join(format!("n{index}")), "lower").unwrap();
    }
    for (name, text) in [("STRASSE", "ss"), ("straße", "sharp"), ("Sub/in", "1"), ("sub/in", "2")]
    {
        std::fs::write(tree.join(name), text).unwrap();
    }
    let image = image();
    // What was there before is replaced, and keeps its spelling.
    image.fs().write("/d/N7", "old").unwrap();
    image.fs().write("/d/n8", "old").unwrap();
    let problems = Problems(Mutex::new(&PROBLEMS, Vec::new()));
    let items = [CopyItem { path: tree.clone(), name: None }];
    let target = Endpoint::Image(image.file_system());
    let options = CopyOptions::default().threads(4);
    let summary =
        copy(Endpoint::Host, &items, target, Path::new("/d"), &options, &problems).unwrap();
    assert_eq!((summary.files, summary.failed, summary.is_stopped), (302, 302, false));
    let problems = problems.0.into_inner();
    assert_eq!(problems.len(), 302);
    let text =
        "can't make /d/n9: the directory takes it for 'N9', which is copied too (file exists)";
    assert!(problems.iter().any(|problem| problem == text), "{}", problems[0]);
    let mut wanted: Vec<(String, String)> = (0..300)
        .map(|index| if index == 8 { "n8".to_string() } else { format!("N{index}") })
        .map(|name| (format!("/d/{name}"), "upper".to_string()))
        .chain(expected(&[("/d/STRASSE", "ss"), ("/d/Sub/in", "1")]))
        .collect();
    wanted.sort();
    assert_eq!(content(&image.fs(), "/d"), wanted);
    // In a directory that tells them apart, all are made.
    assert_eq!(image.fs().copy_in(&tree, "/all").unwrap().files, 604);
}

#[test]
fn several_sources_never_replace_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let item = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, name).unwrap();
        CopyItem { path, name: Some(name.into()) }
    };
    let items = ["Makefile", "other", "makefile"].map(item);
    let image = image();
    let problems = Problems(Mutex::new(&PROBLEMS, Vec::new()));
    let target = Endpoint::Image(image.file_system());
    let options = CopyOptions::default();
    let summary =
        copy(Endpoint::Host, &items, target, Path::new("/d"), &options, &problems).unwrap();
    assert_eq!((summary.files, summary.failed), (2, 1));
    assert!(problems.0.into_inner()[0].contains("makefile: the directory takes it for 'Makefile'"));
    let wanted = expected(&[("/d/Makefile", "Makefile"), ("/d/other", "other")]);
    assert_eq!(content(&image.fs(), "/d"), wanted);
}

#[test]
fn merged_directories_never_replace_what_the_other_has_made() {
    let folder = tempfile::tempdir().unwrap();
    let item = |(name, files): (&str, [&str; 2])| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        files.into_iter().for_each(|file| std::fs::write(path.join(file), name).unwrap());
        CopyItem { path, name: None }
    };
    // The same spelling is the same file, which the second copy replaces as everywhere.
    let items = [("first", ["Notes", "same"]), ("second", ["notes", "same"])].map(item);
    let image = image();
    let problems = Problems(Mutex::new(&PROBLEMS, Vec::new()));
    let target = Endpoint::Image(image.file_system());
    let options = CopyOptions::default().threads(1);
    let summary =
        copy(Endpoint::Host, &items, target, Path::new("/d"), &options, &problems).unwrap();
    assert_eq!((summary.files, summary.failed), (3, 1));
    assert!(problems.0.into_inner()[0].contains("the directory takes it for 'Notes'"));
    let found = content(&image.fs(), "/d");
    assert_eq!(found[0], ("/d/Notes".to_string(), "first".to_string()));
    assert_eq!((found.len(), found[1].0.as_str()), (2, "/d/same"));
}

fn packed(name: &str, kind: EntryKind, content: &str) -> Vec<u8> {
    let time = Time { seconds: 1_000_000_000, nanoseconds: 0 };
    let entry = NewTarEntry {
        name: name.as_bytes(),
        kind,
        mode: 0o755,
        user: 0,
        group: 0,
        modified: time,
        accessed: time,
        attributes: &Vec::new(),
    };
    [&entry.head()[..], content.as_bytes(), padding(content.len() as u64)].concat()
}

fn file(name: &str, content: &str) -> Vec<u8> {
    let run = DataRun { offset: 0, length: content.len() as u64, position: 0 };
    packed(name, EntryKind::File { size: content.len() as u64, runs: vec![run] }, content)
}

#[test]
fn an_archive_never_replaces_what_it_has_just_made() {
    let archive = [
        file("Makefile", "1"),
        file("makefile", "2"),
        // The same spelling again is a newer version of the entry.
        file("Makefile", "3"),
        packed("Sub/", EntryKind::Directory, ""),
        file("Sub/in", "4"),
        file("sub/in", "5"),
        packed("SUB/", EntryKind::Directory, ""),
        packed("makefilE", EntryKind::HardLink(b"Sub/in".to_vec()), ""),
        packed("same", EntryKind::HardLink(b"makefile".to_vec()), ""),
        // A symbolic link may spell as it likes.
        packed("link", EntryKind::Symlink(b"sUB".to_vec()), ""),
        file("link/more", "6"),
        file("there", "7"),
        vec![0; 1024],
    ]
    .concat();
    let image = image();
    image.fs().write("/d/THERE", "old").unwrap();
    let failed = image.fs().import_tar(&archive[..], "/d").unwrap_err();
    assert_eq!(
        failed.to_string(),
        "cannot import '/d/makefile': the directory takes it for 'Makefile', which is copied too (file exists)"
    );
    image.fs().remove_file("/d/link").unwrap();
    let wanted =
        [("/d/Makefile", "3"), ("/d/Sub/in", "4"), ("/d/Sub/more", "6"), ("/d/THERE", "7")];
    assert_eq!(content(&image.fs(), "/d"), expected(&wanted));
}

#[test]
fn a_rename_keeps_the_case() {
    let image = image();
    let fs = image.fs();
    fs.write("/d/foo", "1").unwrap();
    fs.create_dir("/d/sub").unwrap();
    fs.rename("/d/foo", "/d/FOO").unwrap();
    fs.rename("/d/sub", "/d/Sub").unwrap();
    fs.write("/d/SUB/in", "2").unwrap();
    assert_eq!(content(&fs, "/d"), expected(&[("/d/foo", "1"), ("/d/sub/in", "2")]));
    fs.rename("/d/foo", "/d/other").unwrap();
    fs.rename("/d/other", "/d/FOO").unwrap();
    assert_eq!(content(&fs, "/d"), expected(&[("/d/FOO", "1"), ("/d/sub/in", "2")]));
}
