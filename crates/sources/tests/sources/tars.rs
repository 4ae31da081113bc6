//! Archives by GNU tar, bsdtar and Python in every format, against the directory they were made of.

use crate::fixture::{self, Level, has, is_root};
use crate::listing::{ALL, Detail, Listing, list};
use drystone_mkfs::tree::FileTree;
use drystone_sources::{Opener, Source, SourceContext};
use drystone_testkit::skip::{Prerequisite, skip};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

pub fn context(spool: &Path) -> SourceContext {
    let mut context = SourceContext::new(Opener::new(spool));
    context.threads = 2;
    context
}

/// Reads a source as `--from` would.
pub fn read(source: &Path) -> FileTree {
    let mut tree = FileTree::new();
    let source = Source::parse(source.as_os_str());
    let mut context = context(&std::env::temp_dir());
    source.add(&mut tree, &mut context).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(context.warnings.sentences().collect::<Vec<_>>(), [""; 0]);
    tree
}

fn run(program: &str, arguments: &[&str], directory: &Path, archive: &Path) {
    let arguments = arguments.iter().map(OsString::from);
    let mut command = Command::new(program);
    for argument in arguments {
        match argument.to_str() {
            Some("DIRECTORY") => command.arg(directory),
            Some("ARCHIVE") => command.arg(archive),
            _ => command.arg(argument),
        };
    }
    let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {errors}");
}

struct Case {
    folder: TempDir,
    expected: Listing,
    detail: Detail,
}

impl Case {
    fn new(level: Level, detail: Detail, make: impl FnOnce(&Path)) -> Case {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("tree");
        std::fs::create_dir(&directory).unwrap();
        fixture::make(&directory, level);
        make(&directory);
        let expected = list(&read(&directory), detail);
        Case { folder, expected, detail }
    }

    fn check(&self, program: &str, arguments: &[&str]) {
        let archive = self.folder.path().join("archive");
        let _ = std::fs::remove_file(&archive);
        run(program, arguments, &self.folder.path().join("tree"), &archive);
        let found = list(&read(&archive), self.detail);
        for (path, text) in &self.expected {
            assert_eq!(found.get(path), Some(text), "{path}, by {program} {arguments:?}");
        }
        let more: Vec<_> = found.keys().filter(|path| !self.expected.contains_key(*path)).collect();
        assert_eq!(more, [""; 0], "by {program} {arguments:?}");
    }
}

const NO_HOLES: Detail = Detail { holes: false, ..ALL };
const PLAIN: Detail = Detail { nanoseconds: false, attributes: false, holes: false };

#[test]
fn gnu_tar_in_every_format() {
    if !has("tar") {
        return;
    }
    let formats = [
        ("v7", Level::V7),
        ("ustar", Level::Ustar),
        ("oldgnu", Level::Gnu),
        ("gnu", Level::Gnu),
        ("posix", Level::Gnu),
    ];
    for (format, level) in formats {
        let case = Case::new(level, PLAIN, |_| ());
        let format = format!("--format={format}");
        case.check("tar", &[&format, "-C", "DIRECTORY", "-cf", "ARCHIVE", "."]);
    }
    let case = Case::new(Level::Pax, NO_HOLES, |directory| {
        // bsdtar adds the fraction of times before 1970 where it should take it away.
        fixture::set_time(&directory.join("sub/more"), -86_400, 123_456_789);
    });
    let arguments = ["--format=posix", "--xattrs", "--xattrs-include=*", "--acls"];
    case.check("tar", &[&arguments[..], &["-C", "DIRECTORY", "-cf", "ARCHIVE", "."]].concat());
}

#[test]
fn gnu_tar_with_holes() {
    if !has("tar") {
        return;
    }
    let case = Case::new(Level::V7, Detail { holes: true, ..PLAIN }, fixture::make_sparse);
    for format in [
        &["--format=oldgnu"][..],
        &["--format=gnu"],
        &["--format=posix", "--sparse-version=0.0"],
        &["--format=posix", "--sparse-version=0.1"],
        &["--format=posix", "--sparse-version=1.0"],
    ] {
        case.check("tar", &[format, &["-S", "-C", "DIRECTORY", "-cf", "ARCHIVE", "."]].concat());
    }
}

#[test]
fn bsdtar_in_every_format() {
    if !has("bsdtar") {
        return;
    }
    for (format, level) in [("v7", Level::V7), ("ustar", Level::Ustar), ("gnutar", Level::Gnu)] {
        // Its GNU format has no times before 1970 or after 2242.
        let case = Case::new(level.min(Level::Ustar), PLAIN, |_| ());
        case.check("bsdtar", &["--format", format, "-C", "DIRECTORY", "-cf", "ARCHIVE", "."]);
    }
    if !is_root() {
        return skip(Prerequisite::Root, "bsdtar keeps the lists of its own user only");
    }
    let case = Case::new(Level::Pax, NO_HOLES, |_| ());
    case.check("bsdtar", &["--format", "pax", "-C", "DIRECTORY", "-cf", "ARCHIVE", "."]);
    let case = Case::new(Level::V7, Detail { holes: true, ..PLAIN }, fixture::make_sparse);
    case.check("bsdtar", &["--format", "pax", "-C", "DIRECTORY", "-cf", "ARCHIVE", "."]);
}

#[test]
fn python_in_every_format() {
    if !has("python3") {
        return;
    }
    const SCRIPT: &str = "\
import sys, tarfile
formats = {'ustar': tarfile.USTAR_FORMAT, 'gnu': tarfile.GNU_FORMAT, 'pax': tarfile.PAX_FORMAT}
with tarfile.open(sys.argv[2], 'w', format=formats[sys.argv[3]]) as archive:
    archive.add(sys.argv[1], '.')
";
    for (format, level) in [("ustar", Level::Ustar), ("gnu", Level::Gnu), ("pax", Level::Gnu)] {
        let case = Case::new(level, PLAIN, |_| ());
        case.check("python3", &["-c", SCRIPT, "DIRECTORY", "ARCHIVE", format]);
    }
}

#[test]
fn compressed_archives() {
    if !has("tar") {
        return;
    }
    let case = Case::new(Level::Gnu, PLAIN, |_| ());
    for program in ["gzip", "zstd", "xz", "bzip2"] {
        if has(program) {
            let program = format!("--use-compress-program={program}");
            case.check("tar", &[&program, "-C", "DIRECTORY", "-cf", "ARCHIVE", "."]);
        }
    }
}
