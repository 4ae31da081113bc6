//! `info`: shows what an image or a disk is.

use super::quota::span;
use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::AtImage;
use crate::location::whole_image;
use crate::output::counted;
use crate::output::time_stat;
use crate::progress::Steps;
use crate::size;
use crate::terminal::Output;
use drystone::inspection::{FileFragments, Fragmentation};
use drystone::vfs::Timestamp;
use drystone::{
    DiskInformation, Ext4Information, Information, Nilfs2Information, PartitionInformation,
    TableKind,
};
use jiff::tz::TimeZone;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Show what an image or a disk is and how full
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Of a disk, the partitions are listed, with what is in them; IMAGE#NUMBER is one of them. Of an image, only \
the superblock is read unless --fragmentation is given. Free counts are those of the last clean close; they may be out of date in \
an image that needs recovery.

Examples:
  drystone info disk.img
  drystone info --json disk.img | jq .blocks_free
  drystone info whole.img
  drystone info whole.img#root
  drystone info --fragmentation disk.img")]
pub struct Arguments {
    /// The images or disks.
    #[arg(required = true, value_name = "IMAGE", value_parser = whole_image())]
    images: Vec<PathBuf>,
    /// Also show how fragmented files and free space are; this reads the whole image's metadata.
    #[arg(long)]
    fragmentation: bool,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let mut has_failed = false;
    Output::with_stdout(global.json, |output| {
        for (index, path) in arguments.images.iter().enumerate() {
            match Described::read(path, arguments.fragmentation, global).at_image(path) {
                Ok(described) if output.json => match described {
                    Described::Disk(disk) => output.json(&disk)?,
                    Described::Image(image) => output.json(&image)?,
                },
                Ok(described) => {
                    if index > 0 {
                        writeln!(output)?;
                    }
                    match described {
                        Described::Disk(disk) => show_disk(&disk, output)?,
                        Described::Image(image) => {
                            show(&image.information, &TimeZone::system(), output)?;
                            if let Some(fragmentation) = &image.fragmentation {
                                show_fragmentation(fragmentation, output)?;
                            }
                        }
                    }
                }
                Err(error) => {
                    crate::messages::tell(format_args!("{error:#}"));
                    has_failed = true;
                }
            }
        }
        Ok(())
    })?;
    if has_failed { Err(Failure::Reported) } else { Ok(()) }
}

/// What a name stands for.
enum Described {
    Disk(DiskInformation),
    Image(Box<DescribedImage>),
}

#[derive(Serialize)]
struct DescribedImage {
    #[serde(flatten)]
    information: Information,
    #[serde(skip_serializing_if = "Option::is_none")]
    fragmentation: Option<Fragmentation>,
}

impl Described {
    fn read(
        name: &Path,
        fragmentation: bool,
        global: &Global,
    ) -> Result<Described, drystone::Error> {
        if let Some(disk) = DiskInformation::read(name)? {
            return Ok(Described::Disk(disk));
        }
        let information = Information::read(name)?;
        let steps = Steps::new(global.quiet);
        let mut progress = |done, total| steps.step("looking at inodes", done, total);
        let fragmentation =
            fragmentation.then(|| drystone::fragmentation(name, &mut progress)).transpose();
        steps.end();
        let described = DescribedImage { information, fragmentation: fragmentation? };
        Ok(Described::Image(Box::new(described)))
    }
}

fn show_disk(disk: &DiskInformation, output: &mut Output<'_>) -> std::io::Result<()> {
    let kind = match disk.kind {
        TableKind::Gpt => "gpt",
        TableKind::Mbr => "mbr",
    };
    let rows = [
        ("Type", kind.to_owned()),
        ("UUID", disk.identity.clone()),
        ("Size", format!("{} ({})", disk.size, size::bytes(disk.size))),
        ("Partitions", disk.partitions.len().to_string()),
    ];
    show_rows(&rows, output)?;
    if !disk.partitions.is_empty() {
        writeln!(
            output,
            "\n{:>4} {:>12} {:>6}  {:<18} {:<12} NAME",
            "#", "OFFSET", "SIZE", "TYPE", "CONTENT"
        )?;
    }
    for partition in &disk.partitions {
        show_partition(partition, output)?;
    }
    Ok(())
}

