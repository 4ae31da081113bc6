//! `mkfs`: makes an image.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::{AtImage, reason};
use crate::interrupt::Interrupt;
use crate::messages::tell;
use crate::output::counted;
use crate::size;
use crate::terminal::print_line;
use anyhow::anyhow;
use drystone::mkfs::{Error, ImageSummary, JournalSize, MkfsOptions};
use drystone::{ErrorCause, Features, Information, Nilfs2MakeOptions, VolumeName, make_image};
use serde::Serialize;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Make an image
#[derive(Debug, Default, clap::Args)]
#[command(
    override_usage = "drystone mkfs [OPTIONS] <IMAGE> --size <SIZE>",
    after_help = "\
Without options the image has the features that mke2fs turns on, and orphan_file and \
metadata_csum_seed. The file is sparse: it takes little space until it is filled.

Features: has_journal, ext_attr, dir_index, resize_inode, sparse_super2, fast_commit, stable_inodes, \
orphan_file, filetype, meta_bg, extent, 64bit, mmp, flex_bg, ea_inode, metadata_csum_seed, large_dir, \
inline_data, encrypt, casefold, sparse_super, large_file, huge_file, uninit_bg, dir_nlink, extra_isize, quota, \
bigalloc, metadata_csum, project and verity.

Examples:
  drystone mkfs disk.img --size 4G
  drystone mkfs root.img --size 512M --label root --reserved-percent 0
  drystone mkfs small.img --size 8M --features ^has_journal --block-size 1K
  drystone mkfs nilfs.img --type nilfs2 --size 1G --blocks-per-segment 256
  drystone mkfs whole.img#home --label home
  drystone mkfs same.img --size 1G --timestamp 0 --uuid 12345678-1234-4234-8234-123456789abc \
--hash-seed 12345678-1234-4234-8234-123456789abd"
)]
pub struct Arguments {
    /// The file to make (raw, or qcow2 by its name), a block device, nbd://…, rbd:POOL/IMAGE, or a partition of
    /// one (IMAGE#NUMBER).
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The kind of file system.
    #[arg(short = 't', long = "type", value_enum, default_value_t)]
    kind: MadeKind,
    /// The size of the file system: 64M, 4G, … [default: that of the existing file or device]
    #[arg(short, long, value_parser = size::parse)]
    size: Option<u64>,
    /// Overwrite a file or device that isn't empty.
    #[arg(short, long)]
    force: bool,
    /// Bytes in a block: 1K to 64K. [default: 4K, 1K for images below 512M]
    #[arg(short, long, value_parser = size::parse)]
    block_size: Option<u64>,
    /// Bytes in a cluster; needs the feature bigalloc.
    #[arg(short = 'C', long, value_parser = size::parse)]
    cluster_size: Option<u64>,
    /// Bytes in an inode: a power of two from 128 to the block size.
    #[arg(short = 'I', long, value_parser = size::parse)]
    inode_size: Option<u64>,
    /// Bytes of space for each inode.
    #[arg(short = 'i', long, value_parser = size::parse, conflicts_with = "inodes")]
    bytes_per_inode: Option<u64>,
    /// Make at least this many inodes.
    #[arg(short = 'N', long)]
    inodes: Option<u64>,
    /// Features to turn on or, with '^' in front, off; separated by commas.
    #[arg(short = 'O', long, value_delimiter = ',')]
    features: Vec<String>,
    /// The label, of up to 16 bytes; 80 for NILFS2.
    #[arg(short = 'L', long)]
    label: Option<String>,
    /// The UUID. [default: a random one]
    #[arg(short = 'U', long)]
    uuid: Option<String>,
    /// The size of the journal; 0 for none.
    #[arg(short = 'J', long, value_parser = size::parse)]
    journal_size: Option<u64>,
    /// Percentage of the blocks to reserve for the superuser.
    #[arg(short = 'm', long, default_value = "5", value_parser = parse_percent)]
    reserved_percent: f64,
    /// The seed of directory hashes, as a UUID. [default: a random one]
    #[arg(long)]
    hash_seed: Option<String>,
    /// Blocks in a segment of NILFS2: a power of two from 16. [default: 2048]
    #[arg(short = 'B', long)]
    blocks_per_segment: Option<u32>,
    /// The creation time in seconds since 1970. With --uuid and --hash-seed the image is the same
    /// every time. [default: now]
    #[arg(long, allow_hyphen_values = true)]
    timestamp: Option<i64>,
}

