//! Trees that are wider and deeper than a process may have files open are copied and compared.
//!
//! In a process of its own and in one test: the limit is the whole process's.
#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]

use drystone::compare::{self, Aspects, ComparedTree, compare};
use drystone::transfer::{self, CopyItem, CopyMonitor, CopyProblem, Endpoint, copy};
use drystone_testkit::model::{Configuration, MemoryFileSystem};
use drystone_vfs::{FileSystem, NewNode, RequestContext};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::path::Path;

/// More than two trees keep open, less than there are directories.
const LIMIT: u64 = 400;
const DEPTH: usize = 600;

struct NoProblem;

impl CopyMonitor for NoProblem {
    fn problem(&self, problem: &CopyProblem) {
        panic!("{problem}");
    }
}

#[test]
fn wide_and_deep_trees_need_few_descriptors() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), ..before }).unwrap();
    a_deep_tree_comes_out(folders[0].path());
    wide_and_deep_trees_are_compared(folders[1].path());
    // What removes the trees has every level open.
    setrlimit(Resource::Nofile, before).unwrap();
}

fn copy_well(
    from: Endpoint<'_>,
    path: &Path,
    to: Endpoint<'_>,
    into: &Path,
) -> transfer::CopySummary {
    let items = [CopyItem { path: path.to_path_buf(), name: None }];
    copy(from, &items, to, into, &transfer::CopyOptions::default(), &NoProblem).unwrap()
}

fn a_deep_tree_comes_out(folder: &Path) {
    let image = MemoryFileSystem::new(Configuration::default());
    let context = RequestContext::superuser();
    let mut directory = image.root();
    for _ in 0..DEPTH {
        let below = image.create(&context, directory, b"d", NewNode::Directory, 0o755).unwrap();
        image.forget(directory, u64::from(directory != image.root()));
        directory = below.inode;
    }
    let file = image.create(&context, directory, b"f", NewNode::Regular, 0o644).unwrap();
    image.forget(file.inode, 1);
    image.forget(directory, 1);
    let summary = copy_well(Endpoint::Image(&image), Path::new("/"), Endpoint::Host, folder);
    assert_eq!((summary.directories, summary.files), (DEPTH as u64, 1));
    assert_eq!(image.references(), 0);
    let mut depth = 0;
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut fd = rustix::fs::open(folder, flags, Mode::empty()).unwrap();
    while let Ok(below) = rustix::fs::openat(&fd, "d", flags, Mode::empty()) {
        fd = below;
        depth += 1;
    }
    assert_eq!(depth, DEPTH);
    assert!(rustix::fs::statat(&fd, "f", AtFlags::empty()).is_ok());
}

/// More directories than the limit wait for their files to be compared, and one lies deeper than
/// that.
fn wide_and_deep_trees_are_compared(folder: &Path) {
    let (first, second) = (folder.join("first"), folder.join("second"));
    for root in [&first, &second] {
        for directory in 0..300 {
            let directory = root.join(directory.to_string());
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("file"), "content").unwrap();
        }
        fs::create_dir_all(root.join("d/".repeat(DEPTH))).unwrap();
    }
    let aspects = Aspects { times: false, ..Aspects::default() };
    let options = compare::CompareOptions::default().aspects(aspects);
    let differences = |first, second| {
        let mut found = Vec::new();
        let mut gather = |difference: &compare::Difference| found.push(difference.clone());
        let summary = compare(first, second, &options, &NoProblem, &mut gather).unwrap();
        (found, summary.entries)
    };
    let host = |path| ComparedTree { place: Endpoint::Host, path };
    assert_eq!(differences(host(&first), host(&second)), (vec![], 1 + 600 + DEPTH as u64));
    let image = MemoryFileSystem::new(Configuration::default());
    copy_well(Endpoint::Host, &first, Endpoint::Image(&image), Path::new("/"));
    let first = ComparedTree { place: Endpoint::Image(&image), path: Path::new("/") };
    assert_eq!(differences(first, host(&second)).0, []);
}
