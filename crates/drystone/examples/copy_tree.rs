//! Copies a tree of this machine into a new image with several threads, and checks the image.
//!
//! `cargo run -p drystone --example copy_tree -- TREE /path/of/a/new/image`
#![forbid(unsafe_code)]

use drystone::mkfs::Options;
use drystone::transfer::{CopyProblem, Endpoint, Item, Monitor, copy};
use drystone::{Image, OpenOptions, check_image, fsck, make_image};
use std::path::{Path, PathBuf};

/// Says what went wrong and counts nothing.
struct Talker;

impl Monitor for Talker {
    fn problem(&self, problem: &CopyProblem) {
        eprintln!("can't {} {}: {}", problem.action, problem.path.display(), problem.cause);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(tree), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("a tree and the path of a new image".into());
    };
    make_image(&path, &Options::new(256 << 20, [0x42; 16], [1, 2, 3, 4], 1_700_000_000), false)?;

    let image = Image::open(&path, &OpenOptions::default())?;
    let item = Item { path: tree, name: Some("tree".into()) };
    let to = Endpoint::Image(image.file_system());
    let options = drystone::transfer::Options::default();
    let summary = copy(Endpoint::Host, &[item], to, Path::new("/"), &options, &Talker)
        .map_err(|problem| problem.cause.to_string())?;
    image.close()?;

    let report = check_image(&path, &fsck::Options::default(), &mut |_| {})?;
    println!("{} files, {} bytes, {} errors", summary.files, summary.bytes, report.errors);
    Ok(())
}
