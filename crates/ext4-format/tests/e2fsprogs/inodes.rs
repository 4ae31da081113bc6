//! What lives in inodes: extended attributes, access control lists and inline data.

use crate::image::{Image, tools_available};
use drystone_ext4_format::acl::{Acl, AclEntry, AclTag};
use drystone_ext4_format::dir::{EntryType, NewEntry};
use drystone_ext4_format::inline::{
    HEAD_LENGTH, InlineData, InlineDirectory, InlineDirectoryMut, extend_piece,
};
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::xattr::{
    self, AttributeName, AttributePlace, AttributeSet, AttributeValue, AttributesBlock, Value,
    XattrView,
};
use std::fs;

fn name(full: &str) -> AttributeName {
    AttributeName::parse(full.as_bytes()).unwrap()
}

fn in_inode(image: &Image, path: &str) -> AttributePlace {
    AttributePlace { inode: image.number(path), block: None }
}

#[test]
fn attributes_are_read_and_rewritten() {
    if !tools_available() {
        return;
    }
    for features in ["metadata_csum", "^metadata_csum", "metadata_csum,metadata_csum_seed"] {
        let image = Image::make(&["-b", "1024", "-O", features], "16M", |tree| {
            fs::write(tree.join("f"), b"x").unwrap();
        });
        let long = "v".repeat(300);
        image.edit(&format!(
            "ea_set /f user.short abc\nea_set /f user.long {long}\nea_set /f trusted.t 12345\n"
        ));
        let place = in_inode(&image, "/f");
        let layout = image.superblock.layout();
        let (at, mut bytes) = image.inode_bytes("/f");
        let inode = Inode::check(&bytes, place.inode, layout).unwrap();
        let area = inode.attribute_area(layout);
        let attributes = XattrView::check_in_inode(&bytes[area.clone()], place).unwrap();
        let found = attributes.find(AttributeName::USER, b"short").unwrap();
        assert_eq!(found.value, Value::Inline(b"abc"));
        for entry in attributes.iter() {
            attributes.verify_hash(&entry, 0, place).unwrap();
        }
        let mut set = AttributeSet::read(&attributes);
        set.set(name("user.new"), AttributeValue::Inline(b"fresh".to_vec()));
        set.encode_in_inode(&mut bytes[area]).unwrap();
        Inode::seal(&mut bytes, place.inode, layout);
        image.write_bytes(at, &bytes);

        let block = inode.attribute_block.unwrap();
        let in_block = AttributePlace { block: Some(block), ..place };
        let mut bytes = image.block(block);
        xattr::verify_block(&bytes, image.seed(), place.inode, block).unwrap();
        let checked = AttributesBlock::check(&bytes, in_block).unwrap();
        assert_eq!(checked.reference_count(), 1);
        for entry in checked.attributes().iter() {
            checked.attributes().verify_hash(&entry, 0, in_block).unwrap();
        }
        let mut set = AttributeSet::read(&checked.attributes());
        assert_eq!(set.get(&name("user.long")), Some(&AttributeValue::Inline(long.into_bytes())));
        set.set(name("user.also"), AttributeValue::Inline(b"\xff\xfe\x00".to_vec()));
        set.set(
            AttributeName { index: 1, suffix: b"\xe4\xf6".to_vec() },
            AttributeValue::Inline(vec![9; 5]),
        );
        set.encode_block(&mut bytes, 1).unwrap();
        xattr::seal_block(&mut bytes, image.seed(), block);
        image.write_block(block, &bytes);
        image.judge();
        let listed = image.debugfs("ea_list /f");
        for expected in ["user.new (5)", "user.also (3)", "user.short (3)", "user.long (300)"] {
            assert!(listed.contains(expected), "{expected} in {listed}");
        }
    }
}

#[test]
fn values_in_inodes_have_their_hash_and_count() {
    if !tools_available() {
        return;
    }
    let image = Image::make(&["-b", "1024", "-O", "ea_inode,metadata_csum"], "16M", |tree| {
        fs::write(tree.join("f"), b"x").unwrap();
    });
    // Too large for a block with its header.
    let value = vec![b'L'; 1000];
    let host = tempfile::NamedTempFile::new().unwrap();
    fs::write(host.path(), &value).unwrap();
    image.edit(&format!("ea_set -f {} /f user.large\n", host.path().display()));
    let place = in_inode(&image, "/f");
    let (_, bytes) = image.inode_bytes("/f");
    let inode = image.inode("/f");
    let area = &bytes[inode.attribute_area(image.superblock.layout())];
    let mut sets = vec![XattrView::check_in_inode(area, place).unwrap()];
    let block = inode.attribute_block.map(|block| (block, image.block(block)));
    if let Some((block, bytes)) = &block {
        let place = AttributePlace { block: Some(*block), ..place };
        sets.push(AttributesBlock::check(bytes, place).unwrap().attributes());
    }
    let found = sets.iter().find_map(|set| Some((set, set.find(AttributeName::USER, b"large")?)));
    let (set, found) = found.unwrap();
    let Value::Inode { inode: holder, length } = found.value else { panic!("not in an inode") };
    assert_eq!(length, 1000);
    let hash = xattr::inode_value_hash(image.seed().unwrap(), &value);
    set.verify_hash(&found, hash, place).unwrap();
    let (_, holder) = image.inode_bytes(&format!("<{holder}>"));
    let word = |at: usize| u32::from_le_bytes(holder[at..at + 4].try_into().unwrap());
    // i_ctime, the low half of the version, i_atime.
    let fields = xattr::InodeValueFields::from_inode(word(0x0c), word(0x24), word(0x08));
    assert_eq!(fields, xattr::InodeValueFields { reference_count: 1, hash });
}

