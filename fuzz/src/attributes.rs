//! Extended attributes and access control lists.

use crate::input::{BLOCK, Input};
use drystone_ext4_format::acl::Acl;
use drystone_ext4_format::xattr::{
    AttributeName, AttributePlace, AttributeSet, AttributeValue, AttributesBlock, XattrView,
};
use drystone_ext4_format::{InodeNumber, PhysicalBlock};

/// Extended attributes in inodes and in blocks.
pub fn attributes(data: &[u8]) {
    let mut input = Input(data);
    let in_block = input.u8() % 2 == 0;
    let mut set = AttributeSet::new();
    for (name, length) in [(&b"user.one"[..], 5), (b"user.two", 20), (b"trusted.three", 0)] {
        if let Some(name) = AttributeName::parse(name) {
            set.set(name, AttributeValue::Inline(vec![b'v'; length]));
        }
    }
    let mut sound = vec![0; if in_block { BLOCK } else { 128 }];
    let encoded = match in_block {
        true => set.encode_block(&mut sound, 1),
        false => set.encode_in_inode(&mut sound),
    };
    encoded.expect("a few small attributes fit");
    let bytes = input.change(&sound);
    let block = in_block.then_some(PhysicalBlock::new(9));
    let place = AttributePlace { inode: InodeNumber::new(12), block };
    let attributes = match in_block {
        true => match AttributesBlock::check(&bytes, place) {
            Ok(block) => {
                let _ = (block.reference_count(), block.hash());
                block.attributes()
            }
            Err(_) => return,
        },
        false => match XattrView::check_in_inode(&bytes, place) {
            Ok(attributes) => attributes,
            Err(_) => return,
        },
    };
    let mut total = 0;
    for entry in attributes.iter() {
        let _ = (entry.full_name(), attributes.verify_hash(&entry, 0, place));
        total += entry.suffix.len();
    }
    assert!(total <= bytes.len());
    let _ = attributes.find(1, b"one");
    let mut set = AttributeSet::read(&attributes);
    let _ = (set.length_in_inode(), set.length_in_block());
    if let Some(name) = AttributeName::parse(b"user.new") {
        set.set(name, AttributeValue::Inline(input.bytes(200).to_vec()));
    }
    let mut again = vec![0; bytes.len()];
    if in_block && set.encode_block(&mut again, 1).is_ok() {
        AttributesBlock::check(&again, place).expect("what was encoded is sound");
    } else if !in_block && set.encode_in_inode(&mut again).is_ok() {
        XattrView::check_in_inode(&again, place).expect("what was encoded is sound");
    }
}

/// Access control lists in both their forms.
pub fn acl(data: &[u8]) {
    let mut input = Input(data);
    let mode = input.u16();
    let is_packed = input.u8() % 2 == 0;
    let list = Acl::from_mode(0o644);
    let sound = if is_packed { list.to_packed() } else { list.to_attribute() };
    let bytes = input.change(&sound);
    let decode = |bytes: &[u8]| match is_packed {
        true => Acl::from_packed(bytes),
        false => Acl::from_attribute(bytes),
    };
    for bytes in [&bytes[..], input.0] {
        let Ok(acl) = decode(bytes) else { continue };
        assert_eq!(Acl::from_packed(&acl.to_packed()).as_ref(), Ok(&acl));
        assert_eq!(Acl::from_attribute(&acl.to_attribute()).as_ref(), Ok(&acl));
        let _ = (acl.mode(), acl.equivalent_mode(), acl.with_mode(mode), acl.inherit(mode));
    }
}
