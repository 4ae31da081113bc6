//! Makes an image, writes a file through the journaled engine and reads it back.
//!
//! `cargo run -p drystone --example hello -- /path/of/a/new/image`
#![forbid(unsafe_code)]

use drystone::{CreateOptions, Image};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path: PathBuf = std::env::args_os().nth(1).ok_or("the path of a new image")?.into();
    let image = Image::create(&path, &CreateOptions::new(64 << 20))?;
    let fs = image.fs();
    fs.write("/hello", "hello from the wall\n")?;
    // Durable from here on, whatever happens.
    fs.open("/hello")?.sync_all()?;
    print!("{}", fs.read_to_string("/hello")?);
    image.close()?;
    Ok(())
}
