//! Images with a journal that must be replayed: copies of what the kernel has mounted.

use crate::images;
use drystone_blockdev::{FileDevice, OpenMode};
use drystone_fsck::{Issue, JournalIssue, Options, check};
use drystone_testkit::judges::{
    FeatureSet, Scratch, e2fsck_check, e2fsck_repair, have, kernel_mount, run,
};
use std::fs::{self, File};

#[test]
fn a_copy_of_a_mounted_image_is_clean_once_replayed() {
    if !have("e2fsck") {
        return;
    }
    let _alone = images::alone();
    let scratch = Scratch::new("fsck-journal").unwrap();
    for name in ["default", "modern-1k", "ext3-1k", "inline-data-1k"] {
        let image = scratch.join(name);
        images::make(&image, FeatureSet::by_name(name).unwrap(), None).expect_clean(name);
        let mount = scratch.join("mount");
        let Some(mounted) = kernel_mount(&image, &mount, "").unwrap() else { return };
        images::fill(&mount, 200);
        // An orphan, and metadata blocks that are revoked.
        let open = File::create(mount.join("open and removed")).unwrap();
        open.set_len(100_000).unwrap();
        fs::remove_file(mount.join("open and removed")).unwrap();
        fs::remove_dir_all(mount.join("directory/below")).unwrap();
        for number in 0..200 {
            fs::remove_file(
                mount.join(format!("directory/a name of some length, number {number}")),
            )
            .unwrap();
        }
        run("sync", ["-f", mount.to_str().unwrap()]).unwrap();
        let copy = scratch.join("copy");
        fs::copy(&image, &copy).unwrap();
        drop(open);
        mounted.unmount().unwrap();

        let report = images::check_file(&copy);
        assert!(report.is_clean(), "{name}\n{}", images::problems(&report));
        assert!(report.summary.transactions_replayed > 0, "{name}");
        assert_eq!(report.summary.orphans, 1, "{name}");

        let device = FileDevice::open(&copy, OpenMode::ReadOnly).unwrap();
        let as_is = Options { replay: false, ..Options::default() };
        let report = check(&device, &as_is, &mut |_| {}).unwrap();
        let needed = Issue::Journal(JournalIssue::NeedsReplay);
        assert!(report.problems.iter().any(|problem| problem.issue == needed), "{name}");

        e2fsck_repair(&copy).unwrap();
        let report = images::check_file(&copy);
        assert!(report.is_clean(), "{name}\n{}", images::problems(&report));
        e2fsck_check(&copy).unwrap().expect_clean(name);
    }
}