#[test]
fn access_control_lists_are_understood() {
    if !tools_available() {
        return;
    }
    let image = Image::make(&["-O", "^metadata_csum"], "16M", |tree| {
        fs::write(tree.join("f"), b"x").unwrap();
    });
    let entry = |tag, permissions| AclEntry { tag, permissions };
    let acl = Acl::new(vec![
        entry(AclTag::Owner, 6),
        entry(AclTag::User(1000), 4),
        entry(AclTag::OwningGroup, 4),
        entry(AclTag::Mask, 4),
        entry(AclTag::Other, 0),
    ])
    .unwrap();
    let place = in_inode(&image, "/f");
    let (at, mut bytes) = image.inode_bytes("/f");
    let area = image.inode("/f").attribute_area(image.superblock.layout());
    let mut set = AttributeSet::new();
    set.set(name("system.posix_acl_access"), AttributeValue::Inline(acl.to_packed()));
    set.encode_in_inode(&mut bytes[area]).unwrap();
    Inode::seal(&mut bytes, place.inode, image.superblock.layout());
    image.write_bytes(at, &bytes);
    image.judge();
    let host = tempfile::NamedTempFile::new().unwrap();
    image.debugfs(&format!("ea_get -f {} /f system.posix_acl_access", host.path().display()));
    // debugfs gives the attribute in the form that programs see.
    assert_eq!(Acl::from_attribute(&fs::read(host.path()).unwrap()), Ok(acl));
}

#[test]
fn inline_data_is_read_and_changed() {
    if !tools_available() {
        return;
    }
    for features in ["inline_data,metadata_csum", "inline_data,^metadata_csum"] {
        let contents =
            b"The quick brown fox jumps over the lazy dog, twice: once here, once there.";
        let image = Image::make(&["-O", features, "-I", "256"], "16M", |tree| {
            fs::write(tree.join("f"), contents).unwrap();
            fs::write(tree.join("short"), b"short").unwrap();
            fs::create_dir(tree.join("d")).unwrap();
            for number in 0..3 {
                fs::write(tree.join(format!("d/entry{number}")), b"").unwrap();
            }
        });
        let layout = image.superblock.layout();
        for (path, expected) in [("/f", &contents[..]), ("/short", b"short")] {
            let (inode, value) = inline(&image, path);
            let data =
                InlineData::check(&inode.block_area, Some(&value), inode.size_bytes, inode.number);
            assert_eq!(data.unwrap().to_vec(), expected);
        }

        let (inode, mut value) = inline(&image, "/d");
        let directory = image.directory_layout("/d");
        assert_eq!(inode.size_bytes as usize, HEAD_LENGTH + value.len());
        let mut head = inode.block_area;
        let view = InlineDirectory::check(&head, &value, &directory, inode.number).unwrap();
        assert_eq!(view.entries().count(), 3);
        let moved = view.find(b"entry1").unwrap();
        let (offset, target) = (moved.offset, moved.inode);
        extend_piece(&mut value, 32, &directory);
        let mut edit = InlineDirectoryMut::trusted(&mut head, &mut value, &directory);
        edit.remove(offset).unwrap();
        let name = b"again, but longer";
        let entry_type = EntryType::Regular;
        let entry = NewEntry { name, inode: target, entry_type, hash: None };
        assert_eq!(edit.insert(&entry), Ok(HEAD_LENGTH));
        InlineDirectory::check(&head, &value, &directory, inode.number).unwrap();

        let (at, mut bytes) = image.inode_bytes("/d");
        bytes[0x04..0x08].copy_from_slice(&((HEAD_LENGTH + value.len()) as u32).to_le_bytes());
        bytes[0x28..0x28 + HEAD_LENGTH].copy_from_slice(&head);
        let area = inode.attribute_area(layout);
        let place = in_inode(&image, "/d");
        let mut set =
            AttributeSet::read(&XattrView::check_in_inode(&bytes[area.clone()], place).unwrap());
        set.set(AttributeName::inline_data(), AttributeValue::Inline(value));
        set.encode_in_inode(&mut bytes[area]).unwrap();
        Inode::seal(&mut bytes, inode.number, layout);
        image.write_bytes(at, &bytes);
        image.judge();
        assert!(image.debugfs("ls /d").contains("again"));
    }
}

/// An inode with inline data and the value of its attribute.
fn inline(image: &Image, path: &str) -> (Inode, Vec<u8>) {
    let (_, bytes) = image.inode_bytes(path);
    let inode = image.inode(path);
    let area = &bytes[inode.attribute_area(image.superblock.layout())];
    let attributes = XattrView::check_in_inode(area, in_inode(image, path)).unwrap();
    let name = AttributeName::inline_data();
    let entry = attributes.find(name.index, &name.suffix).unwrap();
    let Value::Inline(value) = entry.value else { panic!("inline data lies in the inode") };
    (inode, value.to_vec())
}
