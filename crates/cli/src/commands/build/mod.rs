//! `build`: builds an image from directories, archives and layers.

mod disk;
mod input;
mod machine;
mod nilfs2;
mod options;
mod output;
mod progress;

use crate::commands::mkfs::{MadeKind, asks_for_journal, not_made};
use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::interrupt::Interrupt;
use crate::size;
use disk::{DiskLayout, MadeDisk, RootContent};
use drystone_blockdev::BlockDevice;
use drystone_mkfs::Error;
use drystone_mkfs::build::Builder;
use drystone_mkfs::tree::FileTree;
use drystone_mkfs::verity::{HashTree, Verity};
use drystone_sync::{Arc, clock};
pub use input::spool_directory;
use output::{BuildOutput, Reached};
use progress::BuildProgress;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use uuid::Uuid;

/// Build an image from directories, tar archives and OCI layers
#[derive(Debug, Default, clap::Args)]
#[command(
    override_usage = "drystone build [OPTIONS] <IMAGE> --from <[KIND:]SOURCE>...",
    after_help = "\
A SOURCE is a directory, a tar archive (plain, gzip, zstd, xz or bzip2; '-' is standard input), an \
OCI image layout, or an archive of one. The kind is detected; 'dir:', 'tar:', 'oci:' or 'file:' in \
front sets it. Several sources are laid over each other: a later one replaces the names that earlier \
ones have, and directories are merged. Everything is kept: modes, owners, times in nanoseconds, hard \
links, symbolic links, devices, holes, extended attributes, ACLs and capabilities. Root isn't needed; \
--owner and --manifest set what the sources lack.

The image has the size that the files need; --free leaves room. It can be mounted and written to. \
--immutable (no journal, nothing reserved for growth) and --shrink (the smallest journal) make it \
smaller. --type nilfs2 makes an image of NILFS2, which holds no extended attributes. --disk gpt makes a \
disk, in which the image is the root, with an EFI system partition of the files of --esp. If IMAGE is '-' it goes to standard output. A file gets its name when it is complete.

The same sources give the same bytes on any machine, at any time, with any number of threads: UUID and \
hash seed are derived from the names, sizes, times and attributes of the files. SOURCE_DATE_EPOCH sets \
the creation time, and the limit of --mtime-clamp.

