//! Makes the kernel offer FUSE over io_uring for a while.
//!
//! It is a setting of the whole machine, off by default. A test that changes it locks its file first, so
//! that no other test takes the temporary value for the one to restore.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;

/// The file of the setting.
pub const OFFERED: &str = "/sys/module/fuse/parameters/enable_uring";

/// Rings are offered until this is dropped; no other test changes the setting meanwhile.
#[derive(Debug)]
pub struct Offer {
    setting: File,
    before: Vec<u8>,
}

/// Makes the kernel offer rings; waits while another test does.
///
/// # Errors
///
/// This kernel has no rings, or the caller may not turn them on.
pub fn offer() -> io::Result<Offer> {
    Offer::of(Path::new(OFFERED))
}

impl Offer {
    fn of(path: &Path) -> io::Result<Offer> {
        let mut setting = File::options().read(true).write(true).open(path)?;
        flock(&setting, FlockOperation::LockExclusive)?;
        let mut before = Vec::new();
        setting.read_to_end(&mut before)?;
        let mut offer = Offer { setting, before };
        offer.set(b"Y\n")?;
        Ok(offer)
    }

    fn set(&mut self, value: &[u8]) -> io::Result<()> {
        self.setting.rewind()?;
        self.setting.write_all(value)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let before = std::mem::take(&mut self.before);
        if let Err(error) = self.set(&before) {
            eprintln!("{OFFERED}: can't be set back: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_sync::thread;
    use std::fs;

    #[test]
    fn offers_at_once_leave_what_was_there() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "N\n").unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let offer = Offer::of(file.path()).unwrap();
                        assert_eq!(offer.before, b"N\n");
                        assert_eq!(fs::read(file.path()).unwrap(), b"Y\n");
                    }
                });
            }
        });
        assert_eq!(fs::read(file.path()).unwrap(), b"N\n");
    }
}
