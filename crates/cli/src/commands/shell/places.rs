//! The program's command line as a shell has it: what names a place in an image is a path.

use crate::location::{AnyLocation, Location};
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What begins a word that names a place on this machine. No line has a null byte.
pub const HOST_MARK: u8 = 0;

/// The image, and the directory that relative paths start at.
#[derive(Clone, Debug)]
pub struct Here {
    pub image: PathBuf,
    /// Absolute, without symbolic links.
    pub directory: PathBuf,
    /// The definition of the program's command line.
    pub program: fn() -> clap::Command,
}

impl Here {
    /// The path that a word stands for.
    pub fn path(&self, word: &OsStr) -> PathBuf {
        self.directory.join(Path::new(word))
    }

    /// The place that a word stands for.
    pub fn location(&self, word: &OsStr) -> Location {
        Location { image: self.image.clone(), path: self.path(word) }
    }

    fn any_location(&self, word: &OsStr) -> AnyLocation {
        match word.as_bytes() {
            [HOST_MARK, path @ ..] => AnyLocation::Host(OsStr::from_bytes(path).into()),
            b"-" => AnyLocation::Host("-".into()),
            _ => AnyLocation::Image(self.location(word)),
        }
    }

    /// That definition for paths that start here.
    pub fn definition(&self) -> clap::Command {
        (self.program)().no_binary_name(true).mut_subcommands(|command| {
            // Its examples name images.
            command.after_help("").mut_args(|argument| self.adapted(argument))
        })
    }

    fn adapted(&self, argument: clap::Arg) -> clap::Arg {
        let parsed = argument.get_value_parser().type_id();
        let here = self.clone();
        if parsed == TypeId::of::<Location>() {
            let parser = checked().map(move |word| here.location(&word));
            argument.value_name("PATH").value_parser(parser)
        } else if parsed == TypeId::of::<AnyLocation>() {
            let parser = checked().map(move |word| here.any_location(&word));
            argument.value_name("PATH").value_parser(parser)
        } else {
            argument
        }
    }
}

/// Reads a word that isn't empty.
fn checked() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|word| match word.is_empty() {
        true => Err("an empty path"),
        false => Ok(word),
    })
}
