//! Kinds of images that Drystone has to read and write, as `mke2fs` makes them.

use crate::model::Configuration;
use crate::operations::Profile;

/// How a kernel mounts a kind of image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelSupport {
    /// Doesn't mount it.
    Refuses,
    /// Mounts it read-only.
    Reads,
    /// Mounts it.
    Writes,
}

/// One kind of image.
#[derive(Clone, Copy, Debug)]
pub struct FeatureSet {
    /// A short name.
    pub name: &'static str,
    /// Arguments of `mke2fs`.
    pub arguments: &'static str,
    /// Arguments of `tune2fs`, run afterwards; none if empty.
    pub tune: &'static str,
    /// Bytes in a block.
    pub block_size: u32,
    /// Bytes in an allocation unit.
    pub cluster_size: u32,
    /// Files map their content with extents.
    pub extents: bool,
    /// Bytes in an inode.
    pub inode_size: u32,
    /// How the kernel of the development machine (6.18, pages of 4 KiB, no quotas, no Unicode
    /// tables) mounts it.
    pub kernel: KernelSupport,
    /// The smallest image, in MiB.
    pub size_mib_min: u64,
}

const BASE: FeatureSet = FeatureSet {
    name: "",
    arguments: "",
    tune: "",
    block_size: 4096,
    cluster_size: 4096,
    extents: true,
    inode_size: 256,
    kernel: KernelSupport::Writes,
    size_mib_min: 16,
};

const fn set(name: &'static str, block_size: u32, arguments: &'static str) -> FeatureSet {
    FeatureSet { name, arguments, block_size, cluster_size: block_size, ..BASE }
}

