//! Images that others have collected for their own checker: a folder for each, with `image.gz` in it, as the
//! tests of e2fsprogs have them. Both verdicts of each image agree, the repair leaves it clean for both, a
//! second one changes nothing, and what e2fsck keeps is there with the same bytes.
//!
//! `DRYSTONE_COLLECTED_IMAGES=FOLDER` says where they are; `DRYSTONE_COLLECTED_IMAGE=NAME` takes one, and
//! tells what the repair did.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod accepted;
#[path = "../repairs/repairing.rs"]
mod repairing;

use accepted::{KEPT_BY_E2FSCK_ALONE, LEFT, NOT_CLEAN, VERDICTS};
use drystone_blockdev::MemoryDevice;
use drystone_fsck::{CheckOptions, check};
use drystone_testkit::contents::ImageContents;
use drystone_testkit::judges::{Scratch, e2fsck_at};
use repairing::{NOW_SECONDS, content, finds_nothing, repair_all, repaired, told};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What e2fsck says of an image it doesn't get through.
const TOO_LONG: i32 = -1;

#[test]
#[ignore = "long: ./dev judge-repair runs it"]
fn collected_images_are_repaired_until_they_are_clean() {
    let folder = std::env::var_os("DRYSTONE_COLLECTED_IMAGES").expect("the folder of the images");
    let only = std::env::var("DRYSTONE_COLLECTED_IMAGE").ok();
    let scratch = Scratch::new("fsck-collected").unwrap();
    let mut images: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().join("image.gz"))
        .filter(|image| image.exists())
        .collect();
    images.sort();
    let (mut count, mut failures) = (0, Vec::new());
    for image in &images {
        let name = image.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        count += 1;
        if let Err(why) = judge(&name, image, &scratch.join("image"), only.is_some()) {
            eprintln!("FAILED {name}: {why}");
            failures.push(name);
        }
    }
    eprintln!("{count} images, {} failures", failures.len());
    assert!(count > 0 && failures.is_empty(), "{failures:#?}");
}

/// Whether `list` has an image.
fn names(list: &[(&str, &str)], image: &str) -> bool {
    list.iter().any(|(name, _)| *name == image)
}

fn judge(name: &str, image: &Path, file: &Path, is_told: bool) -> Result<(), String> {
    let unpacked = Command::new("gzip").arg("-dc").arg(image).output().unwrap();
    assert!(unpacked.status.success(), "{}", image.display());
    let damaged = unpacked.stdout;
    let options = CheckOptions::default().now_seconds(NOW_SECONDS);

    // Both verdicts of the image as it is.
    let ours = check(&MemoryDevice::from_bytes(&damaged), &options, &mut |_| {});
    fs::write(file, &damaged).unwrap();
    let theirs = e2fsck_at(NOW_SECONDS, "-fn", file).unwrap();
    let is_clean = ours.as_ref().is_ok_and(|report| report.is_clean());
    let same = theirs.code == TOO_LONG || is_clean == finds_nothing(&theirs);
    if same == names(VERDICTS, name) {
        let problems = ours.map(|report| report.problems);
        let is_named =
            if same { "a difference is named, but there is none" } else { "verdicts differ" };
        return Err(format!("{is_named}: {problems:?}\n{}: {}", theirs.code, theirs.output));
    }

    // Our repair: clean for both, and complete.
    let told = || told(&repair_all(&MemoryDevice::from_bytes(&damaged)));
    let repaired = repaired(&damaged, is_told)?;
    if repaired.is_some() == names(LEFT, name) {
        return Err(format!("repaired: {}\n{}", repaired.is_some(), told()));
    }
    let Some(device) = repaired else { return Ok(()) };
    fs::write(file, content(&device)).unwrap();
    let judged = e2fsck_at(NOW_SECONDS, "-fn", file).unwrap();
    if finds_nothing(&judged) == names(NOT_CLEAN, name) {
        let judged = judged.output;
        return Err(format!("not clean for e2fsck, or said not to be:\n{judged}\n{}", told()));
    }
    let Some(ours) = ImageContents::of(device) else {
        return Err(format!("it can't be read:\n{}", told()));
    };

    // What e2fsck keeps of it.
    fs::write(file, &damaged).unwrap();
    for _ in 0..2 {
        let _ = e2fsck_at(NOW_SECONDS, "-fy", file).unwrap();
    }
    let mut bytes = fs::read(file).unwrap();
    bytes.resize(damaged.len(), 0);
    let Some(theirs) = ImageContents::of(MemoryDevice::from_bytes(&bytes)) else { return Ok(()) };
    let lost = lost_files(&ours, &theirs);
    if lost.is_empty() == names(KEPT_BY_E2FSCK_ALONE, name) {
        return Err(format!("kept by e2fsck alone: {lost:?}\n{}", told()));
    }
    Ok(())
}

/// The files that `theirs` has with bytes that `ours` hasn't: a name for each.
fn lost_files(ours: &ImageContents, theirs: &ImageContents) -> Vec<String> {
    let of_file = |inode: &u32| theirs.names.iter().find(|(_, number)| *number == inode);
    let lost = theirs.files.keys().filter(|inode| {
        theirs.file_bytes_kept(theirs, **inode) > ours.file_bytes_kept(theirs, **inode)
    });
    let lost = lost.filter_map(of_file);
    lost.map(|(name, inode)| format!("{inode} {}", String::from_utf8_lossy(name))).collect()
}