Examples:
  drystone build disk.img --from root/
  drystone build disk.img --from root.tar.gz --free 20%
  drystone build disk.img --from root/ --from overlay/ --label root
  drystone build disk.img --from root/ --size 64M --owner 0:0 --exclude '*.pyc' --manifest devices
  drystone build disk.img --from root/ --immutable --verity-hash
  drystone build nilfs.img --type nilfs2 --from root/ --free 20%
  drystone build whole.img#home --from root/
  drystone build bootable.img --disk gpt --esp esp/ --from root/ --free 20%
  tar -c . | drystone build - --from - | zstd -o disk.img.zst"
)]
pub struct Arguments {
    /// The file to make (raw, or qcow2 by its name), a block device, nbd://…, rbd:POOL/IMAGE, a partition of one
    /// (IMAGE#NUMBER), or '-' for standard output.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Replace a file that isn't empty, or overwrite a device.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    input: input::InputArguments,
    #[command(flatten)]
    options: options::ImageArguments,
    #[command(flatten)]
    disk: disk::DiskArguments,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    global.check_may_change()?;
    if arguments.image.as_os_str() == "-" && std::io::stdout().is_terminal() {
        let message = "standard output is a terminal: pipe the image, or name a file";
        return Err(Failure::Usage(message.to_string()));
    }
    let start = clock::now();
    let interrupt = Interrupt::install()?;
    raise_open_files_limit();
    let epoch = options::source_date_epoch().map_err(Failure::Usage)?;
    let threads = arguments.input.threads();
    let mut tree = FileTree::new();
    let (input, image) = (&arguments.input, &arguments.image);
    let warnings = input.read(&mut tree, image, epoch, &interrupt)?;
    let mut esp = FileTree::new();
    let more = input.read_esp(&arguments.disk.esp, &mut esp, image, epoch, &interrupt)?;
    if !global.quiet {
        for sentence in warnings.sentences().chain(more.sentences()) {
            crate::messages::tell(sentence);
        }
    }
    let disk = arguments.disk.layout(&esp, &tree, global.quiet)?;
    let output = BuildOutput::choose(image, arguments.force)?;
    if let Some(disk) = &disk {
        disk.check_sectors(output.sector_bytes())?;
    }
    let device_bytes = match (output.device_bytes(), &disk) {
        (Some(bytes), Some(disk)) => Some(disk.room(bytes)?),
        (bytes, _) => bytes,
    };
    if arguments.options.kind == MadeKind::Nilfs2 {
        let interrupt = &interrupt;
        let build =
            nilfs2::Nilfs2Build { arguments, global, epoch, interrupt, start, device_bytes, disk };
        return build.run(&tree, output);
    }
    let mut options =
        arguments.options.build_options(device_bytes, epoch).map_err(Failure::Usage)?;
    options.threads = threads;
    let wants_journal = asks_for_journal(&options.features.names());
    if interrupt.is_asked() {
        return Err(Failure::Code(interrupt.code()));
    }
    let builder = Builder::new(&mut tree, &options);
    let builder = builder.map_err(|error| not_made(image, &error.into()))?;
    let verity = arguments.options.verity(&builder);
    let (files, data_bytes, uuid) = (builder.files(), builder.data_bytes(), builder.uuid());
    let image_bytes = builder.size_bytes();
    let all_bytes = verity.as_ref().map_or(image_bytes, Verity::size_bytes);
    let (more_files, more_bytes) = disk.as_ref().map_or((0, 0), DiskLayout::files_and_bytes);
    let (all_files, all_data) = (files + more_files, data_bytes + more_bytes);
    let progress = BuildProgress::new(global.quiet, all_files, all_data, interrupt.clone());
    let is_zeroed = output.is_zeroed();
    let size =
        disk.as_ref().map_or(all_bytes, |disk| disk.size_bytes(all_bytes, output.device_bytes()));
    let made = write_to(output, image, size, &interrupt, |whole, reached| {
        let device = match &disk {
            None => Arc::clone(whole),
            Some(disk) => disk.begin(whole, all_bytes, is_zeroed)?,
        };
        let summary = progress.during(|| builder.write(&device, is_zeroed, &progress))?;
        if disk.is_none() {
            *reached = Reached::HashTree;
        }
        let append = |verity: Verity| verity.append(&device, threads, &progress);
        let verity = verity.map(append).transpose()?;
        let finish = |disk: &DiskLayout<'_>| {
            let hash = verity.as_ref().map(|verity| &verity.root_hash);
            let uuid = Uuid::from_bytes(uuid);
            let root = RootContent { uuid, image_bytes, all_bytes, hash };
            progress.during(|| disk.finish(whole, root, is_zeroed, &progress))
        };
        let disk = disk.as_ref().map(finish).transpose()?;
        Ok((summary, verity, disk))
    });
    let (summary, verity, disk) = made?;
    if summary.journal_blocks == 0 && wants_journal && !global.quiet {
        crate::messages::tell("the image is too small for a journal: it has none");
    }
    let elapsed = start.elapsed();
    let made = BuiltImageJson {
        size,
        files,
        data: data_bytes,
        seconds: elapsed.as_secs_f64(),
        uuid: Uuid::from_bytes(uuid).to_string(),
        block_size: summary.block_size,
        blocks: summary.blocks,
        inodes: summary.inodes,
        groups: summary.groups,
        journal_blocks: summary.journal_blocks,
        features: summary.features,
        verity: verity.map(VerityJson::from),
        disk,
    };
    tell(&made, &arguments.image, elapsed, global)?;
    Ok(())
}

