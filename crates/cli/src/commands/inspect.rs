//! `inspect`: shows structures of an image as they are stored.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::AtImage;
use crate::location::whole_image;
use crate::output::Escaped;
use crate::terminal::Output;
use drystone::inspection::{ChecksumVerdict, Decoded, ImagePart};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Show a structure of an image, byte by byte
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each field is shown with its offset in the image, its length in bytes and its value. Each structure is shown with \
its problems and whether its checksum is right. The journal isn't replayed: you see what is stored. The image may be \
damaged; if the superblock is unusable, a copy of it is used. Instead of a PATH, you can give an inode number in angle \
brackets: '<8>'.

Examples:
  drystone inspect disk.img superblock
  drystone inspect disk.img group 0
  drystone inspect disk.img inode 2
  drystone inspect disk.img block 1
  drystone inspect disk.img journal
  drystone inspect disk.img extents /file
  drystone inspect indexed.img htree /many
  drystone inspect --json disk.img inode 2 | jq -r .checksum")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// The superblock, and fields in which its copies differ.
    Superblock,
    /// A block group: its descriptor, bitmaps and inode table.
    Group { number: u32 },
    /// An inode, the root of its extent tree or block map, and its extended attributes.
    Inode { number: u32 },
    /// A block, decoded as the structure that it holds.
    Block { number: u64 },
    /// The journal's superblock, and its descriptor, commit and revoke blocks in the log, old ones too.
    Journal,
    /// The index of a directory, and the names in its leaves with their hashes.
    Htree { path: OsString },
    /// The extent tree or block map of a file.
    Extents { path: OsString },
}

impl Part {
    fn named(&self) -> ImagePart {
        match self {
            Part::Superblock => ImagePart::Superblock,
            Part::Group { number } => ImagePart::Group((*number).into()),
            Part::Inode { number } => ImagePart::Inode((*number).into()),
            Part::Block { number } => ImagePart::Block((*number).into()),
            Part::Journal => ImagePart::Journal,
            Part::Htree { path } => ImagePart::Htree(path.as_bytes().to_vec()),
            Part::Extents { path } => ImagePart::Extents(path.as_bytes().to_vec()),
        }
    }
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let path = &arguments.image;
    let decoded = drystone::inspect_image(path, &arguments.part.named()).at_image(path)?;
    Output::with_stdout(global.json, |output| {
        if output.json {
            output.json(&decoded)?;
        } else {
            show(&decoded, 0, output)?;
        }
        Ok(())
    })
}

/// A structure and its parts, each level two columns further in. Names in an image may hold anything.
fn show(decoded: &Decoded, indent: usize, output: &mut Output<'_>) -> std::io::Result<()> {
    let name = Escaped(decoded.name.as_bytes());
    write!(output, "{:indent$}{name}: {} bytes at {:#x}", "", decoded.length, decoded.offset)?;
    match decoded.checksum {
        ChecksumVerdict::None => writeln!(output)?,
        ChecksumVerdict::Good => writeln!(output, ", checksum good")?,
        ChecksumVerdict::Wrong => writeln!(output, ", CHECKSUM WRONG")?,
    }
    for problem in &decoded.problems {
        writeln!(output, "{:indent$}  PROBLEM: {}", "", Escaped(problem.as_bytes()))?;
    }
    for field in &decoded.fields {
        let name = Escaped(field.name.as_bytes()).to_string();
        let (offset, length, value) = (field.offset, field.length, &field.value);
        write!(output, "{:indent$}  {offset:#010x} {length:>3} {name:<24} {value}", "")?;
        if let Some(meaning) = &field.meaning {
            write!(output, " ({})", Escaped(meaning.as_bytes()))?;
        }
        writeln!(output)?;
    }
    decoded.parts.iter().try_for_each(|part| show(part, indent + 2, output))
}
