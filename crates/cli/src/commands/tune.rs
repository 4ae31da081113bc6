//! `tune`: changes the settings of an image.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::change_whole;
use crate::location::whole_image;
use crate::progress::Steps;
use crate::terminal::print_line;
use drystone::reshape::{MountOptionChange, ReservedSpace, Tuning, mount_option_names};
use drystone::{ErrorPolicy, FeatureChange, Features, HashVersion, tune_image};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use uuid::Uuid;

/// Change the settings of an image
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "drystone tune <SETTING>... <IMAGE>",
    after_help = "\
The image must not be in use. A dirty journal is replayed first. Ctrl-C takes the change back. If \
the command is killed, the image is rolled back the next time it is changed, or by 'drystone undo'. 'drystone info' shows the settings of an \
image.

Examples:
  drystone tune disk.img --reserved-percent 1
  drystone tune disk.img --errors remount-ro --mount-options discard,^acl
  drystone tune disk.img --max-mounts 30 --check-interval 180d
  drystone tune disk.img --features ^has_journal
  drystone tune disk.img --features has_journal,orphan_file,quota --journal-size 1M
  drystone tune disk.img --inode-size 512
  drystone tune disk.img --features metadata_csum,^64bit
  drystone tune disk.img --convert-maps
  drystone tune disk.img --label data --undo before.undo"
)]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
    #[command(flatten)]
    changes: Option<Changes>,
    /// Keep the old bytes in this file, so that 'drystone undo' can take the change back.
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,
}

#[derive(Debug, Default, clap::Args)]
#[group(multiple = true)]
struct Changes {
    /// The label, of up to 16 bytes.
    #[arg(short = 'L', long, value_parser = super::label::parser())]
    label: Option<OsString>,
    /// The UUID, or 'random', 'time' or 'clear'.
    #[arg(short = 'U', long, value_parser = super::uuid::parse)]
    uuid: Option<Uuid>,
    /// Blocks that only the reserved user and group may use.
    #[arg(short = 'r', long, value_name = "COUNT", conflicts_with = "reserved_percent")]
    reserved_blocks: Option<u64>,
    /// The same, as a percentage of the image.
    #[arg(short = 'm', long, value_name = "PERCENT", value_parser = super::mkfs::parse_percent)]
    reserved_percent: Option<f64>,
    /// The user who may use them, as a number.
    #[arg(short = 'u', long, value_name = "ID")]
    reserved_user: Option<u16>,
    /// The group that may use them, as a number.
    #[arg(short = 'g', long, value_name = "ID")]
    reserved_group: Option<u16>,
    /// What Linux and Drystone do when they find an error.
    #[arg(short, long, value_enum)]
    errors: Option<OnError>,
    /// Default mount options of Linux to set, or with ^ to clear (Drystone's mounts ignore them): debug, bsdgroups, user_xattr, acl, uid16,
    /// journal_data, journal_data_ordered, journal_data_writeback, nobarrier, block_validity, discard,
    /// nodelalloc.
    #[arg(short = 'o', long, value_name = "LIST", value_parser = mount_options)]
    mount_options: Option<MountOptionChange>,
    /// More default mount options, as text of up to 64 bytes.
    #[arg(long, value_name = "TEXT")]
    extended_mount_options: Option<OsString>,
    /// Mounts after which the image is checked; 0 or -1 for never.
    #[arg(short = 'c', long, value_name = "COUNT", allow_negative_numbers = true,
        value_parser = clap::value_parser!(i16).range(-1..))]
    max_mounts: Option<i16>,
    /// How often it has been mounted since it was checked.
    #[arg(short = 'C', long, value_name = "COUNT")]
    mounts: Option<u16>,
    /// The time after which it is checked, in days, or with a unit as in 12h, 180d, 26w and 6m (months of
    /// 30 days); s is for seconds. 0 for never.
    #[arg(short = 'i', long, value_name = "TIME", value_parser = check_interval)]
    check_interval: Option<u32>,
    /// When it was checked, in seconds since 1970.
    #[arg(short = 'T', long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..1 << 40))]
    checked: Option<u64>,
    /// Where it was last mounted.
    #[arg(short = 'M', long, value_name = "PATH")]
    last_mounted: Option<OsString>,
    /// Blocks on one disk of an array before the next.
    #[arg(long, value_name = "BLOCKS")]
    raid_stride: Option<u16>,
    /// Blocks of one stripe over all disks of an array.
    #[arg(long, value_name = "BLOCKS")]
    raid_stripe: Option<u32>,
    /// Features to turn on, or with ^ off: has_journal, orphan_file, quota, project, metadata_csum,
    /// uninit_bg, metadata_csum_seed, 64bit, stable_inodes, extent; only on: dir_index, extra_isize,
    /// ea_inode, large_dir, large_file, huge_file, dir_nlink, verity.
    #[arg(short = 'O', long, value_name = "LIST", value_parser = features)]
    features: Option<FeatureChange>,
    /// Replace the journal with one of this size.
    #[arg(short = 'J', long, value_name = "SIZE", value_parser = crate::size::parse)]
    journal_size: Option<u64>,
    /// The hash of new directory indexes.
    #[arg(long, value_enum)]
    hash: Option<Hash>,
    /// Bytes of an inode: a power of two, larger than before.
    #[arg(short = 'I', long, value_name = "BYTES")]
    inode_size: Option<u16>,
    /// Map all files by extents, as new files of ext4 are.
    #[arg(long)]
    convert_maps: bool,
}