/// Has `body` write an image of this size, which gets its name when it is complete.
fn write_to<T>(
    mut output: BuildOutput,
    image: &Path,
    size_bytes: u64,
    interrupt: &Interrupt,
    body: impl FnOnce(&Arc<dyn BlockDevice>, &mut Reached) -> anyhow::Result<T>,
) -> Outcome<T> {
    let mut reached = Reached::Nothing;
    let made = (|| -> anyhow::Result<_> {
        let device = output.open(size_bytes)?;
        reached = Reached::Image;
        let made = body(&device, &mut reached)?;
        output.finish(&device, interrupt)?;
        Ok(made)
    })();
    let error = match made {
        Ok(made) => return Ok(made),
        Err(error) => error,
    };
    output.abandon(reached);
    let is_cancelled = matches!(error.downcast_ref(), Some(Error::Cancelled))
        || error.downcast_ref().is_some_and(|error: &drystone::Error| {
            matches!(error.cause(), drystone::ErrorCause::Make(Error::Cancelled))
        });
    Err(match is_cancelled {
        true => Failure::Code(interrupt.code()),
        false => error.context(image.display().to_string()).into(),
    })
}

/// Archives and directories stay open until the image is written, and a list may name many. The
/// limit that programs start with is low for the sake of old ones.
fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If that isn't allowed, opening will report an error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Says what was made: to standard error where the image is on standard output.
fn tell(
    made: &BuiltImageJson,
    image: &Path,
    elapsed: Duration,
    global: &Global,
) -> anyhow::Result<()> {
    let text = if global.json {
        serde_json::to_string(made)?
    } else if global.quiet {
        match &made.verity {
            // The image can't be used without it.
            Some(verity) => verity.root_hash.clone(),
            None => return Ok(()),
        }
    } else {
        let mut text = line(image, made.size, made.files, made.data, elapsed, &made.uuid);
        if let Some(verity) = &made.verity {
            text +=
                &format!("\nroot hash {}, hash tree at {}", verity.root_hash, verity.hash_offset);
        }
        text + &made.disk.as_ref().map_or(String::new(), MadeDisk::text)
    };
    print(image, &text)
}

/// What was made, in a line.
fn line(image: &Path, size: u64, files: u64, data: u64, elapsed: Duration, uuid: &str) -> String {
    let rate = (data as f64 / elapsed.as_secs_f64().max(1e-3)) as u64;
    let to_stream = image.as_os_str() == "-";
    let name = if to_stream { Path::new("standard output") } else { image };
    format!(
        "{}: {}, {files} files with {} in {:.1} s ({}/s), UUID {uuid}",
        name.display(),
        size::bytes(size),
        size::bytes(data),
        elapsed.as_secs_f64(),
        size::bytes(rate),
    )
}

fn print(image: &Path, text: &str) -> anyhow::Result<()> {
    if image.as_os_str() == "-" {
        // Without it the image can't be used, but the image is what was asked for.
        let _ = writeln!(std::io::stderr(), "{text}");
    } else {
        writeln!(std::io::stdout(), "{text}")?;
    }
    Ok(())
}

/// What was made, in JSON.
#[derive(Serialize)]
struct BuiltImageJson {
    /// Bytes of the image, with a hash tree after it; of the disk if there is one.
    size: u64,
    files: u64,
    /// Bytes of data that were copied.
    data: u64,
    seconds: f64,
    uuid: String,
    block_size: u32,
    blocks: u64,
    inodes: u32,
    groups: u32,
    journal_blocks: u32,
    features: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verity: Option<VerityJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<MadeDisk>,
}

/// Where the hash tree of an image is, in JSON.
#[derive(Serialize)]
struct VerityJson {
    root_hash: String,
    salt: String,
    hash_offset: u64,
}

impl From<HashTree> for VerityJson {
    fn from(tree: HashTree) -> VerityJson {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        VerityJson {
            root_hash: hex(&tree.root_hash),
            salt: hex(&tree.salt),
            hash_offset: tree.offset,
        }
    }
}

/// Reads `--free`.
fn parse_room(text: &str) -> Result<drystone_mkfs::build::SpareRoom, String> {
    use drystone_mkfs::build::SpareRoom;
    match text.strip_suffix('%') {
        Some(percent) => match percent.parse() {
            Ok(percent) if (0.0..=99.0).contains(&percent) => Ok(SpareRoom::Percent(percent)),
            _ => Err("a percentage from 0 to 99".to_string()),
        },
        None => size::parse(text).map(SpareRoom::Bytes),
    }
}