/// A partition in a line; what is long comes last.
fn show_partition(
    partition: &PartitionInformation,
    output: &mut Output<'_>,
) -> std::io::Result<()> {
    let label = partition.label.as_deref().unwrap_or_default();
    let names = match (partition.name.as_str(), label) {
        (name, "") => name.to_owned(),
        ("", label) => format!("label {label}"),
        (name, label) if name == label => name.to_owned(),
        (name, label) => format!("{name}, label {label}"),
    };
    write!(
        output,
        "{:>4} {:>12} {:>6}  {:<18} {:<12} ",
        partition.number,
        partition.offset,
        size::human(partition.size).trim(),
        partition.partition_type,
        partition.content.unwrap_or(if partition.problem.is_some() { "unreadable" } else { "-" }),
    )?;
    output.name(or_none(&names).as_bytes())?;
    writeln!(output)?;
    match &partition.problem {
        Some(problem) => writeln!(output, "     {problem}"),
        None => Ok(()),
    }
}

fn show(
    information: &Information,
    zone: &TimeZone,
    output: &mut Output<'_>,
) -> std::io::Result<()> {
    match information {
        Information::Ext4(ext4) => show_ext4(ext4, zone, output),
        Information::Nilfs2(nilfs2) => show_nilfs2(nilfs2, zone, output),
    }
}

fn time(seconds: u64, zone: &TimeZone) -> String {
    match i64::try_from(seconds) {
        Ok(seconds) if seconds > 0 => time_stat(Timestamp { seconds, nanoseconds: 0 }, zone),
        _ => "never".to_string(),
    }
}

fn space(blocks: u64, block_size: usize) -> String {
    let bytes = blocks.saturating_mul(block_size as u64);
    format!("{blocks} ({})", size::bytes(bytes))
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "none" } else { text }.to_string()
}

fn show_rows(rows: &[(&str, String)], output: &mut Output<'_>) -> std::io::Result<()> {
    for (name, value) in rows {
        write!(output, "{name:<16} ")?;
        output.name(value.as_bytes())?;
        writeln!(output)?;
    }
    Ok(())
}

fn show_fragmentation(found: &Fragmentation, output: &mut Output<'_>) -> std::io::Result<()> {
    let bytes = size::bytes;
    let of = |kind: &FileFragments| {
        let (fragments, all) = (counted(kind.fragments, "fragment"), bytes(kind.bytes));
        format!("{} in {fragments}, {} of them fragmented; {all}", kind.count, kind.fragmented)
    };
    let free = &found.free;
    let (fragments, largest) = (counted(free.fragments, "fragment"), bytes(free.largest_bytes));
    let mut rows = vec![
        ("Files", of(&found.files)),
        ("Directories", of(&found.directories)),
        ("Free space", format!("{} in {fragments}, the largest {largest}", bytes(free.bytes))),
    ];
    for of_size in &free.by_size {
        let (from, to) = (bytes(of_size.from_bytes), bytes(of_size.from_bytes.saturating_mul(2)));
        let (fragments, all) = (counted(of_size.fragments, "fragment"), bytes(of_size.bytes));
        rows.push(("", format!("{fragments} of {from} to {to}, {all} in all")));
    }
    for file in &found.most_fragmented {
        let fragments = counted(file.fragments, "fragment");
        let text = format!("{fragments}, {}: {}", bytes(file.bytes), file.path);
        rows.push(("Most fragmented", text));
    }
    show_rows(&rows, output)
}

