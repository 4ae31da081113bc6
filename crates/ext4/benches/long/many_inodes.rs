//! An image with twenty million inodes opens at once.

use crate::image::Image;
use crate::process::{resident_bytes, wall_ns};

const INODES: u32 = 20_000_000;
const OPEN_NS_MAX: u64 = 1_000_000_000;

pub fn run() -> Result<(), String> {
    let start_ns = wall_ns();
    let image = Image::new("many-inodes", 320 << 30, INODES);
    println!("  mkfs: {:.3} s", (wall_ns() - start_ns) as f64 / 1e9);
    let resident = resident_bytes();
    let start_ns = wall_ns();
    let fs = image.open();
    let open_ns = wall_ns() - start_ns;
    println!("  open: {:.3} s", open_ns as f64 / 1e9);
    println!("  memory: {} KiB", resident_bytes().saturating_sub(resident) / 1024);
    fs.close().map_err(|error| error.to_string())?;
    if open_ns > OPEN_NS_MAX {
        return Err("opening took more than a second".to_owned());
    }
    Ok(())
}
