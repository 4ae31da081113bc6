//! `mkfs`: makes an image.

use crate::arguments::Global;
use crate::failure::{Failure, Outcome};
use crate::size;
use anyhow::anyhow;
use std::path::PathBuf;

/// Make an image
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Without options the image is what mke2fs makes, with the orphan file and a stored checksum seed. \
It is sparse: it takes little space until it is filled.

Examples:
  drystone mkfs disk.img --size 4G
  drystone mkfs root.img --size 512M --label root --reserved-percent 0
  drystone mkfs small.img --size 8M --features ^has_journal --block-size 1K
  drystone mkfs same.img --size 1G --uuid 12345678-1234-4234-8234-123456789abc --timestamp 0")]
pub struct Arguments {
    /// The file to make, or a block device.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The size of the file system: 64M, 4G, … [default: that of the existing file or device]
    #[arg(short, long, value_parser = size::parse)]
    size: Option<u64>,
    /// Make it even if there is a file system already.
    #[arg(short, long)]
    force: bool,
    /// Bytes in a block: 1K to 64K. [default: 4K, 1K for images below 512M]
    #[arg(short, long, value_parser = size::parse)]
    block_size: Option<u64>,
    /// Bytes in an inode: 128 to 1024.
    #[arg(short = 'I', long, value_parser = size::parse)]
    inode_size: Option<u64>,
    /// One inode for each so many bytes.
    #[arg(short = 'i', long, value_parser = size::parse, conflicts_with = "inodes")]
    bytes_per_inode: Option<u64>,
    /// How many inodes at least.
    #[arg(short = 'N', long)]
    inodes: Option<u64>,
    /// Features to turn on, and with '^' before them off, separated by commas.
    #[arg(short = 'O', long, value_delimiter = ',')]
    features: Vec<String>,
    /// A name of up to 16 bytes.
    #[arg(short = 'L', long)]
    label: Option<String>,
    /// The UUID. [default: a random one]
    #[arg(short = 'U', long)]
    uuid: Option<String>,
    /// The size of the journal; 0 for none.
    #[arg(short = 'J', long, value_parser = size::parse)]
    journal_size: Option<u64>,
    /// Blocks that only the superuser may use, in percent.
    #[arg(short = 'm', long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=50))]
    reserved_percent: u8,
    /// The seed of directory hashes, as a UUID. [default: a random one]
    #[arg(long)]
    hash_seed: Option<String>,
    /// The time of creation, in seconds since 1970; with --uuid and --hash-seed the image is the
    /// same each time. [default: now]
    #[arg(long, allow_hyphen_values = true)]
    timestamp: Option<i64>,
}

pub fn run(arguments: &Arguments, _global: &Global) -> Outcome {
    if arguments.size.is_none() && !arguments.image.exists() {
        return Err(Failure::Usage("--size is needed for an image that isn't there".to_string()));
    }
    Err(anyhow!("{}: this build has no image builder", arguments.image.display()).into())
}