/// What the image has become, in JSON.
#[derive(Serialize)]
struct TunedJson {
    features: Vec<String>,
    inode_size: u16,
    descriptor_size: u16,
    blocks_moved: u64,
    maps_converted: u64,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OnError {
    /// Go on as if nothing had happened.
    Continue,
    /// Make the mount read-only.
    RemountRo,
    /// Stop the machine.
    Panic,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Hash {
    Legacy,
    #[value(name = "half_md4", alias = "half-md4")]
    HalfMd4,
    Tea,
}

fn features(list: &str) -> Result<FeatureChange, String> {
    Features::parse(list).map_err(|error| error.to_string())
}

fn mount_options(list: &str) -> Result<MountOptionChange, String> {
    MountOptionChange::parse(list).map_err(|name| {
        let known: Vec<_> = mount_option_names().collect();
        format!("'{name}' isn't one of {}", known.join(", "))
    })
}

/// Reads a time as `tune2fs -i` does.
fn check_interval(text: &str) -> Result<u32, String> {
    const DAY_SECONDS: u32 = 86_400;
    const UNITS: [(char, u32); 5] = [
        ('s', 1),
        ('h', 3600),
        ('d', DAY_SECONDS),
        ('w', 7 * DAY_SECONDS),
        ('m', 30 * DAY_SECONDS),
    ];
    let unit = UNITS.into_iter().find(|(letter, _)| text.ends_with(*letter));
    let (number, seconds) = match unit {
        Some((letter, seconds)) => (text.strip_suffix(letter).unwrap_or(text), seconds),
        None => (text, DAY_SECONDS),
    };
    let number: u32 = number.parse().map_err(|_| {
        format!("'{text}' isn't a time: a number of days, or a number with s, h, d, w or m")
    })?;
    number.checked_mul(seconds).ok_or_else(|| format!("{text} is too long"))
}

fn bytes(text: &Option<OsString>) -> Option<Vec<u8>> {
    text.as_ref().map(|text| text.as_bytes().to_vec())
}

impl Changes {
    fn tuning(&self) -> Tuning {
        let percent = self.reserved_percent.map(ReservedSpace::Percent);
        Tuning::default()
            .label(bytes(&self.label))
            .uuid(self.uuid.map(Uuid::into_bytes))
            .reserved(self.reserved_blocks.map(ReservedSpace::Blocks).or(percent))
            .reserved_user(self.reserved_user)
            .reserved_group(self.reserved_group)
            .error_policy(self.errors.map(|policy| match policy {
                OnError::Continue => ErrorPolicy::Continue,
                OnError::RemountRo => ErrorPolicy::ReadOnly,
                OnError::Panic => ErrorPolicy::Panic,
            }))
            .mount_options(self.mount_options)
            .extended_mount_options(bytes(&self.extended_mount_options))
            .max_mount_count(self.max_mounts.map(|count| count.max(0).cast_unsigned()))
            .mount_count(self.mounts)
            .check_interval_seconds(self.check_interval)
            .check_time_seconds(self.checked)
            .last_mounted(bytes(&self.last_mounted))
            .features(self.features.unwrap_or_default())
            .journal_bytes(self.journal_size)
            .inode_size(self.inode_size)
            .convert_maps(self.convert_maps)
            .raid_stride_blocks(self.raid_stride)
            .raid_stripe_blocks(self.raid_stripe)
            .hash_version(self.hash.map(|hash| match hash {
                Hash::Legacy => HashVersion::Legacy,
                Hash::HalfMd4 => HashVersion::HalfMd4,
                Hash::Tea => HashVersion::Tea,
            }))
    }
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let Some(changes) = &arguments.changes else {
        return Err(Failure::Usage("name at least one setting".to_string()));
    };
    let path = &arguments.image;
    let tuned = change_whole(path, arguments.undo.clone(), global, |options| {
        let steps = Steps::new(global.quiet);
        let tuned = tune_image(path, &changes.tuning(), options, &mut |progress| {
            steps.step(progress.step, progress.done, progress.total);
        });
        steps.end();
        tuned
    })?;
    if global.json {
        print_line(&serde_json::to_string(&TunedJson {
            features: tuned.features.names(),
            inode_size: tuned.inode_size,
            descriptor_size: tuned.descriptor_size,
            blocks_moved: tuned.blocks_moved,
            maps_converted: tuned.maps_converted,
        })?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_tune2fs() {
        let day = 86_400;
        for (text, seconds) in [
            ("0", 0),
            ("30", 30 * day),
            ("30d", 30 * day),
            ("6m", 180 * day),
            ("2w", 14 * day),
            ("90s", 90),
            ("12h", day / 2),
        ] {
            assert_eq!(check_interval(text), Ok(seconds), "{text}");
        }
        for text in ["", "d", "-1", "1y", "1.5d", "1dd", "60000d"] {
            assert!(check_interval(text).is_err(), "{text}");
        }
    }
}
