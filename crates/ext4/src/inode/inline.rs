//! Content in the inode itself: the first bytes in the block area, the rest in the attribute
//! `system.data`.
//!
//! # Reference
//! "Inline Data" in the kernel's ext4 documentation.

use super::{Fields, XattrArea};
use crate::error::Result;
use drystone_ext4_format::inline::{self, HEAD_LENGTH, InlineData};
use drystone_ext4_format::inode::{BLOCK_AREA_BYTES, InodeFlags};
use drystone_ext4_format::xattr::{
    AttributeName, AttributePlace, AttributeSet, AttributeValue, XattrView,
};

/// The attributes in the inode.
fn attributes(fields: &Fields) -> Result<AttributeSet> {
    let place = AttributePlace { inode: fields.disk.number, block: None };
    Ok(AttributeSet::read(&XattrView::check_in_inode(&fields.xattr_area, place)?))
}

/// The value of `system.data`, if the inode has it.
pub(crate) fn rest(fields: &Fields) -> Result<Option<Vec<u8>>> {
    match attributes(fields)?.remove(&AttributeName::inline_data()) {
        Some(AttributeValue::Inline(value)) => Ok(Some(value)),
        _ => Ok(None),
    }
}

/// Stores the value of `system.data`, or removes it. False, and nothing changed, if the inode has
/// no room.
pub(crate) fn set_rest(fields: &mut Fields, value: Option<&[u8]>) -> Result<bool> {
    let mut attributes = attributes(fields)?;
    match value {
        Some(value) => {
            let value = AttributeValue::Inline(value.to_vec());
            attributes.set(AttributeName::inline_data(), value);
        }
        None => {
            attributes.remove(&AttributeName::inline_data());
        }
    }
    Ok(attributes.encode_in_inode(&mut fields.xattr_area).is_ok())
}

/// How many bytes of content the inode could hold beside its other attributes.
pub(crate) fn capacity(fields: &Fields) -> Result<usize> {
    let mut attributes = attributes(fields)?;
    attributes.set(AttributeName::inline_data(), AttributeValue::Inline(Vec::new()));
    match fields.xattr_area.len().checked_sub(attributes.length_in_inode()) {
        // Values are padded to four bytes.
        Some(room) => Ok(HEAD_LENGTH + (room & !3)),
        None => Ok(0),
    }
}

/// The whole content.
pub(crate) fn content(fields: &Fields) -> Result<Vec<u8>> {
    let rest = rest(fields)?;
    let disk = &fields.disk;
    let data = InlineData::check(&disk.block_area, rest.as_deref(), disk.size_bytes, disk.number)?;
    Ok(data.to_vec())
}

/// Replaces the whole content and the size. False, and nothing changed, if it doesn't fit.
pub(crate) fn set_content(fields: &mut Fields, content: &[u8]) -> Result<bool> {
    let (head, rest) = inline::split(content);
    if !set_rest(fields, Some(&rest))? {
        return Ok(false);
    }
    fields.disk.block_area = head;
    fields.disk.size_bytes = content.len() as u64;
    Ok(true)
}

/// The fields that a move of the content to blocks changes, to be restored if the move fails. Other
/// fields are left alone: the orphan list may change them meanwhile, without the content lock.
pub(crate) struct InlineState {
    flags: InodeFlags,
    block_area: [u8; BLOCK_AREA_BYTES],
    size_bytes: u64,
    xattr_area: XattrArea,
}

impl InlineState {
    /// The flags that tell where the content is.
    const FLAGS: InodeFlags = InodeFlags::INLINE_DATA.union(InodeFlags::EXTENTS);

    /// The present state.
    pub fn of(fields: &Fields) -> InlineState {
        InlineState {
            flags: fields.disk.flags & Self::FLAGS,
            block_area: fields.disk.block_area,
            size_bytes: fields.disk.size_bytes,
            xattr_area: fields.xattr_area.clone(),
        }
    }

    /// Restores the state.
    pub fn restore(self, fields: &mut Fields) {
        fields.disk.flags -= Self::FLAGS;
        fields.disk.flags |= self.flags;
        fields.disk.block_area = self.block_area;
        fields.disk.size_bytes = self.size_bytes;
        fields.xattr_area = self.xattr_area;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::credits;
    use crate::testing::TestImage;
    use drystone_vfs::{FileSystem, NewNode, RequestContext};

    #[test]
    fn what_others_changed_stays_when_content_is_put_back() {
        let Some(image) = TestImage::new("inline-data-1k", 8) else { return };
        let fs = image.open();
        let (context, root) = (RequestContext::superuser(), fs.root());
        let file = fs.create(&context, root, b"f", NewNode::Regular, 0o644).expect("a file").inode;
        let data: Vec<u8> = (0..150).collect();
        fs.write(&context, file, 0, &data).expect("a write");
        let inode = fs.held(file).expect("an inode");
        let set = |change: &dyn Fn(&mut Fields)| {
            let mut handle = fs.volume.start(credits::INODE).expect("a handle");
            let changed = inode.update(&fs, &mut handle, |fields| {
                change(fields);
                Ok(())
            });
            fs.settle(handle, changed).expect("a change of an inode");
        };
        let before = InlineState::of(&inode.fields());
        set(&|fields| {
            set_rest(fields, None).expect("sound attributes");
            fields.disk.flags -= InodeFlags::INLINE_DATA;
            fields.disk.flags |= InodeFlags::EXTENTS;
            fields.disk.block_area.fill(0);
        });
        // An orphan's record keeps the next inode of the orphan list here.
        set(&|fields| fields.disk.deletion_time = 77);
        let before = std::cell::Cell::new(Some(before));
        set(&|fields| before.take().expect("once").restore(fields));
        for inode in [&*inode, &fs.inode_now(inode.number).expect("its record")] {
            let fields = inode.fields();
            assert_eq!(fields.disk.deletion_time, 77);
            assert_eq!(content(&fields).expect("content"), data);
        }
    }
}
