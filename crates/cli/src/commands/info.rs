//! `info`: what an image is.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::location::Location;
use crate::output::time_stat;
use crate::size;
use crate::terminal::Output;
use anyhow::Context;
use drystone::vfs::Timestamp;
use drystone::{Ext4Information, Information, Nilfs2Information};
use jiff::tz::TimeZone;
use std::io::Write;

/// Show what an image is and how full
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only the superblock is read. Free counts are those of the last clean close; they may be out of date in \
an image that needs recovery.

Examples:
  drystone info disk.img
  drystone info --json disk.img | jq .blocks_free")]
pub struct Arguments {
    /// The images.
    #[arg(required = true, value_name = "IMAGE", value_parser = Location::parser())]
    images: Vec<Location>,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let mut has_failed = false;
    Output::with_stdout(global.json, |output| {
        for (index, location) in arguments.images.iter().enumerate() {
            let path = &location.image;
            match Information::read(path).with_context(|| path.display().to_string()) {
                Ok(information) if output.json => output.json(&information)?,
                Ok(information) => {
                    if index > 0 {
                        writeln!(output)?;
                    }
                    show(&information, &TimeZone::system(), output)?;
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
    format!("{blocks} ({})", size::human(bytes).trim())
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
    let journal = match information.journal_inode {
        Some(inode) => format!("inode {inode}"),
        None => "none inside".to_string(),
    };
    let hash = information.directory_hash.as_deref().unwrap_or("none");
    let mounted = match information.last_mounted_at.as_str() {
        "" => time(information.last_mounted),
        place => format!("{} at {place}", time(information.last_mounted)),
    };
    let rows = [
        ("Type", "ext4".to_owned()),
        ("Label", or_none(&information.label)),
        ("UUID", information.uuid.clone()),
        ("State", state),
        (
            "Errors seen",
            format!("{}; on one: {}", information.error_count, information.error_policy),
        ),
        ("Features", information.features.join(" ")),
        ("Block size", information.block_size.to_string()),
        ("Cluster size", information.cluster_size.to_string()),
        ("Blocks", space(information.blocks)),
        ("Free blocks", space(information.blocks_free)),
        ("Reserved blocks", space(information.blocks_reserved)),
        ("Inodes", information.inodes.to_string()),
        ("Free inodes", information.inodes_free.to_string()),
        ("Inode size", information.inode_size.to_string()),
        (
            "Groups",
            format!(
                "{} of {} blocks and {} inodes, {} to a flexible group",
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
        ("Written", format!("{} KiB in its life", information.kibibytes_written)),
    ];
    show_rows(&rows, output)
}
