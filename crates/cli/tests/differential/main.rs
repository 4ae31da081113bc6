//! Random sequences of system calls on a mount and on the kernel's ext4 with a twin of the image:
//! every call returns the same, and callers see the same.
//!
//! `DRYSTONE_SEQUENCES=n` is how many sequences of each profile are tried on each transport,
//! `DRYSTONE_SEED` where they start; `./dev differential` sets both.
#![allow(clippy::unwrap_used)]

mod access_times;
mod mounted;

use drystone_testkit::comparison::Tolerance;
use drystone_testkit::environment::number;
use drystone_testkit::host::{become_root_without_umask, check_directories};
use drystone_testkit::judges::{FeatureSet, Scratch, e2fsck_check, have, kernel_mount, mke2fs};
use drystone_testkit::operations::{Action, Profile, RangeKind, Word};
use drystone_testkit::skip;
use mounted::Mounted;

const SEQUENCES_DEFAULT: u64 = 12;
const OPERATIONS: usize = 100;
const IMAGE_BYTES: u64 = 1 << 30;
/// Sequences that leave room for those that come after them on the same images.
const SEQUENCES_PER_IMAGE: u64 = 200;

/// What the kernel lets a FUSE server answer; the rest it answers by itself.
fn reaches_a_server(action: &Action) -> bool {
    match action {
        Action::Range { kind, .. } => !matches!(kind, RangeKind::Collapse | RangeKind::Insert),
        // A change of nothing, which takes set-id bits away elsewhere.
        Action::ChangeOwner { user, group, .. } => user.is_some() || group.is_some(),
        // It doesn't know what is immutable.
        Action::Access { bits, .. } => bits & 2 == 0,
        Action::RemoveXattr { name, .. } => *name != Word::from("system.posix_acl_default"),
        _ => true,
    }
}

/// True with root, `/dev/fuse` and `mke2fs`; otherwise the skip is noted.
fn can_compare() -> bool {
    skip::can_mount("a mount beside the kernel's") && have("mke2fs") && become_root_without_umask()
}

// The `fuser` library lacks requests and leaves set-id bits to the kernel, which doesn't treat them as
// ext4 does.
#[test]
fn system_calls_over_the_device_return_what_they_return_on_the_kernels_ext4() {
    compare_all("device");
}

#[test]
fn system_calls_over_rings_return_what_they_return_on_the_kernels_ext4() {
    compare_all("rings");
}

fn compare_all(transport: &str) {
    if !can_compare() {
        return;
    }
    let first = number("DRYSTONE_SEED").unwrap_or(0);
    let end = first + number("DRYSTONE_SEQUENCES").unwrap_or(SEQUENCES_DEFAULT);
    for start in (first..end).step_by(SEQUENCES_PER_IMAGE as usize) {
        compare(start..end.min(start + SEQUENCES_PER_IMAGE), transport);
    }
}

fn compare(seeds: std::ops::Range<u64>, transport: &str) {
    let scratch = Scratch::new("differential").unwrap();
    let set = FeatureSet::by_name("modern").unwrap();
    let images = ["ours.img", "theirs.img"].map(|name| scratch.join(name));
    for image in &images {
        mke2fs(image, set, IMAGE_BYTES).unwrap().expect_clean("mke2fs");
    }
    let [ours, theirs] = ["ours", "theirs"].map(|name| scratch.join(name));
    let Some(kernel) = kernel_mount(&images[1], &theirs, "nodev").unwrap() else { return };
    let options = format!("allow_other,transport={transport}");
    let Some(mounted) = Mounted::new(&images[0], &ours, &options) else { return };
    // Where the kernel finds data depends on what is in its cache.
    let tolerance = Tolerance { seek: true, full: false };
    for profile in Profile::ALL {
        let seeds = seeds.clone();
        check_directories(seeds, profile, OPERATIONS, tolerance, reaches_a_server, &ours, &theirs);
    }
    assert!(mounted.unmount());
    kernel.unmount().unwrap();
    e2fsck_check(&images[0]).unwrap().expect_clean(transport);
    eprintln!("{transport}: sequences {seeds:?} of {} profiles", Profile::ALL.len());
}