/// Each feature that Drystone writes occurs at least twice.
pub const FEATURE_SETS: &[FeatureSet] = &[
    set("default", 4096, "-t ext4 -b 4096"),
    set("default-1k", 1024, "-t ext4 -b 1024"),
    set("default-2k", 2048, "-t ext4 -b 2048"),
    FeatureSet {
        size_mib_min: 256,
        kernel: KernelSupport::Refuses,
        ..set("default-64k", 65536, "-t ext4 -b 65536")
    },
    set("modern", 4096, "-t ext4 -b 4096 -O orphan_file,metadata_csum_seed"),
    set("modern-1k", 1024, "-t ext4 -b 1024 -O orphan_file,metadata_csum_seed,stable_inodes"),
    FeatureSet {
        size_mib_min: 256,
        kernel: KernelSupport::Refuses,
        ..set("modern-64k", 65536, "-t ext4 -b 65536 -O orphan_file,metadata_csum_seed,large_dir")
    },
    FeatureSet {
        cluster_size: 65536,
        size_mib_min: 64,
        ..set("bigalloc", 4096, "-t ext4 -b 4096 -O bigalloc -C 65536")
    },
    FeatureSet {
        cluster_size: 16384,
        size_mib_min: 64,
        ..set("bigalloc-1k", 1024, "-t ext4 -b 1024 -O bigalloc,orphan_file -C 16384")
    },
    set("inline-data", 4096, "-t ext4 -b 4096 -O inline_data"),
    FeatureSet {
        inode_size: 512,
        ..set("inline-data-1k", 1024, "-t ext4 -b 1024 -I 512 -O inline_data,ea_inode")
    },
    FeatureSet {
        inode_size: 1024,
        ..set("large-inodes", 4096, "-t ext4 -b 4096 -I 1024 -O inline_data,encrypt")
    },
    FeatureSet {
        inode_size: 512,
        ..set("medium-inodes", 2048, "-t ext4 -b 2048 -I 512 -O verity")
    },
    FeatureSet {
        inode_size: 1024,
        ..set("large-inodes-1k", 1024, "-t ext4 -b 1024 -I 1024 -O ea_inode")
    },
    set("meta-bg", 4096, "-t ext4 -b 4096 -O meta_bg,^resize_inode"),
    set("meta-bg-1k", 1024, "-t ext4 -b 1024 -O meta_bg,^resize_inode,^flex_bg -g 1024"),
    set("large-dir", 1024, "-t ext4 -b 1024 -O large_dir,ea_inode"),
    set("ea-inode", 4096, "-t ext4 -b 4096 -O ea_inode,large_dir"),
    FeatureSet { kernel: KernelSupport::Reads, ..set("quota", 4096, "-t ext4 -b 4096 -O quota") },
    FeatureSet {
        kernel: KernelSupport::Reads,
        ..set(
            "quota-project",
            1024,
            "-t ext4 -b 1024 -O quota,project -E quotatype=usrquota:grpquota:prjquota",
        )
    },
    FeatureSet {
        kernel: KernelSupport::Reads,
        ..set("project", 4096, "-t ext4 -b 4096 -O project,quota -E quotatype=prjquota")
    },
    FeatureSet {
        kernel: KernelSupport::Refuses,
        ..set("casefold", 4096, "-t ext4 -b 4096 -O casefold -E encoding=utf8")
    },
    FeatureSet {
        kernel: KernelSupport::Refuses,
        ..set(
            "casefold-strict",
            1024,
            "-t ext4 -b 1024 -O casefold -E encoding=utf8,encoding_flags=strict",
        )
    },
    set("mmp", 4096, "-t ext4 -b 4096 -O mmp"),
    set("mmp-1k", 1024, "-t ext4 -b 1024 -O mmp,uninit_bg,^metadata_csum"),
    set("no-journal", 4096, "-t ext4 -b 4096 -O ^has_journal"),
    set("no-journal-orphan-file", 1024, "-t ext4 -b 1024 -O ^has_journal,^orphan_file"),
    FeatureSet {
        inode_size: 128,
        ..set("small-inodes", 4096, "-t ext4 -b 4096 -I 128 -O ^extra_isize")
    },
    FeatureSet {
        inode_size: 128,
        ..set("small-inodes-1k", 1024, "-t ext4 -b 1024 -I 128 -O ^extra_isize,^large_file")
    },
    FeatureSet { extents: false, ..set("ext2", 4096, "-t ext2 -b 4096") },
    FeatureSet {
        extents: false,
        inode_size: 128,
        ..set("ext2-1k", 1024, "-t ext2 -b 1024 -I 128")
    },
    FeatureSet { extents: false, ..set("ext3", 4096, "-t ext3 -b 4096") },
    FeatureSet { extents: false, ..set("ext3-1k", 1024, "-t ext3 -b 1024") },
    FeatureSet { extents: false, ..set("block-maps", 2048, "-t ext4 -b 2048 -O ^extent,^64bit") },
    set("no-checksums", 4096, "-t ext4 -b 4096 -O ^metadata_csum,^uninit_bg"),
    set("group-checksums", 4096, "-t ext4 -b 4096 -O ^metadata_csum,uninit_bg"),
    set("group-checksums-64bit", 1024, "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,64bit"),
    set("32bit", 4096, "-t ext4 -b 4096 -O ^64bit"),
    set("no-flex-bg", 1024, "-t ext4 -b 1024 -O ^flex_bg,^64bit -g 2048"),
    set("no-flex-bg-4k", 4096, "-t ext4 -b 4096 -O ^flex_bg -g 1024"),
    set(
        "sparse-super2",
        4096,
        "-t ext4 -b 4096 -O sparse_super2,^sparse_super,^resize_inode -g 1024",
    ),
    set("sparse-super2-1k", 1024, "-t ext4 -b 1024 -O sparse_super2,^resize_inode -g 1024"),
    set("no-sparse-super", 1024, "-t ext4 -b 1024 -O ^sparse_super,^resize_inode -g 2048"),
    set("verity-encrypt", 4096, "-t ext4 -b 4096 -O verity,encrypt,stable_inodes"),
    set("no-huge-file", 4096, "-t ext4 -b 4096 -O ^huge_file,^dir_nlink"),
    set("no-huge-file-1k", 1024, "-t ext4 -b 1024 -O ^huge_file,^dir_nlink,^extra_isize"),
    set("no-filetype", 4096, "-t ext4 -b 4096 -O ^filetype,^dir_index"),
    FeatureSet {
        extents: false,
        ..set("no-filetype-ext2", 1024, "-t ext2 -b 1024 -O ^filetype,^dir_index")
    },
    set("no-dir-index", 1024, "-t ext4 -b 1024 -O ^dir_index"),
    set("no-resize-inode", 1024, "-t ext4 -b 1024 -O ^resize_inode"),
    FeatureSet { tune: "-E hash_alg=tea", ..set("hash-tea", 1024, "-t ext4 -b 1024") },
    FeatureSet {
        tune: "-E hash_alg=tea",
        ..set("hash-tea-4k", 4096, "-t ext4 -b 4096 -O orphan_file")
    },
    FeatureSet { tune: "-E hash_alg=legacy", ..set("hash-legacy", 1024, "-t ext4 -b 1024") },
    FeatureSet {
        tune: "-E hash_alg=legacy",
        ..set("hash-legacy-4k", 4096, "-t ext4 -b 4096 -O large_dir")
    },
    set("flex-bg-wide", 1024, "-t ext4 -b 1024 -G 64 -g 512"),
    set("small-journal", 1024, "-t ext4 -b 1024 -J size=1"),
    set("fast-commit", 4096, "-t ext4 -b 4096 -O fast_commit"),
];

