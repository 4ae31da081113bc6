//! Checks the images named as arguments and prints what is wrong with them, one line each.

use drystone_blockdev::{FileDevice, OpenMode};
use drystone_fsck::{CheckOptions, check};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut are_clean = true;
    for path in std::env::args_os().skip(1) {
        let device = FileDevice::open(&path, OpenMode::ReadOnly)?;
        let report = check(&device, &CheckOptions::default(), &mut |_| {})?;
        for problem in &report.problems {
            println!("{problem}");
        }
        println!("{}: {}", path.display(), report.summary);
        are_clean &= report.is_clean();
    }
    std::process::exit(if are_clean { 0 } else { 4 });
}
