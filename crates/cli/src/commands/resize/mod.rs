//! `resize`: grows or shrinks an image, or grows one that is mounted.

mod mounted;

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::{AtImage, change_whole};
use crate::location::whole_image;
use crate::output::counted;
use crate::progress::Steps;
use crate::size;
use crate::terminal::print_line;
use drystone::reshape::NewSize;
use drystone::{FileSystemKind, resize_image};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Change the size of an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An image file grows and shrinks with the image in it; a partition or block device keeps its size. When an image \
shrinks, blocks beyond the new end move, and files whose inodes were there get other inode numbers. Ctrl-C takes the change back. If \
the command is killed, the image is rolled back the next time it is changed, or by 'drystone undo'. A NILFS2 \
volume can only grow, and has no undo log.

A mounted image can only grow: name a directory in the mount. The new space is usable when the command returns. If \
the command is interrupted, the server still finishes.

Examples:
  drystone resize disk.img 64M
  drystone resize disk.img --minimum
  drystone resize disk.img +16M --undo before-growth.undo
  drystone resize /mnt +2G")]
pub struct Arguments {
    /// The image, or a directory in a mount.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
    /// The new size: 64M, 4G, …; +2G adds 2 GiB, -2G takes them away.
    #[arg(value_name = "SIZE", value_parser = parse, allow_hyphen_values = true,
        required_unless_present = "minimum", conflicts_with = "minimum")]
    size: Option<NewSize>,
    /// Make the image as small as its files allow.
    #[arg(short = 'M', long)]
    minimum: bool,
    /// Keep the old bytes in this file, so that 'drystone undo' can take the change back.
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,
}

fn parse(text: &str) -> Result<NewSize, String> {
    match text.split_at_checked(1) {
        Some(("+", more)) => size::parse(more).map(NewSize::More),
        Some(("-", less)) => size::parse(less).map(NewSize::Less),
        _ => size::parse(text).map(NewSize::Exactly),
    }
}

/// What the image has become, in JSON.
#[derive(Serialize)]
struct ResizedJson {
    block_size: u32,
    blocks_before: u64,
    blocks: u64,
    groups: u32,
    inodes: u32,
    blocks_moved: u64,
    inodes_moved: u64,
}

/// What an image of NILFS2 has become, in JSON.
#[derive(Serialize)]
struct GrownNilfs2Json {
    #[serde(rename = "type")]
    kind: &'static str,
    segments_before: u64,
    segments: u64,
}

fn grow_nilfs2(arguments: &Arguments, global: &Global) -> Outcome {
    let path = &arguments.image;
    if arguments.undo.is_some() {
        return Err(Failure::Usage("NILFS2 grows without an undo log".to_string()));
    }
    let size = arguments.size.unwrap_or(NewSize::Minimum);
    let grown = drystone::grow_nilfs2(path, size).at_image(path)?;
    let (segments_before, segments) = (grown.segments_before, grown.segments);
    if global.json {
        let json = GrownNilfs2Json { kind: "nilfs2", segments_before, segments };
        print_line(&serde_json::to_string(&json)?)?;
    } else if !global.quiet {
        print_line(&format!("{}: {segments} segments, {segments_before} before", path.display()))?;
    }
    Ok(())
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    global.check_may_change()?;
    let path = &arguments.image;
    if path.is_dir() {
        if arguments.minimum || arguments.undo.is_some() {
            let problem = "a mounted image only grows, and can't be undone: unmount it first";
            return Err(Failure::Usage(format!("{}: {problem}", path.display())));
        }
        // The parser requires a size without --minimum.
        let size = arguments.size.unwrap_or(NewSize::Minimum);
        return mounted::grow(path, size, global);
    }
    // The change itself reports what is wrong with the image.
    if let Ok(Some(FileSystemKind::Nilfs2)) = drystone::kind_of(path) {
        return grow_nilfs2(arguments, global);
    }
    // The parser requires one of the two.
    resize(path, arguments.size.unwrap_or(NewSize::Minimum), arguments.undo.clone(), global)
}

/// Makes an image as small as its files allow.
pub fn shrink_to_minimum(path: &Path, global: &Global) -> Outcome {
    resize(path, NewSize::Minimum, None, global)
}

fn resize(path: &Path, size: NewSize, undo: Option<PathBuf>, global: &Global) -> Outcome {
    let resized = change_whole(path, undo, global, |options| {
        let steps = Steps::new(global.quiet);
        let resized = resize_image(path, size, options, &mut |progress| {
            steps.step(progress.step, progress.done, progress.total);
        });
        steps.end();
        resized
    })?;
    let resized = ResizedJson {
        block_size: resized.block_size,
        blocks_before: resized.blocks_before,
        blocks: resized.blocks,
        groups: resized.groups,
        inodes: resized.inodes,
        blocks_moved: resized.blocks_moved,
        inodes_moved: resized.inodes_moved,
    };
    tell_resized(path, &resized, global)
}

/// Says what an image has become.
fn tell_resized(path: &Path, resized: &ResizedJson, global: &Global) -> Outcome {
    if global.json {
        print_line(&serde_json::to_string(resized)?)?;
    } else if !global.quiet {
        let bytes = |blocks: u64| size::bytes(blocks * u64::from(resized.block_size));
        print_line(&format!(
            "{}: {}, {} before; {} blocks of {} bytes, {} inodes, {}",
            path.display(),
            bytes(resized.blocks),
            bytes(resized.blocks_before),
            resized.blocks,
            resized.block_size,
            resized.inodes,
            counted(resized.groups.into(), "group"),
        ))?;
    }
    Ok(())
}
