//! `uuid`: shows or changes the UUID of an image.

use super::label::{change, information};
use crate::failure::Outcome;
use crate::global::Global;
use crate::location::whole_image;
use crate::terminal::print_line;
use drystone::Information;
use drystone::reshape::Tuning;
use serde::Serialize;
use std::path::PathBuf;
use uuid::Uuid;

/// Show or change the UUID of an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Checksums of metadata begin with the UUID. They stay as they are: their seed is stored from now on (the \
feature 'metadata_csum_seed').

Examples:
  drystone uuid disk.img
  drystone uuid disk.img random
  drystone uuid disk.img 12345678-1234-4234-8234-123456789abc")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
    /// The new UUID, or 'random', 'time' (one that is made from the time) or 'clear' (all zeros).
    #[arg(value_name = "UUID", value_parser = parse)]
    uuid: Option<Uuid>,
}

#[derive(Serialize)]
struct UuidJson {
    uuid: String,
}

/// Reads a UUID, or makes one.
pub fn parse(text: &str) -> Result<Uuid, String> {
    match text {
        "random" => Ok(Uuid::new_v4()),
        "time" => Ok(of_this_time()),
        "clear" => Ok(Uuid::nil()),
        _ => Uuid::try_parse(text)
            .map_err(|_| format!("'{text}' isn't a UUID, 'random', 'time' or 'clear'")),
    }
}

/// A UUID of version 7: the time, then random bytes.
fn of_this_time() -> Uuid {
    let (seconds, nanoseconds) = drystone_sync::clock::wall();
    let milliseconds = seconds.unsigned_abs() * 1000 + u64::from(nanoseconds) / 1_000_000;
    let [random @ .., _, _, _, _, _, _] = Uuid::new_v4().into_bytes();
    uuid::Builder::from_unix_timestamp_millis(milliseconds, &random).into_uuid()
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let path = &arguments.image;
    if let Some(uuid) = arguments.uuid {
        let tuning = Tuning::default().uuid(uuid.into_bytes());
        return change(path, &tuning, global);
    }
    let uuid = match information(path)? {
        Information::Ext4(information) => information.uuid,
        Information::Nilfs2(information) => information.uuid,
    };
    if global.json {
        print_line(&serde_json::to_string(&UuidJson { uuid })?)?;
    } else {
        print_line(&uuid)?;
    }
    Ok(())
}
