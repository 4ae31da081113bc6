//! Two mounts of the kernel's ext4 agree, so the comparison of mounts is deterministic.

use drystone_testkit::comparison::Tolerance;
use drystone_testkit::host::{become_root_without_umask, check_directories};
use drystone_testkit::judges::{FeatureSet, Scratch, have, kernel_mount, mke2fs};
use drystone_testkit::operations::Profile;

#[test]
fn the_kernel_agrees_with_itself() {
    if !have("mke2fs") || !become_root_without_umask() {
        return;
    }
    let scratch = Scratch::new("twins").unwrap();
    let set = FeatureSet::by_name("modern").unwrap();
    let mounted = ["left", "right"].map(|name| {
        let image = scratch.join(format!("{name}.img"));
        mke2fs(&image, set, 64 << 20).unwrap().expect_clean("mke2fs");
        kernel_mount(&image, &scratch.join(name), "nodev").unwrap()
    });
    let [Some(left), Some(right)] = &mounted else { return };
    for profile in Profile::ALL {
        let (left, right) = (left.path(), right.path());
        check_directories(0..3, profile, 200, Tolerance::default(), |_| true, left, right);
    }
}
