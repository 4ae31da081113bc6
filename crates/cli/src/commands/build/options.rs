//! The options that determine the image.

use super::parse_room;
use crate::commands::mkfs::{MadeKind, asks_for_journal, parse_percent};
use crate::size;
use drystone::{Features, Nilfs2BuildOptions};
use drystone_mkfs::JournalSize;
use drystone_mkfs::build::{Builder, Ext4BuildOptions, Size, SpareRoom};
use drystone_mkfs::verity::Verity;
use std::str::FromStr;
use uuid::Uuid;

/// What NILFS2 reserves for its log unless said.
const NILFS2_RESERVED_PERCENT: f64 = 5.0;

/// The options that determine the image.
#[derive(Debug, Default, clap::Args)]
pub struct ImageArguments {
    /// The kind of file system.
    #[arg(short = 't', long = "type", value_enum, default_value_t)]
    pub kind: MadeKind,
    /// The size of the image: 'auto', or 64M, 4G, … [default: auto, or that of a block device]
    #[arg(short, long)]
    size: Option<SizeArgument>,
    /// Free space to leave in an image of automatic size: 2G, or 20% of it.
    #[arg(long, value_name = "SIZE|PERCENT%", value_parser = parse_room)]
    free: Option<SpareRoom>,
    /// Make at least this many inodes, for later files.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    min_inodes: u32,
    /// Make the image as small as possible: the smallest journal, nothing reserved for growth.
    #[arg(long)]
    shrink: bool,
    /// Make an image that is only read: no journal, nothing reserved for growth.
    #[arg(long)]
    immutable: bool,
    /// Bytes in a block: 1K to 64K. [default: 4K]
    #[arg(short, long, value_parser = size::parse)]
    block_size: Option<u64>,
    /// Bytes in an inode: a power of two from 128 to the block size. [default: 256]
    #[arg(short = 'I', long, value_parser = size::parse)]
    inode_size: Option<u64>,
    /// Features to turn on or, with '^' in front, off; separated by commas. 'drystone mkfs --help' lists them.
    #[arg(short = 'O', long, value_delimiter = ',')]
    features: Vec<String>,
    /// The label, of up to 16 bytes; 80 for NILFS2.
    #[arg(short = 'L', long)]
    label: Option<String>,
    /// The UUID. [default: derived from the files]
    #[arg(short = 'U', long)]
    uuid: Option<Uuid>,
    /// Make a random UUID and hash seed.
    #[arg(long, conflicts_with_all = ["uuid", "hash_seed"])]
    random_uuid: bool,
    /// The seed of directory hashes, as a UUID. [default: derived from the files]
    #[arg(long, value_name = "UUID")]
    hash_seed: Option<Uuid>,
    /// The size of the journal; 0 for none.
    #[arg(short = 'J', long, value_parser = size::parse)]
    journal_size: Option<u64>,
    /// Percentage of the blocks to reserve for the superuser.
    /// [default: 0; 5 for NILFS2, which reserves them for its log]
    #[arg(short = 'm', long, value_name = "PERCENT", value_parser = parse_percent)]
    reserved_percent: Option<f64>,
    /// Blocks in a segment of NILFS2: a power of two from 16. [default: 256 to 2048, by the size]
    #[arg(short = 'B', long)]
    blocks_per_segment: Option<u32>,
    /// The creation time in seconds since 1970. [default: SOURCE_DATE_EPOCH, else the latest time of
    /// a file]
    #[arg(long, value_name = "SECONDS")]
    timestamp: Option<u64>,
    /// Append a hash tree for dm-verity, and print the root hash.
    #[arg(long)]
    verity_hash: bool,
}

/// What `--size` may be.
#[derive(Clone, Copy, Debug)]
enum SizeArgument {
    Auto,
    Bytes(u64),
}

impl FromStr for SizeArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<SizeArgument, String> {
        match text {
            "auto" => Ok(SizeArgument::Auto),
            _ => size::parse(text).map(SizeArgument::Bytes),
        }
    }
}

