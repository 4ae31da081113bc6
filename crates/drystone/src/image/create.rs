//! How an image is made by [`Image::create`] and [`Image::in_memory`].

use super::Image;
use crate::make::{make_image, make_nilfs2};
use crate::{FileSystemKind, ImageOptions, Result};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_mkfs::{MkfsOptions, NewImage};
use drystone_nilfs2::mkfs::MakeOptions;
use drystone_sync::Arc;
use std::path::Path;
use uuid::Uuid;

/// How to make an image. What isn't said here is as `mke2fs` would have it; [`make_image`] and
/// [`make_nilfs2`] take every detail.
///
/// ```no_run
/// use drystone::{CreateOptions, Image};
///
/// # fn main() -> drystone::Result<()> {
/// let image = Image::create("disk.img", &CreateOptions::new(64 << 20).label("data"))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CreateOptions {
    /// Bytes of the image.
    pub size_bytes: u64,
    /// What the image holds: ext4 by default.
    pub kind: FileSystemKind,
    /// The label: at most 16 bytes, 80 in NILFS2.
    pub label: String,
    /// The identity; `None` for a random one.
    pub uuid: Option<Uuid>,
    /// Replace what the file or device holds; otherwise it must be empty or new.
    pub overwrite: bool,
}

drystone_options::setters! {
    CreateOptions {
        kind: FileSystemKind,
        label: impl Into<String>,
        uuid: impl Into<Option<Uuid>>,
        overwrite: bool,
    }
}

impl CreateOptions {
    /// An ext4 image of this size.
    #[must_use]
    pub fn new(size_bytes: u64) -> CreateOptions {
        CreateOptions {
            size_bytes,
            kind: FileSystemKind::Ext4,
            label: String::new(),
            uuid: None,
            overwrite: false,
        }
    }

    pub(super) fn create(&self, name: &Path) -> Result<Image> {
        match self.kind {
            FileSystemKind::Nilfs2 => {
                make_nilfs2(name, self.size_bytes, &self.for_nilfs2(), self.overwrite)?;
            }
            FileSystemKind::Ext4 => {
                make_image(name, &self.for_ext4(), self.overwrite)?;
            }
        }
        ImageOptions::default().open(name)
    }

    pub(super) fn in_memory(&self) -> Result<Image> {
        let device = MemoryDevice::new(self.size_bytes);
        match self.kind {
            FileSystemKind::Nilfs2 => drystone_nilfs2::mkfs::make(&device, &self.for_nilfs2())?,
            FileSystemKind::Ext4 => {
                NewImage::new(&self.for_ext4())?.write(&device, true)?;
            }
        }
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        ImageOptions::default().open_device(device)
    }

    fn for_ext4(&self) -> MkfsOptions {
        let seed = Uuid::new_v4().as_u128();
        let hash_seed = [0, 32, 64, 96].map(|shift| (seed >> shift) as u32);
        let uuid = self.identity().into_bytes();
        let mut options = MkfsOptions::new(self.size_bytes, uuid, hash_seed, now_seconds());
        options.label = self.label.clone().into_bytes();
        options
    }

    fn for_nilfs2(&self) -> MakeOptions {
        let seed = Uuid::new_v4().as_fields().0;
        let mut options = MakeOptions::new(self.identity(), seed, now_seconds());
        options.label = self.label.clone().into_bytes();
        options
    }

    fn identity(&self) -> Uuid {
        self.uuid.unwrap_or_else(Uuid::new_v4)
    }
}

fn now_seconds() -> u64 {
    u64::try_from(drystone_sync::clock::wall().0).unwrap_or_default()
}
