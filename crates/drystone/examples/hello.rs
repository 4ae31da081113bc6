//! Makes an image, writes a file through the journaled engine and reads it back.
//!
//! `cargo run -p drystone --example hello -- /path/of/a/new/image`
#![forbid(unsafe_code)]

use drystone::mkfs::Options;
use drystone::vfs::{NewNode, RequestContext};
use drystone::{Image, OpenOptions, make_image};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path: PathBuf = std::env::args_os().nth(1).ok_or("the path of a new image")?.into();
    make_image(&path, &Options::new(64 << 20, [0x42; 16], [1, 2, 3, 4], 1_700_000_000), false)?;

    let image = Image::open(&path, &OpenOptions::default())?;
    let files = image.file_system();
    let me = RequestContext::superuser();
    let file = files.create(&me, files.root(), b"hello", NewNode::Regular, 0o644)?;
    files.write(&me, file.inode, 0, b"hello from the wall\n")?;
    // Durable from here on, whatever happens.
    files.sync_inode(file.inode, false)?;

    let mut buffer = [0; 64];
    let length = files.read(file.inode, 0, &mut buffer)?;
    print!("{}", String::from_utf8_lossy(&buffer[..length]));
    files.forget(file.inode, 1);
    image.close()?;
    Ok(())
}
