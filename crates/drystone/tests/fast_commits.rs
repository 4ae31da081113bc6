//! An image that Linux left with fast commits is checked and read as it will be recovered.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone::{Image, check_image};
use drystone_testkit::judges::{Scratch, crashed_image, have, kernel_mount, run};
use drystone_vfs::RequestContext;
use std::fs::{self, File};
use std::io::Write;

#[test]
fn fast_commits_are_checked_and_read() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fast-commits").unwrap();
    let [image, copy] = ["image", "copy"].map(|name| scratch.join(name));
    File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let arguments = ["-q", "-F", "-t", "ext4", "-O", "fast_commit", image.to_str().unwrap()];
    run("mke2fs", arguments).unwrap().expect_clean("mke2fs");
    let mounted = kernel_mount(&image, &scratch.join("mount"), "commit=1000").unwrap();
    let Some(mounted) = mounted else { return };
    run("sync", ["-f", mounted.path().to_str().unwrap()]).unwrap();
    let mut file = File::create(mounted.path().join("synced")).unwrap();
    file.write_all(&[7; 5000]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs::write(&copy, crashed_image(&image).unwrap()).unwrap();
    mounted.unmount().unwrap();
    let before = fs::read(&copy).unwrap();

    let report = check_image(&copy, &drystone_fsck::CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    let read_only = Image::options().read_only(true);
    let opened = read_only.open(&copy).unwrap();
    let files = opened.file_system();
    let found = files.lookup(&RequestContext::superuser(), files.root(), b"synced").unwrap();
    assert_eq!(found.size, 5000);
    opened.close().unwrap();
    assert!(fs::read(&copy).unwrap() == before, "looking has changed the image");
}