fn show_nilfs2(
    information: &Nilfs2Information,
    zone: &TimeZone,
    output: &mut Output<'_>,
) -> std::io::Result<()> {
    let time = |seconds| time(seconds, zone);
    let size = information.size / information.block_size as u64;
    let rows = [
        ("Type", "nilfs2".to_owned()),
        ("Label", or_none(&information.label)),
        ("UUID", information.uuid.clone()),
        ("State", information.state.join(", ")),
        ("Block size", information.block_size.to_string()),
        ("Blocks", space(size, information.block_size)),
        ("Free blocks", space(information.blocks_free, information.block_size)),
        (
            "Segments",
            format!("{} of {} blocks", information.segments, information.blocks_per_segment),
        ),
        ("Checkpoint", information.checkpoint.to_string()),
        ("Created", time(information.created)),
        ("Last mounted", time(information.last_mounted)),
        ("Last written", time(information.last_written)),
        ("Mounts", information.mount_count.to_string()),
    ];
    show_rows(&rows, output)
}

fn show_ext4(
    information: &Ext4Information,
    zone: &TimeZone,
    output: &mut Output<'_>,
) -> std::io::Result<()> {
    let time = |seconds| time(seconds, zone);
    let space = |blocks| space(blocks, information.block_size);
    let mut state = information.state.join(", ");
    if information.needs_recovery {
        state += ", needs recovery";
    }
    let journal = match (information.journal_inode, &information.journal_uuid) {
        (Some(inode), _) => format!("inode {inode}"),
        (None, Some(uuid)) => format!("on another device, UUID {uuid}"),
        (None, None) => "none".to_string(),
    };
    let hash = information.directory_hash.as_deref().unwrap_or("none");
    let mounted = match information.last_mounted_at.as_str() {
        "" => time(information.last_mounted),
        place => format!("{} at {place}", time(information.last_mounted)),
    };
    let mut rows = vec![
        ("Type", "ext4".to_owned()),
        ("Label", or_none(&information.label)),
        ("UUID", information.uuid.clone()),
        ("State", state),
        (
            "Errors seen",
            format!("{}; on an error: {}", information.error_count, information.error_policy),
        ),
        ("Features", information.features.join(" ")),
        ("Block size", information.block_size.to_string()),
        ("Cluster size", information.cluster_size.to_string()),
        ("Blocks", space(information.blocks)),
        ("Free blocks", space(information.blocks_free)),
        (
            "Reserved blocks",
            format!(
                "{} for user {} and group {}",
                space(information.blocks_reserved),
                information.reserved_user,
                information.reserved_group
            ),
        ),
        ("Inodes", information.inodes.to_string()),
        ("Free inodes", information.inodes_free.to_string()),
        ("Inode size", information.inode_size.to_string()),
        (
            "Groups",
            format!(
                "{} of {} blocks and {} inodes, {} in a flexible group",
                information.groups,
                information.blocks_per_group,
                information.inodes_per_group,
                information.groups_per_flex
            ),
        ),
        ("Descriptor size", information.descriptor_size.to_string()),
        ("Journal", journal),
        ("Directory hash", hash.to_string()),
        ("Created", time(information.created)),
        ("Last mounted", mounted),
        ("Last written", time(information.last_written)),
        ("Last checked", time(information.last_checked)),
        ("Mounts", format!("{} since the last check", information.mount_count)),
        ("Next check", next_check(information)),
        ("Mount options", mount_options(information)),
        ("Lifetime writes", format!("{} KiB", information.kibibytes_written)),
    ];
    let (stride, stripe) = (information.raid_stride_blocks, information.raid_stripe_blocks);
    if stride > 0 || stripe > 0 {
        rows.push(("RAID", format!("stride of {stride} blocks, stripe of {stripe}")));
    }
    show_rows(&rows, output)
}

/// When Linux has an image checked again.
fn next_check(information: &Ext4Information) -> String {
    let mounts = match information.max_mount_count {
        0 => None,
        count => Some(format!("after {}", counted(count.into(), "mount"))),
    };
    let interval = match information.check_interval_seconds {
        0 => None,
        seconds => Some(format!("after {}", span::human(seconds.into()))),
    };
    let limits: Vec<String> = mounts.into_iter().chain(interval).collect();
    if limits.is_empty() { "never".to_owned() } else { limits.join(", or ") }
}

/// The default mount options: those with names, then text.
fn mount_options(information: &Ext4Information) -> String {
    let mut options = information.mount_options.clone();
    options.extend(Some(&*information.extended_mount_options).filter(|text| !text.is_empty()));
    or_none(&options.join(","))
}