/// A kind of file system that can be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum MadeKind {
    /// Also ext2 and ext3, by their features.
    #[default]
    Ext4,
    /// A log of checkpoints.
    Nilfs2,
}

/// Whether a volume is in a file that isn't there and can be made.
fn is_missing(name: &VolumeName) -> anyhow::Result<bool> {
    let is_missing = !name.is_remote() && !name.source().exists();
    if is_missing {
        name.check_new()?;
    }
    Ok(is_missing)
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    global.check_may_change()?;
    let path = &arguments.image;
    let size_bytes = match arguments.size {
        Some(size) => size,
        None if is_missing(&VolumeName::find(path)?)? => {
            let message = "--size is needed for an image that isn't there";
            return Err(Failure::Usage(message.to_string()));
        }
        None => drystone::size_of(path).at_image(path)?,
    };
    if arguments.kind == MadeKind::Nilfs2 {
        return run_nilfs2(arguments, size_bytes, global);
    }
    if arguments.blocks_per_segment.is_some() {
        return Err(Failure::Usage("ext4 has no --blocks-per-segment".to_string()));
    }
    let options = options(arguments, size_bytes).map_err(Failure::Usage)?;
    let summary = made(path, || make_image(path, &options, arguments.force))?;
    let uuid = Uuid::from_bytes(options.uuid).to_string();
    if global.json {
        print_line(&serde_json::to_string(&MadeImageJson::new(summary, uuid))?)?;
    } else if !global.quiet {
        let journal = match summary.journal_blocks {
            0 if asks_for_journal(&options.features.names()) => {
                "no journal, for which it is too small".to_string()
            }
            0 => "no journal".to_string(),
            blocks => format!("journal of {blocks} blocks"),
        };
        print_line(&format!(
            "{}: {} blocks of {} bytes, {} inodes, {}, {journal}, UUID {uuid}",
            path.display(),
            summary.blocks,
            summary.block_size,
            summary.inodes,
            counted(summary.groups.into(), "group"),
        ))?;
    }
    Ok(())
}

/// Has `make` make an image, which takes a moment. After an interrupt, a file that it has made goes away.
fn made<T>(path: &Path, make: impl FnOnce() -> drystone::Result<T>) -> Outcome<T> {
    let is_new_file =
        |name: VolumeName| name.parts().is_empty() && !name.is_remote() && !name.source().exists();
    let is_new = VolumeName::find(path).is_ok_and(is_new_file);
    let interrupt = Interrupt::install()?;
    if !is_new {
        // What is overwritten is lost either way.
        interrupt.end_at_next();
    }
    let made = make();
    if is_new && interrupt.is_asked() && made.is_ok() {
        let _ = std::fs::remove_file(path);
        tell(format_args!("{}: interrupted; nothing was made", path.display()));
        return Err(Failure::Code(interrupt.code()));
    }
    made.map_err(|error| match error.cause() {
        ErrorCause::HoldsData => {
            anyhow!("{} isn't empty; --force overwrites it", path.display()).into()
        }
        _ => not_made(path, &error),
    })
}

/// Why an image wasn't made.
pub fn not_made(path: &Path, error: &drystone::Error) -> Failure {
    match error.cause() {
        ErrorCause::Make(Error::Option(problem)) => {
            Failure::Usage(format!("{}: {problem}", path.display()))
        }
        cause => anyhow!("{}: {}", path.display(), reason(path, cause)).into(),
    }
}

