//! Names that can't be, of attributes and of encrypted files.

use crate::editor::{At, Change, Chosen, Editor, Verdict, judge, make, request};
use crate::images;
use Verdict::{Damaged, Sound, Strict};
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::xattr::{AttributeName, AttributeSet, AttributeValue};
use drystone_fsck::IssueLocation;
use drystone_testkit::judges::{FeatureSet, Scratch, have, kernel_mount};
use std::fs;

/// Where the flags lie in an inode.
const FLAGS: usize = 32;
/// Where the record after both dots starts, and where the length of its name lies.
const THIRD: usize = 24;
const LENGTH: usize = THIRD + 6;

/// e2fsck takes names with zeros; Linux 6.18 reads none of the attributes beside one.
#[test]
fn illegal_names_of_attributes_are_found() {
    if !have("debugfs") {
        return;
    }
    let _alone = images::alone();
    let scratch = Scratch::new("fsck-names").unwrap();
    let original = make(&scratch, FeatureSet::by_name("default-1k").unwrap());
    let (image, value, mount) =
        (scratch.join("image"), scratch.join("value"), scratch.join("mount"));
    // Too long for the inode: only in blocks does e2fsck look at names.
    let content = [3; 700];
    fs::write(&value, content).unwrap();
    request(&original, &format!("ea_set /tiny -f {} user.large", value.display()));
    for (index, suffix, expected) in [
        (AttributeName::USER, &b"larger"[..], Sound),
        (AttributeName::USER, b"la\0rge", Strict("attributes_name", ())),
        (AttributeName::USER, b"large\0", Strict("attributes_name", ())),
        (0, b"large", Damaged("attributes_name_index", ())),
    ] {
        fs::copy(&original, &image).unwrap();
        let editor = Editor::open(&image);
        let inode = editor.inode("/tiny");
        editor.edit(inode.attribute_block.unwrap().get(), |bytes| {
            let mut attributes = AttributeSet::new();
            let name = AttributeName { index, suffix: suffix.to_vec() };
            attributes.set(name, AttributeValue::Inline(content.to_vec()));
            attributes.encode_block(bytes, 1).unwrap();
        });
        let place = IssueLocation { inode: Some(inode.number), ..IssueLocation::default() };
        judge(&image, expected.map(|()| place)).unwrap();
        let Some(mounted) = kernel_mount(&image, &mount, "ro").unwrap() else { continue };
        let mut list = [0_u8; 100];
        let listed = rustix::fs::listxattr(mounted.path().join("tiny"), &mut list[..]);
        // Older kernels than 6.18 may read on.
        assert!(listed.is_ok() || suffix.contains(&0), "{suffix:?}: {listed:?}");
        mounted.unmount().unwrap();
    }
}

/// An encrypted name is as long as a block of its cipher at least.
#[test]
fn a_short_encrypted_name_is_found() {
    if !have("debugfs") {
        return;
    }
    let _alone = images::alone();
    let scratch = Scratch::new("fsck-encrypted").unwrap();
    let image = make(&scratch, FeatureSet::by_name("verity-encrypt").unwrap());
    let editor = Editor::open(&image);
    let inode = editor.inode("/locked");
    editor.edit_inode(inode.number, |bytes| {
        let layout = editor.map.layout();
        let mut attributes = AttributeSet::new();
        let name = AttributeName { index: AttributeName::ENCRYPTION, suffix: b"c".to_vec() };
        // Version 1: how content and names are encrypted, padding, the key's name, a nonce.
        let mut context = vec![1, 1, 4, 0];
        context.extend([5; 8 + 16]);
        attributes.set(name, AttributeValue::Inline(context));
        attributes.encode_in_inode(&mut bytes[inode.attribute_area(layout)]).unwrap();
        let flags = inode.flags | InodeFlags::ENCRYPT;
        bytes[FLAGS..][..4].copy_from_slice(&flags.bits().to_le_bytes());
    });
    let editor = Editor::open(&image);
    let place = editor.place(At::Record("/locked", 0, THIRD));
    judge(&image, Sound).unwrap();
    for (length, expected) in [(&[16], Sound), (&[15], Damaged("directory_name", place))] {
        editor.change(&Change::Directory("/locked", Chosen::Logical(0), LENGTH, length));
        judge(&image, expected).unwrap();
    }
}
