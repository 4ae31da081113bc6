//! Errors of calls on whole images: what was tried, on which image, and of which kind.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone::mkfs::MkfsOptions;
use drystone::reshape::{FreeSpaceAction, NewSize, Tuning};
use drystone::{
    ChangeOptions, CreateOptions, DiskInformation, Error, FileSystemKind, Image, Information,
    Nilfs2MakeOptions, fsck, inspection, nilfs2_check,
};
use std::io;
use std::path::Path;

type Call = (&'static str, fn(&Path) -> Result<(), Error>);

/// Calls that read or change an image that is there.
const CALLS: &[Call] = &[
    ("open", |name| Image::open(name).map(drop)),
    ("check", |name| {
        drystone::check_image(name, &fsck::CheckOptions::default(), &mut |_| {}).map(drop)
    }),
    ("check", |name| {
        drystone::check_nilfs2(name, &nilfs2_check::Nilfs2CheckOptions::default()).map(drop)
    }),
    ("repair", |name| {
        let options = ChangeOptions::default();
        drystone::repair_image(
            name,
            &options,
            &fsck::CheckOptions::default(),
            &mut |_, _| fsck::Decision::Repair,
            &mut |_| {},
        )
        .map(drop)
    }),
    ("plan the repair of", |name| {
        drystone::plan_repair(
            name,
            &fsck::CheckOptions::default(),
            &mut |_, _| fsck::Decision::Repair,
            &mut |_| {},
        )
        .map(drop)
    }),
    ("tune", |name| {
        let options = ChangeOptions::default();
        drystone::tune_image(name, &Tuning::default(), &options, &mut |_| {}).map(drop)
    }),
    ("resize", |name| {
        let (size, options) = (NewSize::Minimum, ChangeOptions::default());
        drystone::resize_image(name, size, &options, &mut |_| {}).map(drop)
    }),
    ("resize", |name| drystone::grow_nilfs2(name, NewSize::More(0)).map(drop)),
    ("clear the free space of", |name| {
        drystone::clear_free_space(name, FreeSpaceAction::Zero, &mut |_| {}).map(drop)
    }),
    ("take back a change of", |name| drystone::undo(name, None).map(drop)),
    ("inspect", |name| drystone::inspect_image(name, &inspection::ImagePart::Superblock).map(drop)),
    ("set a field of", |name| {
        let (set, options) = (inspection::SetOptions::default(), ChangeOptions::default());
        let assignments = ["mnt_count=1".to_owned()];
        let part = inspection::ImagePart::Superblock;
        drystone::set_fields(name, &part, &assignments, set, &options).map(drop)
    }),
    ("inspect", |name| drystone::which_inode(name, &[1]).map(drop)),
    ("inspect", |name| drystone::which_name(name, &[2]).map(drop)),
    ("look for deleted files in", |name| {
        drystone::deleted_files(name, &mut |_, _, _| {}).map(drop)
    }),
    ("find the size of", |name| drystone::size_of(name).map(drop)),
    ("read the superblock of", |name| Information::read(name).map(drop)),
    ("read the partition table of", |name| DiskInformation::read(name).map(drop)),
];

#[test]
fn an_error_names_the_operation_and_the_image() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.img");
    for (operation, call) in CALLS {
        check(call(&missing).unwrap_err(), operation, &missing, io::ErrorKind::NotFound);
    }
    // What isn't an image can't be used as one; calls on any file or disk succeed.
    let empty = folder.path().join("empty.img");
    std::fs::write(&empty, vec![0; 1 << 20]).unwrap();
    for (operation, call) in CALLS {
        if let Err(error) = call(&empty) {
            assert_eq!((error.operation(), error.path()), (Some(*operation), Some(&*empty)));
        }
    }
}

#[test]
fn an_error_of_an_open_image_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("a.img");
    let image = Image::create(&name, &CreateOptions::new(16 << 20)).unwrap();
    for (operation, call) in CALLS {
        if !matches!(*operation, "read the superblock of" | "read the partition table of") {
            let error = call(&name).unwrap_err();
            check(error, operation, &name, io::ErrorKind::ResourceBusy);
        }
    }
    let error = image.checkpoints().unwrap_err();
    check(error, "list the checkpoints of", &name, io::ErrorKind::Unsupported);
    let fs = image.shared_fs();
    check(image.close().unwrap_err(), "close", &name, io::ErrorKind::ResourceBusy);
    drop(fs);
    let taken = |result: Result<(), Error>| {
        check(result.unwrap_err(), "make", &name, io::ErrorKind::AlreadyExists);
    };
    let options = MkfsOptions::new(16 << 20, [1; 16], [2; 4], 0);
    taken(drystone::make_image(&name, &options, false).map(drop));
    let options = Nilfs2MakeOptions::new(uuid(), 0, 0);
    taken(drystone::make_nilfs2(&name, 256 << 20, &options, false));
    let taken = Image::create(&name, &CreateOptions::new(256 << 20).kind(FileSystemKind::Nilfs2));
    assert_eq!(taken.unwrap_err().path(), Some(&*name));
}

fn uuid() -> uuid::Uuid {
    uuid::Uuid::from_bytes([1; 16])
}

/// What, where and of which kind, also after a way through the standard library.
fn check(error: Error, operation: &str, name: &Path, kind: io::ErrorKind) {
    let back = Error::from(io::Error::from(error.clone()));
    for error in [error, back] {
        assert_eq!((error.operation(), error.path()), (Some(operation), Some(name)), "{error}");
        assert_eq!(error.kind(), kind, "{error}");
    }
}
