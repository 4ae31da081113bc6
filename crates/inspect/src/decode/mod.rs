//! Decodes structures as they are stored: fields with their offsets and values, checksums, problems.
//!
//! [`inspect`] finds a structure. `field` holds what all decoders share; each other module decodes one structure.

mod block;
mod directory;
mod field;
mod group;
mod inode;
mod journal;
mod meaning;
mod superblock;

pub(crate) use field::{Builder, Structure};
pub use field::{ChecksumVerdict, Decoded, DecodedField, FieldValue};
pub(crate) use meaning::{BytesForm, form_of, of_bytes};

use crate::error::{InspectError, Result};
use crate::image::InspectedImage;
use crate::names::find_path;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};

/// What is to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImagePart {
    /// The superblock, and where its copies differ.
    Superblock,
    /// A group: its descriptor and what that leads to.
    Group(GroupNumber),
    /// An inode, by number.
    Inode(InodeNumber),
    /// A block, decoded as the structure that it holds.
    Block(PhysicalBlock),
    /// The journal: its superblock, and the descriptor, commit and revoke blocks in the log.
    Journal,
    /// The index of the directory with this path, and the names in its leaves.
    Htree(Vec<u8>),
    /// The extent tree or block map of the file with this path.
    Extents(Vec<u8>),
}

/// Shows a part of the image on `device`.
///
/// # Errors
/// The image has no such part, or a structure that leads to it is unusable. Damage in the part itself is shown.
pub fn inspect(device: &dyn BlockDevice, subject: &ImagePart) -> Result<Decoded> {
    if *subject == ImagePart::Superblock {
        return superblock::superblock(device);
    }
    let image = InspectedImage::open(device)?;
    match subject {
        ImagePart::Superblock => superblock::superblock(device),
        ImagePart::Group(number) => group::group(&image, *number),
        ImagePart::Inode(number) => inode::inode(&image, *number),
        ImagePart::Block(block) => block::block(&image, *block),
        ImagePart::Journal => journal::journal(&image),
        ImagePart::Htree(path) => directory::htree(&image, at(&image, path)?),
        ImagePart::Extents(path) => inode::map(&image, at(&image, path)?),
    }
}

/// The inode that a path leads to, or of a number in angle brackets, as debugfs takes it.
fn at(image: &InspectedImage<'_>, path: &[u8]) -> Result<InodeNumber> {
    let text = String::from_utf8_lossy(path);
    let number = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
    if let Some(number) = number.and_then(|text| text.parse().ok()) {
        return Ok(InodeNumber::new(number));
    }
    let found = find_path(image, path)?;
    found.ok_or_else(|| InspectError::Missing(format!("there is no {text} in the image")))
}
