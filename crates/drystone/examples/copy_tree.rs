//! Copies a tree of this machine into a new image with several threads, and checks the image.
//!
//! `cargo run -p drystone --example copy_tree -- TREE /path/of/a/new/image`
#![forbid(unsafe_code)]

use drystone::{CreateOptions, Image, check_image, fsck};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(tree), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("a tree and the path of a new image".into());
    };
    let image = Image::create(&path, &CreateOptions::new(256 << 20))?;
    let summary = image.fs().copy_in(tree, "/tree")?;
    image.close()?;

    let report = check_image(&path, &fsck::CheckOptions::default(), &mut |_| {})?;
    println!("{} files, {} bytes, {} errors", summary.files, summary.bytes, report.errors);
    Ok(())
}
