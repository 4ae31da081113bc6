//! The conformance suite: what POSIX and Linux promise, on images of several kinds.

use crate::support::{Image, checked_image, load, open};
use drystone_sync::Arc;
use drystone_testkit::conformance;
use drystone_testkit::judges::FeatureSet;

for_sets! { check:
    default modern_1k default_64k bigalloc inline_data large_inodes ea_inode small_inodes ext2_1k
    ext3 no_huge_file no_filetype quota_project casefold no_journal
}

fn check(set: &'static FeatureSet) {
    // With clusters, a smaller image has no room for thousands of names.
    let Some(image) = Image::with_size(set, 256) else { return };
    let device = Arc::new(load(&image.path));
    let engine = open(&device);
    let failures = conformance::run_all(&engine, &set.configuration());
    let lines: Vec<_> =
        failures.iter().map(|failure| format!("{}: {}", failure.name, failure.message)).collect();
    assert!(lines.is_empty(), "{} of the promises:\n{}", lines.len(), lines.join("\n"));
    engine.close().unwrap();
    drop(engine);
    checked_image(&image.scratch, &device, "after");
}
