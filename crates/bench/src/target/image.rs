//! The image that an engine in this process works on.

use super::resident::Resident;
use anyhow::{Context, Result};
use drystone_blockdev::{BlockDevice, Existing, FileDevice, OpenMode};
use drystone_sync::Arc;
use drystone_volumes::VolumeName;
use std::path::PathBuf;

/// The directory that workloads run in.
pub const DIRECTORY: &str = "drystone-bench";
/// Images are at least so large for each worker, so that there are groups to choose from.
pub const IMAGE_BYTES_MIN: u64 = 1 << 30;
/// The same for every run, so that images don't differ between runs.
pub const IMAGE_UUID: [u8; 16] = *b"drystone-bench..";

/// Where the image is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageMedium {
    /// In memory, a new one for every run.
    Memory,
    /// In a file or another volume. An existing image is used as it is and cleaned up after every run; otherwise an
    /// image is made for every run.
    File(PathBuf),
}

/// The image of a target.
pub struct BenchImage {
    medium: ImageMedium,
    /// The file didn't exist when the target was made, so it may be overwritten.
    is_ours: bool,
    /// Kept between runs so that its memory is reused.
    memory: Option<Arc<Resident>>,
}

impl BenchImage {
    /// An image in a place, where nothing is changed yet.
    pub fn new(medium: ImageMedium) -> BenchImage {
        let is_ours = match &medium {
            ImageMedium::Memory => true,
            ImageMedium::File(path) => {
                !VolumeName::find(path).is_ok_and(|name| name.source().exists())
            }
        };
        BenchImage { medium, is_ours, memory: None }
    }

    /// A device with an image of at least so many bytes. `make` makes it, and is told whether the
    /// device holds only zeros; an existing image stays as it is.
    pub fn prepare(
        &mut self,
        size_bytes: u64,
        make: &dyn Fn(&dyn BlockDevice, bool) -> Result<()>,
    ) -> Result<Arc<dyn BlockDevice>> {
        match &self.medium {
            ImageMedium::Memory => {
                let is_large_enough = |device: &&Arc<Resident>| device.size_bytes() >= size_bytes;
                let kept = self.memory.as_ref().filter(is_large_enough).cloned();
                let is_new = kept.is_none();
                let device = kept.unwrap_or_else(|| Arc::new(Resident::new(size_bytes)));
                self.memory = Some(Arc::clone(&device));
                make(&*device, is_new)?;
                Ok(device)
            }
            ImageMedium::File(path) if self.is_ours => {
                let device = FileDevice::create(path, size_bytes, Existing::Overwrite)?;
                make(&device, true)?;
                Ok(Arc::new(device))
            }
            ImageMedium::File(path) => {
                let named = || path.display().to_string();
                let name = VolumeName::find_whole(path).with_context(named)?;
                drystone_volumes::open(&name, OpenMode::ReadWrite).with_context(named)
            }
        }
    }
}
