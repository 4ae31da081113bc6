//! Empty images of the kinds that matter to crashes.

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::Policy;
use drystone_ext4_format::features::ReadOnlyCompat;
use drystone_mkfs::{JournalSize, MkfsOptions, make};
use drystone_testkit::judges::{Scratch, run};
use drystone_testkit::model::Configuration;

/// What makes an image.
#[derive(Clone, Copy, Debug)]
pub enum Maker {
    /// `mke2fs` with these arguments.
    Mke2fs(&'static str),
    /// Drystone's own, with this block size.
    Own(u32),
}

/// An image before a workload.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub name: &'static str,
    pub maker: Maker,
    pub block_size: u32,
    /// The unit of allocation.
    pub cluster_size: u32,
    pub mebibytes: u64,
    /// Has extents: ranges can be collapsed, and so on.
    pub extents: bool,
    /// Leave only so many blocks free, so that freed blocks are soon reused.
    pub blocks_left: Option<u64>,
    /// Which variant of each mechanism the workload uses; recovery uses the default.
    pub policy: Policy,
    /// With delayed allocation, if the image can have it.
    pub delayed: bool,
}

const fn mke2fs(name: &'static str, block_size: u32, arguments: &'static str) -> Shape {
    Shape {
        name,
        maker: Maker::Mke2fs(arguments),
        block_size,
        cluster_size: block_size,
        mebibytes: 8,
        extents: true,
        blocks_left: None,
        policy: Policy::SCALABLE,
        delayed: true,
    }
}

/// Orphans in the list, small blocks: directories split early.
pub const LIST: Shape = mke2fs("list", 1024, "-t ext4 -b 1024 -O ^orphan_file");
/// Orphans in the file.
pub const FILE: Shape = mke2fs("file", 1024, "-t ext4 -b 1024 -O orphan_file");
pub const LARGE_BLOCKS: Shape =
    Shape { mebibytes: 16, ..mke2fs("large blocks", 4096, "-t ext4 -b 4096 -O orphan_file") };
/// Block maps.
pub const EXT3: Shape = Shape { extents: false, ..mke2fs("ext3", 1024, "-t ext3 -b 1024") };
pub const INLINE: Shape = mke2fs("inline", 1024, "-t ext4 -b 1024 -O inline_data,orphan_file");
pub const BIGALLOC: Shape =
    Shape { cluster_size: 8192, ..mke2fs("bigalloc", 1024, "-t ext4 -b 1024 -O bigalloc -C 8192") };
pub const EXTERNAL_VALUES: Shape = mke2fs("ea_inode", 1024, "-t ext4 -b 1024 -O ea_inode");
/// Journals without checksums.
pub const UNCHECKED: Shape = mke2fs("no checksums", 1024, "-t ext4 -b 1024 -O ^metadata_csum");
pub const QUOTA: Shape = mke2fs("quota", 1024, "-t ext4 -b 1024 -O quota,orphan_file");
pub const PROJECTS: Shape = mke2fs(
    "projects",
    1024,
    "-t ext4 -b 1024 -I 256 -O quota,project,orphan_file \
     -E quotatype=usrquota:grpquota:prjquota",
);
pub const OWN: Shape = Shape { name: "own", maker: Maker::Own(1024), ..LIST };
/// Freed blocks are reused as soon as that is allowed.
pub const CROWDED: Shape = Shape { name: "crowded", blocks_left: Some(470), ..FILE };
/// Every write gets its blocks at once.
pub const AT_ONCE: Shape = Shape { name: "at once", delayed: false, ..FILE };
/// A few files fill these.
pub const FULL: Shape = Shape { name: "full", blocks_left: Some(300), ..FILE };
pub const FULL_AT_ONCE: Shape = Shape { name: "full at once", delayed: false, ..FULL };
pub const FULL_BLOCK_MAPS: Shape =
    Shape { name: "full with block maps", blocks_left: Some(300), ..EXT3 };
pub const FULL_CLUSTERS: Shape =
    Shape { name: "full with clusters", blocks_left: Some(600), ..BIGALLOC };
pub const NO_JOURNAL: Shape = mke2fs("no journal", 1024, "-t ext4 -b 1024 -O ^has_journal");

impl Shape {
    /// The limits of the model.
    pub fn configuration(&self) -> Configuration {
        Configuration {
            extents: self.extents,
            cluster_size: self.cluster_size,
            ..Configuration::with_block_size(self.block_size)
        }
    }

    /// An empty image with a journal of 1,024 blocks; `None` if `mke2fs` is missing.
    pub fn make(&self) -> Option<MemoryDevice> {
        match self.maker {
            Maker::Own(block_size) => Some(self.make_own(block_size)),
            Maker::Mke2fs(arguments) => {
                if !drystone_testkit::judges::have("mke2fs") {
                    return None;
                }
                let scratch = Scratch::new("crash").unwrap();
                let path = scratch.join("image");
                let size = format!("{}M", self.mebibytes);
                let journal = if arguments.contains("^has_journal") {
                    vec![]
                } else {
                    vec!["-J".to_owned(), format!("size={}", self.block_size >> 10)]
                };
                let fixed = ["-q", "-F", "-m", "0", "-N", "1024"].map(str::to_owned);
                let arguments = arguments.split_whitespace().map(str::to_owned).chain(fixed);
                let place = [path.to_str().unwrap().to_owned(), size];
                let made = run("mke2fs", arguments.chain(journal).chain(place)).unwrap();
                made.expect_clean(self.name);
                Some(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()))
            }
        }
    }

    fn make_own(&self, block_size: u32) -> MemoryDevice {
        let device = MemoryDevice::new(self.mebibytes << 20);
        let mut options =
            MkfsOptions::new(device.size_bytes(), [7; 16], [1, 2, 3, 4], 1_700_000_000);
        options.block_size = Some(block_size);
        options.journal_size = JournalSize::Bytes(1024 * u64::from(block_size));
        options.reserved_percent = 0.0;
        assert!(options.features.read_only_compat.contains(ReadOnlyCompat::METADATA_CSUM));
        make(&device, &options, true).unwrap();
        device
    }
}
