//! `label`: shows or changes the label of an image.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::{AtImage, change_whole};
use crate::location::whole_image;
use crate::terminal::{Output, print_line};
use clap::builder::{OsStringValueParser, TypedValueParser};
use drystone::reshape::Tuning;
use drystone::{Information, tune_image};
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Show or change the label of an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  drystone label disk.img
  drystone label disk.img root
  drystone label disk.img ''")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
    /// The new label, of up to 16 bytes; an empty one removes it.
    #[arg(value_name = "LABEL", value_parser = parser())]
    label: Option<OsString>,
}

/// The longest label that a superblock of ext4 holds.
const LABEL_BYTES_MAX: usize = 16;

/// Reads the label of an ext4 image.
pub fn parser() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|label| match label.len() {
        0..=LABEL_BYTES_MAX => Ok(label),
        bytes => Err(format!("a label has at most {LABEL_BYTES_MAX} bytes; this has {bytes}")),
    })
}

#[derive(Serialize)]
struct LabelJson {
    label: String,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let path = &arguments.image;
    match &arguments.label {
        Some(label) => {
            let label = Some(label.as_bytes().to_vec());
            let tuning = Tuning::default().label(label);
            change(path, &tuning, global)
        }
        None => show(path, global),
    }
}

fn show(path: &Path, global: &Global) -> Outcome {
    let label = match information(path)? {
        Information::Ext4(information) => information.label,
        Information::Nilfs2(information) => information.label,
    };
    if global.json {
        print_line(&serde_json::to_string(&LabelJson { label })?)?;
    } else {
        Output::with_stdout(false, |output| {
            output.name(label.as_bytes())?;
            Ok(writeln!(output)?)
        })?;
    }
    Ok(())
}

/// What the superblock says.
pub fn information(path: &Path) -> anyhow::Result<Information> {
    Information::read(path).at_image(path)
}

/// Changes settings of an image.
pub fn change(path: &Path, tuning: &Tuning, global: &Global) -> Outcome {
    change_whole(path, None, global, |options| tune_image(path, tuning, options, &mut |_| {}))?;
    Ok(())
}