impl ImageArguments {
    /// The builder's options, for a device of this size if it is one.
    pub fn build_options(
        &self,
        device_bytes: Option<u64>,
        epoch: Option<u64>,
    ) -> Result<Ext4BuildOptions, String> {
        if self.blocks_per_segment.is_some() {
            return Err("ext4 has no --blocks-per-segment".to_string());
        }
        let keeps_size = !self.immutable && !self.shrink;
        let size = self.size(device_bytes, keeps_size)?;
        let mut options = Ext4BuildOptions::default().size(size);
        options.block_size = narrow(self.block_size, "--block-size")?;
        options.inode_size = narrow(self.inode_size, "--inode-size")?;
        if self.immutable {
            options.set_read_only();
        }
        if self.shrink {
            options.set_smallest();
        }
        match self.journal_size {
            Some(0) => options.features = changed(options.features, "^has_journal")?,
            Some(bytes) => options.journal_size = JournalSize::Bytes(bytes),
            None if asks_for_journal(&self.features) => {
                options.journal_size = JournalSize::Required;
            }
            None => {}
        }
        options.features = changed(options.features, &self.features.join(","))?;
        options.inodes_min = self.min_inodes;
        options.label = self.label.clone().unwrap_or_default().into_bytes();
        let random = || self.random_uuid.then(Uuid::new_v4);
        options.uuid = self.uuid.or_else(random).map(Uuid::into_bytes);
        options.hash_seed = self.hash_seed.or_else(random).map(|seed| {
            let words = seed.into_bytes();
            [0, 4, 8, 12].map(|at| {
                u32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]])
            })
        });
        options.reserved_percent = self.reserved_percent.unwrap_or(0.0);
        options.time_seconds = self.timestamp.or(epoch);
        Ok(options)
    }

    /// The builder's options for NILFS2.
    pub fn nilfs2_options(
        &self,
        device_bytes: Option<u64>,
        epoch: Option<u64>,
        threads: usize,
    ) -> Result<Nilfs2BuildOptions, String> {
        for (given, name) in [
            (self.immutable, "--immutable"),
            (self.min_inodes > 0, "--min-inodes"),
            (self.shrink, "--shrink"),
            (self.inode_size.is_some(), "--inode-size"),
            (!self.features.is_empty(), "--features"),
            (self.journal_size.is_some(), "--journal-size"),
            // It would hide the second superblock, which is at the end of the device.
            (self.verity_hash, "--verity-hash"),
        ] {
            if given {
                return Err(format!("NILFS2 has no {name}"));
            }
        }
        let reserved = self.reserved_percent.unwrap_or(NILFS2_RESERVED_PERCENT);
        if reserved.fract() != 0.0 || reserved < 1.0 {
            return Err("NILFS2 reserves 1 to 50 percent, in whole numbers".to_string());
        }
        let size = self.size(device_bytes, true)?;
        match (size, device_bytes) {
            (Size::Fixed(bytes), Some(device)) if bytes != device => {
                return Err(format!("NILFS2 has to fill the device, which has {device} bytes"));
            }
            (Size::Auto(_), Some(_)) => {
                return Err("NILFS2 has to fill the device: leave --free away".to_string());
            }
            _ => {}
        }
        let random = || self.random_uuid.then(Uuid::new_v4);
        Ok(Nilfs2BuildOptions::default()
            .size(size)
            .block_size(narrow(self.block_size, "--block-size")?)
            .blocks_per_segment(self.blocks_per_segment)
            .reserved_percent(reserved as u32)
            .label(self.label.clone().unwrap_or_default().into_bytes())
            .uuid(self.uuid.or_else(random))
            .seed(self.hash_seed.or_else(random).map(|seed| seed.as_fields().0))
            .time_seconds(self.timestamp.or(epoch))
            .threads(threads))
    }

    /// How large the image becomes. `keeps_size` if it fills a device unless said otherwise.
    fn size(&self, device_bytes: Option<u64>, keeps_size: bool) -> Result<Size, String> {
        let size = match (self.size, device_bytes) {
            (Some(SizeArgument::Bytes(bytes)), Some(device)) if bytes > device => {
                return Err(format!("--size {bytes}: the device has {device} bytes"));
            }
            (Some(SizeArgument::Bytes(bytes)), _) => Size::Fixed(bytes),
            (None, Some(bytes)) if self.free.is_none() && keeps_size => Size::Fixed(bytes),
            _ => Size::Auto(self.free.unwrap_or(SpareRoom::Bytes(0))),
        };
        if matches!(size, Size::Fixed(_)) && self.free.is_some() {
            return Err("--free is for an automatic size: leave --size away".to_string());
        }
        Ok(size)
    }

    /// The hash tree, if one is asked for.
    pub fn verity(&self, builder: &Builder<'_>) -> Option<Verity> {
        self.verity_hash.then(|| Verity::new(builder.size_bytes(), builder.uuid()))
    }
}

/// The time that reproducible builds use as now.
pub fn source_date_epoch() -> Result<Option<u64>, String> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) if !text.is_empty() => text
            .parse()
            .map(Some)
            .map_err(|_| format!("SOURCE_DATE_EPOCH is '{text}', which isn't a number of seconds")),
        _ => Ok(None),
    }
}

fn changed(features: Features, list: &str) -> Result<Features, String> {
    let change = Features::parse(list).map_err(|error| error.to_string())?;
    Ok(features.apply(&change))
}

fn narrow<T: TryFrom<u64>>(value: Option<u64>, name: &str) -> Result<Option<T>, String> {
    value
        .map(|value| T::try_from(value).map_err(|_| format!("{name} {value} is too large")))
        .transpose()
}
