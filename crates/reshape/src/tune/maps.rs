//! Block maps that become extents.

use super::Tuned;
use crate::error::{Refusal, Result};
use crate::image::Image;
use crate::moves::Moves;
use crate::progress::ReshapeProgress;
use crate::rewrite::{InodeNumbers, Rewriter};
use drystone_ext4_format::features::{Incompat, ReadOnlyCompat};
use drystone_ext4_format::inode::InodeFlags;

/// Maps all files by extents.
pub(super) fn convert_maps(
    image: &mut Image<'_>,
    tuned: &mut Tuned,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<()> {
    let mut geometry = image.superblock.geometry();
    geometry.features.incompat |= Incompat::EXTENTS;
    image.set_superblock(image.superblock.with_geometry(&geometry)?);
    let layout = image.layout;
    let (moves, numbers) = (Moves::default(), InodeNumbers::default());
    let mut rewriter = Rewriter::new(image, layout, &moves, &numbers);
    let total = u64::from(layout.group_count());
    for group in layout.groups() {
        tuned.maps_converted += rewriter.group_to_extents(group)?;
        let done = u64::from(group.get()) + 1;
        progress(ReshapeProgress { step: "converting block maps", done, total });
    }
    rewriter.finish()
}

/// Checks that an image can do without extents.
pub(super) fn check_no_extents(image: &Image<'_>) -> Result<()> {
    let refuse = |text: String| Err(Refusal::Value(text).into());
    if image.superblock.features().read_only_compat.contains(ReadOnlyCompat::BIGALLOC) {
        return refuse("it can't lose extent: clusters (bigalloc) need it".into());
    }
    let mut count = 0u64;
    for group in image.layout.groups() {
        for number in image.used_inodes(group)? {
            let (inode, _) = image.read_inode(number)?;
            count += u64::from(inode.flags.contains(InodeFlags::EXTENTS));
        }
    }
    match count {
        0 => Ok(()),
        _ => refuse(format!("it can't lose extent: {count} of its files are mapped by extents")),
    }
}
