//! `set`: sets single fields of an image.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::change_whole;
use crate::location::whole_image;
use crate::output::Escaped;
use crate::terminal::Output;
use drystone::inspection::{FieldValue, ImagePart, SetField, SetOptions};
use drystone::set_fields;
use std::io::Write;
use std::path::PathBuf;

/// The error without `--i-know`.
const WARNING: &str = "\
set writes the values without checking that they make sense: files can be lost, and programs that use the image, \
Linux among them, can fail or do further damage. Add --i-know to do it, and --undo FILE to be able to undo it";

/// Set single fields of an image, for tests and for repairs by hand
#[derive(Debug, clap::Args)]
#[command(after_help = "\
FIELD is the name of a field that 'drystone inspect' shows for the same structure. If several inner structures have a \
field of that name, put the name of one, or a prefix of it, in front: 'extent tree, root/entries=1'. If one structure \
has several fields of that name, append the offset: 'name@0x41200'. The name of a directory entry stands for its inode \
number; NAME.record_length, NAME.name_length and NAME.file_type are its other fields. A bitmap has the fields bit[0], \
bit[1], ….

VALUE is a number: decimal, hexadecimal after 0x or octal after 0, with or without a minus sign. Names are text and \
UUIDs have their usual form. Other fields of more than 8 bytes take hexadecimal digits, two for each byte, as 'inspect' \
shows them; names take them after 'hex:'.

The checksum of the structure is then computed, even if it was wrong before; --keep-checksum leaves it as it is. \
Nothing else changes. Copies of the superblock and of descriptors stay as they are. So do checksums elsewhere that \
depend on the field: a new UUID makes those of all metadata wrong, a new generation those of a file's blocks.

The image must not be in use. Its journal isn't replayed: if it has to be, the replay may overwrite the field.

Examples:
  drystone set disk.img superblock mnt_count=7 --i-know
  drystone set disk.img inode 12 mtime=0 mode=0100600 --i-know
  drystone set old.img group 0 free_inodes_count=9 --i-know --undo before.undo
  drystone set old.img inode 2 'extent tree, root/entries=0' --i-know
  drystone set old.img inode 11 links_count=9 --keep-checksum --i-know")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
    #[command(subcommand)]
    part: SetPart,
    /// Do it: the image may be unusable afterwards.
    #[arg(long, global = true)]
    i_know: bool,
    /// Leave checksums as they are.
    #[arg(long, global = true)]
    keep_checksum: bool,
    /// Keep the old bytes in this file, so that 'drystone undo' can take the change back.
    #[arg(long, global = true, value_name = "FILE")]
    undo: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum SetPart {
    /// The superblock, not its copies.
    Superblock(Assignments),
    /// The descriptor of a block group, and its bitmaps.
    Group {
        number: u32,
        #[command(flatten)]
        what: Assignments,
    },
    /// An inode, the root of its extent tree or block map, and its extended attributes.
    Inode {
        number: u32,
        #[command(flatten)]
        what: Assignments,
    },
    /// A block, decoded as the structure that it holds.
    Block {
        number: u64,
        #[command(flatten)]
        what: Assignments,
    },
    /// The journal's superblock.
    Journal(Assignments),
}

#[derive(Debug, clap::Args)]
struct Assignments {
    /// A field and its new value.
    #[arg(required = true, value_name = "FIELD=VALUE", value_parser = assignment)]
    fields: Vec<String>,
}

fn assignment(text: &str) -> Result<String, &'static str> {
    if text.contains('=') { Ok(text.to_owned()) } else { Err("write it as FIELD=VALUE") }
}

impl SetPart {
    fn named(&self) -> (ImagePart, &[String]) {
        match self {
            SetPart::Superblock(what) => (ImagePart::Superblock, &what.fields),
            SetPart::Group { number, what } => (ImagePart::Group((*number).into()), &what.fields),
            SetPart::Inode { number, what } => (ImagePart::Inode((*number).into()), &what.fields),
            SetPart::Block { number, what } => (ImagePart::Block((*number).into()), &what.fields),
            SetPart::Journal(what) => (ImagePart::Journal, &what.fields),
        }
    }
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    if !arguments.i_know {
        return Err(Failure::Usage(WARNING.to_string()));
    }
    let path = &arguments.image;
    let (part, assignments) = arguments.part.named();
    let set = SetOptions::default().keep_checksums(arguments.keep_checksum);
    let fields = change_whole(path, arguments.undo.clone(), global, |options| {
        set_fields(path, &part, assignments, set, options)
    })?;
    Output::with_stdout(global.json, |output| {
        for field in &fields {
            if output.json {
                output.json(field)?;
            } else if !global.quiet {
                show(field, output)?;
            }
        }
        Ok(())
    })
}

/// Names in an image may hold anything.
fn show(field: &SetField, output: &mut Output<'_>) -> std::io::Result<()> {
    let (structure, name) = (Escaped(field.structure.as_bytes()), Escaped(field.field.as_bytes()));
    let value = |value: &FieldValue, meaning: &Option<String>| match meaning {
        Some(meaning) => format!("{value} ({})", Escaped(meaning.as_bytes())),
        None => value.to_string(),
    };
    let before = value(&field.before, &field.before_meaning);
    let after = value(&field.after, &field.after_meaning);
    writeln!(output, "{structure}: {name}: {before} -> {after}")
}
