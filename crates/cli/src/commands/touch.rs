//! `touch`: sets times of files, and makes empty ones.

use crate::failure::Outcome;
use crate::global::{Global, LongHelp};
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::tree::ImageTree;
use drystone::OpenOptions;
use drystone::vfs::{Errno, SetAttributes, SetTime, Timestamp};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::path::Path;

/// Set times of files, and make empty ones
#[derive(Debug, Default, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
A file that doesn't exist is created. Both times are set to the present one, unless options say otherwise.

Examples:
  drystone touch disk.img:/etc/machine-id
  drystone touch -d 2026-01-31T12:00:00Z disk.img:/file
  drystone touch -m -d @0 disk.img:/file"
)]
pub struct Arguments {
    /// The files.
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = Location::path_parser())]
    files: Vec<Location>,
    /// Set only the time of the last access.
    #[arg(short)]
    access: bool,
    /// Set only the time of the last modification.
    #[arg(short)]
    modification: bool,
    /// This time: 2026-01-31, '2026-01-31 12:00:00' in the local zone, 2026-01-31T12:00:00Z, or @SECONDS since 1970.
    #[arg(short, long, value_parser = parse_time)]
    date: Option<Timestamp>,
    /// Don't create files.
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Don't follow a symbolic link at the end of the path, and don't create files.
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    help: LongHelp,
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    if let Some(seconds) = text.strip_prefix('@').and_then(|digits| digits.parse().ok()) {
        return Ok(Timestamp { seconds, nanoseconds: 0 });
    }
    let local = |time: DateTime| time.to_zoned(TimeZone::system()).map(|zoned| zoned.timestamp());
    let time = text.parse::<jiff::Timestamp>();
    let time = time.or_else(|_| text.parse::<DateTime>().and_then(local));
    let time = time.map_err(|_| format!("'{text}' is neither a date nor @SECONDS"))?;
    // Between two seconds the library counts back from the later one before 1970.
    let nanoseconds = time.as_nanosecond().rem_euclid(1_000_000_000) as u32;
    let seconds = time.as_second() - i64::from(time.subsec_nanosecond() < 0);
    Ok(Timestamp { seconds, nanoseconds })
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    with_each(&arguments.files, Intent::Change, global, |tree, paths| {
        tree.for_each(paths, |path| touch(tree, path, arguments))
    })
}

fn touch(tree: &ImageTree<'_>, path: &Path, arguments: &Arguments) -> Outcome {
    let problem = |error| tree.error_at(path, error);
    let time = Some(arguments.date.map_or(SetTime::Now, SetTime::At));
    let changes = SetAttributes {
        accessed: time.filter(|_| arguments.access || !arguments.modification),
        modified: time.filter(|_| arguments.modification || !arguments.access),
        ..SetAttributes::default()
    };
    let follow = !arguments.no_dereference;
    match tree.fs.set_attributes(path, &changes, follow) {
        Err(error) if error.errno() == Errno::ENOENT && arguments.no_create => return Ok(()),
        // What isn't followed isn't created, as with touch.
        Err(error) if error.errno() == Errno::ENOENT && follow => {}
        changed => return Ok(changed.map_err(problem)?),
    }
    let options = OpenOptions::new().write(true).create(true).mode(0o644);
    drop(tree.fs.open_with(path, options).map_err(problem)?);
    if arguments.date.is_some() {
        tree.fs.set_attributes(path, &changes, follow).map_err(problem)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{content, example, tree_of};

    #[test]
    fn times_are_read() {
        let at = |seconds, nanoseconds| Ok(Timestamp { seconds, nanoseconds });
        assert_eq!(parse_time("@-5"), at(-5, 0));
        assert_eq!(parse_time("2001-09-09T01:46:40Z"), at(1_000_000_000, 0));
        assert_eq!(parse_time("2001-09-09T03:46:40.5+02:00"), at(1_000_000_000, 500_000_000));
        assert_eq!(parse_time("1969-12-31T23:59:59.25Z"), at(-1, 250_000_000));
        assert!(parse_time("2001-09-09").is_ok() && parse_time("2001-09-09 12:30").is_ok());
        for text in ["", "@", "@x", "now", "2001-13-01"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_change_and_files_come_to_be() {
        let image = example(&["a"]);
        let tree = tree_of(&image);
        let times = |path: &str| {
            let attributes = *tree.find(Path::new(path), true).unwrap().attributes();
            (attributes.accessed.seconds, attributes.modified.seconds)
        };
        let date = |seconds| Some(Timestamp { seconds, nanoseconds: 0 });
        let both = Arguments { date: date(5), ..Arguments::default() };
        touch(&tree, Path::new("/a"), &both).unwrap();
        assert_eq!((times("/a"), content(&tree, "/a")), ((5, 5), b"a".to_vec()));
        let access = Arguments { date: date(6), access: true, ..Arguments::default() };
        touch(&tree, Path::new("/a"), &access).unwrap();
        let modification = Arguments { date: date(7), modification: true, ..Arguments::default() };
        touch(&tree, Path::new("/a"), &modification).unwrap();
        assert_eq!(times("/a"), (6, 7));
        touch(&tree, Path::new("/new"), &both).unwrap();
        assert_eq!((times("/new"), content(&tree, "/new")), ((5, 5), Vec::new()));
        let none = Arguments { no_create: true, ..Arguments::default() };
        touch(&tree, Path::new("/none"), &none).unwrap();
        assert!(tree.find(Path::new("/none"), true).is_err());
        let link = Arguments { no_dereference: true, ..Arguments::default() };
        assert!(touch(&tree, Path::new("/none"), &link).is_err());
        assert!(touch(&tree, Path::new("/a/b"), &both).is_err());
        assert_eq!(image.references(), 0);
    }
}
