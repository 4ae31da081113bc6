//! The images that are damaged.

use drystone_testkit::judges::{SMALL_IMAGES, SmallImage};

/// An image as mke2fs makes it by default.
const DEFAULT: SmallImage =
    SmallImage { name: "default", arguments: "-t ext4 -b 4096 -g 2048", size_mib: 16, names: 80 };

/// The sizes, and what else gives the small images a second group, and with it a copy of the superblock: one
/// without a copy is lost with a single fault.
const ROOMS: [(&str, &str, u64); 7] = [
    ("modern", "", 12),
    ("attribute-inodes", " -g 2048", 16),
    ("bigalloc-quota", " -g 512", 16),
    ("inline", "", 12),
    ("ext3", "", 12),
    ("group-checksums", "", 8),
    ("ext2", "", 8),
];

/// All sets: with blocks of 1 and 4 KiB, with and without extents, checksums, clusters, inline data.
pub fn all() -> Vec<SmallImage> {
    let set = |(name, more, size_mib): &(&'static str, &str, u64)| {
        let set = SMALL_IMAGES.iter().find(|set| set.name == *name).unwrap();
        let arguments = set.arguments.to_owned() + more;
        SmallImage { name, arguments: arguments.leak(), size_mib: *size_mib, names: set.names }
    };
    [DEFAULT].into_iter().chain(ROOMS.iter().map(set)).collect()
}
