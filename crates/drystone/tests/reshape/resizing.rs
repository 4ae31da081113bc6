//! Sizes.

use crate::support::Sample;
use drystone::reshape::NewSize;
use drystone::{ChangeOptions, Error, resize_image};
use drystone_testkit::judges::run;

const MIB: u64 = 1 << 20;

impl Sample {
    fn resize(&self, size: NewSize) -> Result<u64, Error> {
        let resized = resize_image(&self.path(), size, &ChangeOptions::default(), &mut |_| {})?;
        assert_eq!(self.field("Block count"), resized.blocks.to_string());
        let bytes = resized.blocks * u64::from(resized.block_size);
        assert_eq!(self.path().metadata().unwrap().len(), bytes);
        Ok(bytes)
    }
}

/// Each set is one with another way to place descriptors and metadata.
#[test]
fn images_grow() {
    for (name, sizes) in [
        // Within the reserve, and beyond it.
        ("default", &[20, 129, 700][..]),
        ("default-1k", &[17, 90, 600]),
        ("no-resize-inode", &[100, 400]),
        ("meta-bg-1k", &[40, 100]),
        ("no-flex-bg", &[40, 100]),
        ("sparse-super2", &[40, 200]),
        ("no-sparse-super", &[40, 100]),
        ("ext2-1k", &[40, 300]),
        ("bigalloc-1k", &[100, 300]),
        ("group-checksums", &[200]),
    ] {
        let Some(sample) = Sample::new(name, 16) else { return };
        sample.fill(3, 40);
        let before = sample.tree();
        for size in sizes {
            let bytes = sample.resize(NewSize::Exactly(size * MIB)).unwrap();
            assert!(bytes <= size * MIB && bytes >= size * MIB * 9 / 10, "{name} {size}: {bytes}");
            sample.judge(&format!("grown to {size} MiB"), &before);
        }
        // What is new can be used.
        sample.fill(4, 60);
        let after = sample.tree();
        sample.judge("filled", &after);
    }
}

#[test]
fn an_image_grows_beyond_what_is_reserved() {
    // With so few descriptors to a block the reserve is soon used up.
    let Some(sample) = Sample::new("meta-bg-1k", 16) else { return };
    let before = sample.tree();
    sample.resize(NewSize::More(2000 * MIB)).unwrap();
    sample.judge("2 GiB", &before);
    let Some(sample) = Sample::new("no-resize-inode", 16) else { return };
    let before = sample.tree();
    sample.resize(NewSize::Exactly(3000 * MIB)).unwrap();
    assert!(sample.field("Filesystem features").contains("meta_bg"));
    sample.judge("3 GiB", &before);
}

#[test]
fn images_shrink() {
    for (name, from, to) in [
        ("default", 300, 40),
        ("default-1k", 64, 17),
        ("modern", 200, 30),
        ("no-resize-inode", 64, 20),
        ("meta-bg-1k", 64, 20),
        ("no-flex-bg", 40, 12),
        ("sparse-super2-1k", 40, 12),
        ("no-sparse-super", 40, 14),
        ("ext2-1k", 64, 12),
        ("ext3", 300, 30),
        ("quota-project", 64, 20),
        ("ea-inode", 300, 40),
        ("inline-data-1k", 64, 20),
        ("group-checksums", 300, 30),
        ("bigalloc-1k", 500, 200),
    ] {
        let Some(sample) = Sample::new(name, from) else { return };
        // Directories spread over the groups.
        for seed in 0..3 {
            sample.fill(seed, 60);
        }
        let before = sample.tree();
        let bytes = sample.resize(NewSize::Exactly(to * MIB)).unwrap();
        assert!(bytes <= to * MIB, "{name}: {bytes}");
        sample.judge("shrunk", &before);
        sample.fill(7, 60);
        let after = sample.tree();
        sample.judge("filled", &after);
        let bytes = sample.resize(NewSize::Exactly(from * MIB)).unwrap();
        assert!(bytes > to * MIB, "{name}: {bytes}");
        sample.judge("grown again", &after);
    }
}

#[test]
fn the_minimum_is_no_larger_than_that_of_resize2fs() {
    for name in ["default", "default-1k", "no-flex-bg", "ext3", "meta-bg-1k"] {
        let Some(sample) = Sample::new(name, 200) else { return };
        for seed in 0..3 {
            sample.fill(seed, 60);
        }
        let before = sample.tree();
        let other = sample.beside("other.img");
        std::fs::copy(sample.path(), &other).unwrap();
        let done = run("resize2fs", ["-f", "-M", other.to_str().unwrap()]).unwrap();
        done.expect_clean("resize2fs");
        let bytes = sample.resize(NewSize::Minimum).unwrap();
        let theirs = other.metadata().unwrap().len();
        assert!(bytes <= theirs + theirs / 100, "{name}: {bytes}, resize2fs {theirs}");
        sample.judge("the minimum", &before);
    }
}
