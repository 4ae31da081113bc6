//! `df`: how much space and how many inodes images have.

use crate::failure::Outcome;
use crate::global::{Global, LongHelp};
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::output::NameJson;
use crate::size;
use crate::terminal::Output;
use drystone::vfs::FileSystemStatistics;
use serde::Serialize;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// Show how much space images have
#[derive(Debug, Default, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Without -h and -i numbers are KiB, rounded up. What is reserved for root is neither used nor available.

Examples:
  drystone df disk.img
  drystone df -h old.img new.img
  drystone df -i disk.img"
)]
pub struct Arguments {
    /// The images.
    #[arg(required = true, value_name = "IMAGE", value_parser = Location::parser())]
    images: Vec<Location>,
    /// Show inodes instead of space.
    #[arg(short, long)]
    inodes: bool,
    /// Show numbers like 12M.
    #[arg(short, long)]
    human_readable: bool,
    #[command(flatten)]
    help: LongHelp,
}

/// One kind of what an image has: bytes, or inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resource {
    all: u64,
    used: u64,
    available: u64,
}

impl Resource {
    fn space(statistics: &FileSystemStatistics) -> Resource {
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(statistics.block_size));
        Resource {
            all: bytes(statistics.blocks),
            used: bytes(statistics.blocks.saturating_sub(statistics.blocks_free)),
            available: bytes(statistics.blocks_available),
        }
    }

    fn inodes(statistics: &FileSystemStatistics) -> Resource {
        Resource {
            all: statistics.inodes,
            used: statistics.inodes.saturating_sub(statistics.inodes_free),
            available: statistics.inodes_free,
        }
    }

    /// The used part in percent, rounded up; none of nothing.
    fn percentage(self) -> Option<u64> {
        let (used, available) = (u128::from(self.used), u128::from(self.available));
        let all = used + available;
        if all == 0 { None } else { u64::try_from((used * 100).div_ceil(all)).ok() }
    }

    fn line(self, arguments: &Arguments) -> [String; 4] {
        let text = |number: u64| match (arguments.human_readable, arguments.inodes) {
            (true, _) => size::human_used(number),
            (false, true) => number.to_string(),
            (false, false) => number.div_ceil(1024).to_string(),
        };
        let percentage = self.percentage().map_or("-".to_owned(), |part| format!("{part}%"));
        [text(self.all), text(self.used), text(self.available), percentage]
    }
}

#[derive(Serialize)]
struct SpaceJson {
    image: NameJson,
    block_size: u32,
    size: u64,
    used: u64,
    available: u64,
    inodes: u64,
    inodes_used: u64,
    inodes_available: u64,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let mut found = Vec::new();
    let looked = with_each(&arguments.images, Intent::Read, global, |tree, _| {
        let statistics = tree.file_system.statistics();
        let statistics = statistics.map_err(|error| tree.error(b"/", &error))?;
        found.push((tree.image.as_os_str().as_bytes().to_vec(), statistics));
        Ok(())
    });
    Output::with_stdout(global.json, |output| match output.json {
        true => show_json(&found, output),
        false => show(&found, arguments, output),
    })?;
    looked
}

fn show_json(found: &[(Vec<u8>, FileSystemStatistics)], output: &mut Output<'_>) -> Outcome {
    for (image, statistics) in found {
        let (space, inodes) = (Resource::space(statistics), Resource::inodes(statistics));
        output.json(&SpaceJson {
            image: image.as_slice().into(),
            block_size: statistics.block_size,
            size: space.all,
            used: space.used,
            available: space.available,
            inodes: inodes.all,
            inodes_used: inodes.used,
            inodes_available: inodes.available,
        })?;
    }
    Ok(())
}

fn show(
    found: &[(Vec<u8>, FileSystemStatistics)],
    arguments: &Arguments,
    output: &mut Output<'_>,
) -> Outcome {
    let title = match (arguments.inodes, arguments.human_readable) {
        (true, _) => ["Inodes", "IUsed", "IFree", "IUse%"],
        (false, true) => ["Size", "Used", "Avail", "Use%"],
        (false, false) => ["1K-blocks", "Used", "Available", "Use%"],
    };
    let mut lines = vec![title.map(str::to_owned)];
    lines.extend(found.iter().map(|(_, statistics)| match arguments.inodes {
        true => Resource::inodes(statistics).line(arguments),
        false => Resource::space(statistics).line(arguments),
    }));
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    let names = std::iter::once(&b"Image"[..]).chain(found.iter().map(|(image, _)| &image[..]));
    for (line, name) in lines.iter().zip(names) {
        for (text, width) in line.iter().zip(widths) {
            write!(output, "{text:>width$} ")?;
        }
        output.name(name)?;
        writeln!(output)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_up() {
        let part = |used, available| Resource { all: 100, used, available }.percentage();
        assert_eq!(part(1, 999), Some(1));
        assert_eq!(part(50, 50), Some(50));
        assert_eq!(part(7, 0), Some(100));
        assert_eq!(part(0, 0), None);
        assert_eq!(part(u64::MAX, u64::MAX), Some(50));
    }
}