fn run_nilfs2(arguments: &Arguments, size_bytes: u64, global: &Global) -> Outcome {
    let path = &arguments.image;
    let options = nilfs2_options(arguments).map_err(Failure::Usage)?;
    options.geometry(size_bytes).map_err(|error| Failure::Usage(error.to_string()))?;
    made(path, || drystone::make_nilfs2(path, size_bytes, &options, arguments.force))?;
    let information = Information::read(path).at_image(path)?;
    if global.json {
        print_line(&serde_json::to_string(&information)?)?;
    } else if !global.quiet
        && let Information::Nilfs2(made) = information
    {
        print_line(&format!(
            "{}: {} segments of {} blocks of {} bytes, UUID {}",
            path.display(),
            made.segments,
            made.blocks_per_segment,
            made.block_size,
            made.uuid
        ))?;
    }
    Ok(())
}

/// The library's options for an image of NILFS2.
fn nilfs2_options(arguments: &Arguments) -> Result<Nilfs2MakeOptions, String> {
    for (given, name) in [
        (arguments.cluster_size.is_some(), "--cluster-size"),
        (arguments.inode_size.is_some(), "--inode-size"),
        (arguments.bytes_per_inode.is_some(), "--bytes-per-inode"),
        (arguments.inodes.is_some(), "--inodes"),
        (!arguments.features.is_empty(), "--features"),
        (arguments.journal_size.is_some(), "--journal-size"),
    ] {
        if given {
            return Err(format!("NILFS2 has no {name}"));
        }
    }
    let uuid = identity(&arguments.uuid, "UUID")?;
    let seed = identity(&arguments.hash_seed, "seed")?.as_fields().0;
    let mut options = Nilfs2MakeOptions::new(uuid, seed, time_seconds(arguments)?);
    if let Some(bytes) = narrow(arguments.block_size, "--block-size")? {
        options.block_bytes = bytes;
    }
    if let Some(blocks) = arguments.blocks_per_segment {
        options.blocks_per_segment = blocks;
    }
    if arguments.reserved_percent.fract() != 0.0 {
        return Err("NILFS2 reserves whole percents".to_string());
    }
    options.reserved_percent = arguments.reserved_percent as u32;
    options.label = arguments.label.clone().unwrap_or_default().into_bytes();
    Ok(options)
}

fn identity(text: &Option<String>, name: &str) -> Result<Uuid, String> {
    match text {
        Some(text) => {
            Uuid::parse_str(text).map_err(|error| format!("'{text}' isn't a {name}: {error}"))
        }
        None => Ok(Uuid::new_v4()),
    }
}

fn time_seconds(arguments: &Arguments) -> Result<u64, String> {
    let seconds = arguments.timestamp.unwrap_or_else(|| drystone_sync::clock::wall().0);
    u64::try_from(seconds).map_err(|_| "--timestamp is before 1970".to_string())
}

/// What was made, in JSON.
#[derive(Serialize)]
struct MadeImageJson {
    uuid: String,
    block_size: u32,
    blocks: u64,
    inodes: u32,
    groups: u32,
    journal_blocks: u32,
    features: Vec<String>,
}

impl MadeImageJson {
    fn new(summary: ImageSummary, uuid: String) -> MadeImageJson {
        MadeImageJson {
            uuid,
            block_size: summary.block_size,
            blocks: summary.blocks,
            inodes: summary.inodes,
            groups: summary.groups,
            journal_blocks: summary.journal_blocks,
            features: summary.features,
        }
    }
}