impl FeatureSet {
    /// The set of a name.
    pub fn by_name(name: &str) -> Option<&'static FeatureSet> {
        FEATURE_SETS.iter().find(|set| set.name == name)
    }

    /// True if the arguments mention a feature or type.
    pub fn mentions(&self, word: &str) -> bool {
        self.arguments.split([' ', ',']).any(|argument| argument == word)
    }

    /// A profile whose attributes always fit. A value that fills most of a block would leave no room for
    /// an access control list (the kernel refuses that too), so large values are larger than a block.
    pub fn with_fitting_xattrs(&self, profile: Profile) -> Profile {
        let is_small = self.block_size == 1024;
        Profile {
            xattr_value_max: if is_small { 50 } else { 200 },
            xattr_values_large: self.mentions("ea_inode").then_some(self.block_size..20_001),
            ..profile
        }
    }

    /// The limits with which the model matches such an image.
    pub fn configuration(&self) -> Configuration {
        let base = Configuration::with_block_size(self.block_size);
        let configuration = Configuration {
            cluster_size: self.cluster_size,
            extents: self.extents,
            directory_links_unlimited: !self.is_old() && !self.mentions("^dir_nlink"),
            projects: self.mentions("project"),
            file_size_max: self.file_size_max(),
            xattr_value_max: match self.mentions("ea_inode") {
                true => base.xattr_value_max,
                false => base.xattr_value_max.min(self.block_size as usize),
            },
            ..base
        };
        if self.inode_size == 128 { configuration.with_small_inodes() } else { configuration }
    }

    fn is_old(&self) -> bool {
        self.mentions("ext2") || self.mentions("ext3")
    }

    /// The largest size of a file, as observed with the kernel. Where the sector count sets no limit
    /// it follows from the kind of map.
    fn file_size_max(&self) -> u64 {
        let huge = !self.is_old() && !self.mentions("^huge_file");
        let block_size = u64::from(self.block_size);
        match (self.extents, huge, block_size) {
            (false, false, 4096) => 2_196_873_666_560,
            (true, false, 4096) => 2_199_023_251_456,
            (true, false, 1024) => 2_199_023_254_528,
            (false, ..) => {
                let pointers = block_size / 4;
                (12 + pointers + pointers.pow(2) + pointers.pow(3)) * block_size
            }
            (true, ..) => Configuration::with_block_size(self.block_size).file_size_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernel::{can_mount, kernel_mounts};
    use super::super::{Scratch, e2fsck_check, have, mke2fs};
    use super::*;
    use crate::skip::{Prerequisite, skip};

    /// Every set can be made, is clean, and the kernel mounts it at least as the table says.
    #[test]
    fn sets_are_what_the_table_says() {
        if !have("mke2fs") {
            return;
        }
        let scratch = Scratch::new("feature-sets").unwrap();
        let mut problems = Vec::new();
        let has_kernel = can_mount().unwrap();
        if !has_kernel {
            skip(Prerequisite::LoopMounts, "what the kernel does with each set");
        }
        for set in FEATURE_SETS {
            let image = scratch.join(set.name);
            let made = mke2fs(&image, set, set.size_mib_min << 20).unwrap();
            if !made.is_clean() {
                problems.push(format!("{}: mke2fs: {}", set.name, made.output));
                continue;
            }
            let checked = e2fsck_check(&image).unwrap();
            if !checked.is_clean() {
                problems.push(format!("{}: e2fsck: {}", set.name, checked.output));
            }
            if has_kernel {
                let mount =
                    |options| kernel_mounts(&image, &scratch.join("mount"), options).unwrap();
                let found = match () {
                    () if mount("") => KernelSupport::Writes,
                    () if mount("ro") => KernelSupport::Reads,
                    () => KernelSupport::Refuses,
                };
                // Other kernels may know more.
                if found < set.kernel {
                    problems.push(format!("{}: the kernel {found:?}", set.name));
                }
            }
            std::fs::remove_file(&image).unwrap();
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    #[test]
    fn names_are_unique() {
        for (index, set) in FEATURE_SETS.iter().enumerate() {
            assert!(FEATURE_SETS[..index].iter().all(|other| other.name != set.name));
        }
    }
}
