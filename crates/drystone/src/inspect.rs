//! Looks inside ext4 images, which may be damaged.

use crate::error::on_image;
use crate::settled::open_settled;
use crate::{Error, VolumeName};
use drystone_blockdev::OpenMode;
use drystone_ext4_format::InodeNumber;
use drystone_inspect::{
    BlockOwner, Decoded, ImagePart, InodeName, InspectedImage, inspect, names_of, owners_of,
};
use std::path::Path;

/// Shows a part of the ext4 image that `name` stands for, as it is stored. Its journal isn't replayed.
///
/// # Errors
///
/// [`ErrorCause::Inspect`](crate::ErrorCause::Inspect) if there is no such part. Damage in it is shown.
pub fn inspect_image(name: &Path, subject: &ImagePart) -> Result<Decoded, Error> {
    on_image("inspect", name, || {
        let name = VolumeName::find_whole(name)?;
        let device = open_settled(&name, OpenMode::ReadOnly)?;
        Ok(inspect(&*device, subject)?)
    })
}

/// What each of these blocks is for, in the ext4 image that `name` stands for.
///
/// # Errors
///
/// As for [`inspect_image`].
pub fn which_inode(name: &Path, blocks: &[u64]) -> Result<Vec<BlockOwner>, Error> {
    on_image("inspect", name, || {
        let name = VolumeName::find_whole(name)?;
        let device = open_settled(&name, OpenMode::ReadOnly)?;
        Ok(owners_of(&InspectedImage::open(&*device)?, blocks)?)
    })
}

/// All names of these inodes, in the ext4 image that `name` stands for.
///
/// # Errors
///
/// As for [`inspect_image`].
pub fn which_name(name: &Path, inodes: &[u32]) -> Result<Vec<InodeName>, Error> {
    on_image("inspect", name, || {
        let name = VolumeName::find_whole(name)?;
        let device = open_settled(&name, OpenMode::ReadOnly)?;
        let inodes: Vec<InodeNumber> =
            inodes.iter().map(|&inode| InodeNumber::new(inode)).collect();
        Ok(names_of(&InspectedImage::open(&*device)?, &inodes)?)
    })
}