/// The library's options.
fn options(arguments: &Arguments, size_bytes: u64) -> Result<MkfsOptions, String> {
    let uuid = identity(&arguments.uuid, "UUID")?.into_bytes();
    let seed = identity(&arguments.hash_seed, "hash seed")?.into_bytes();
    let mut hash_seed = [0; 4];
    for (word, bytes) in hash_seed.iter_mut().zip(seed.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    let mut options = MkfsOptions::new(size_bytes, uuid, hash_seed, time_seconds(arguments)?);
    let change = Features::parse(&arguments.features.join(",")).map_err(|e| e.to_string())?;
    options.features = options.features.apply(&change);
    match arguments.journal_size {
        Some(0) => {
            let no_journal = Features::parse("^has_journal").map_err(|e| e.to_string())?;
            options.features = options.features.apply(&no_journal);
        }
        Some(bytes) => options.journal_size = JournalSize::Bytes(bytes),
        None if asks_for_journal(&arguments.features) => {
            options.journal_size = JournalSize::Required;
        }
        None => {}
    }
    options.block_size = narrow(arguments.block_size, "--block-size")?;
    options.inode_size = narrow(arguments.inode_size, "--inode-size")?;
    options.inodes = narrow(arguments.inodes, "--inodes")?;
    options.cluster_size = narrow(arguments.cluster_size, "--cluster-size")?;
    options.bytes_per_inode = arguments.bytes_per_inode;
    options.reserved_percent = arguments.reserved_percent;
    options.label = arguments.label.clone().unwrap_or_default().into_bytes();
    Ok(options)
}

fn narrow<T: TryFrom<u64>>(value: Option<u64>, name: &str) -> Result<Option<T>, String> {
    value
        .map(|value| T::try_from(value).map_err(|_| format!("{name} {value} is too large")))
        .transpose()
}

/// Whether a list of features names the journal, which is then not left out of a small image.
pub fn asks_for_journal(features: &[String]) -> bool {
    features.iter().any(|feature| feature == "has_journal")
}

/// Reads how much is reserved.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=50.0).contains(&percent) => Ok(percent),
        _ => Err("a percentage from 0 to 50".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_options() {
        let arguments = Arguments {
            block_size: Some(1024),
            features: vec!["^orphan_file".into(), "bigalloc".into()],
            uuid: Some("12345678-1234-4234-8234-123456789abc".into()),
            hash_seed: Some("01000000-0200-0000-0300-000004000000".into()),
            journal_size: Some(0),
            timestamp: Some(7),
            ..Arguments::default()
        };
        let options = options(&arguments, 1 << 20).unwrap();
        assert_eq!((options.size_bytes, options.time_seconds), (1 << 20, 7));
        assert_eq!(options.block_size, Some(1024));
        assert_eq!(options.uuid[..2], [0x12, 0x34]);
        assert_eq!(options.hash_seed, [1, 2, 3, 4]);
        let names = options.features.names();
        assert!(names.contains(&"bigalloc".to_string()));
        assert!(!names.iter().any(|name| name == "has_journal" || name == "orphan_file"));
    }

    #[test]
    fn the_help_has_all_features() {
        let command = <Arguments as clap::Args>::augment_args(clap::Command::new("mkfs"));
        let help = command.get_after_help().unwrap().to_string().replace('\n', " ");
        let list = Features::supported_names().join(", ").replace(", verity", " and verity");
        assert!(help.contains(&format!("Features: {list}.")), "{list}: {help}");
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
        let wrong = |change: fn(&mut Arguments)| {
            let mut arguments = Arguments::default();
            change(&mut arguments);
            options(&arguments, 1 << 20).unwrap_err()
        };
        assert!(wrong(|a| a.uuid = Some("x".into())).contains("isn't a UUID"));
        assert!(wrong(|a| a.features = vec!["nonsense".into()]).contains("nonsense"));
        assert!(wrong(|a| a.timestamp = Some(-1)).contains("before 1970"));
        assert!(wrong(|a| a.inodes = Some(1 << 40)).contains("too large"));
        assert!(parse_percent("51").is_err() && parse_percent("x").is_err());
        assert_eq!(parse_percent("0.5"), Ok(0.5));
    }
}
