//! `cat`: prints the content of files.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::terminal::Output;
use crate::tree::ImageTree;
use std::io::{Read, Write};
use std::path::Path;

/// Read at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Print the content of files
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  drystone cat disk.img:/etc/fstab
  drystone cat disk.img:/var/log/syslog disk.img:/var/log/dmesg | less")]
pub struct Arguments {
    /// The files.
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = Location::path_parser())]
    files: Vec<Location>,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    print_all(&arguments.files, global)
}

/// Prints the content of files, one after the other.
pub fn print_all(files: &[Location], global: &Global) -> Outcome {
    with_each(files, Intent::Read, global, |tree, paths| {
        Output::with_stdout(false, |output| tree.for_each(paths, |path| print(tree, path, output)))
    })
}

fn print(tree: &ImageTree<'_>, path: &Path, output: &mut Output<'_>) -> Outcome {
    let problem = |error| tree.error_at(path, error);
    let mut file = tree.fs.open(path).map_err(problem)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = file.read(&mut buffer).map_err(|error| problem(error.into()))?;
        if length == 0 {
            return Ok(());
        }
        output.write_all(&buffer[..length])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{example, printed, put, tree_of};

    #[test]
    fn all_of_a_file_is_printed() {
        let image = example(&["a/b"]);
        let long: String = "0123456789abcdef".repeat(100_000);
        put(&image, "long", long.as_bytes());
        let tree = tree_of(&image);
        assert_eq!(printed(false, |out| print(&tree, Path::new("/a/b"), out).unwrap()), "a/b");
        assert!(printed(false, |out| print(&tree, Path::new("/long"), out).unwrap()) == long);
        printed(false, |out| assert!(print(&tree, Path::new("/a"), out).is_err()));
        printed(false, |out| assert!(print(&tree, Path::new("/nothing"), out).is_err()));
        drop(tree);
        assert_eq!(image.references(), 0);
    }
}
