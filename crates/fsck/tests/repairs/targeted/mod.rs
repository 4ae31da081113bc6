//! Damages that a repair has to find a way around: a copy, another place, what is left of a tree.

mod directories;
mod files;
mod image;
mod journal;

use crate::patient::{Patient, Treated, Verdict};
use crate::repairing::content;
use drystone_blockdev::MemoryDevice;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::inode::Inode;
use drystone_testkit::judges::{SMALL_IMAGES, Scratch, have};
use drystone_testkit::metadata_map::{BlockContent, MetadataMap};

/// Damages the image of a set, and repairs it.
fn treat(name: &str, damage: impl FnOnce(&MetadataMap, &MemoryDevice)) -> Option<Treated> {
    treat_with(20, name, damage)
}

/// The same with so many more files.
fn treat_with(
    more_files: usize,
    name: &str,
    damage: impl FnOnce(&MetadataMap, &MemoryDevice),
) -> Option<Treated> {
    if !have("mke2fs") {
        return None;
    }
    let scratch = Scratch::new("fsck-targeted").unwrap();
    let set = SMALL_IMAGES.iter().find(|set| set.name == name).unwrap();
    let patient = Patient::new(&scratch, set, more_files);
    let device = MemoryDevice::from_bytes(&patient.bytes);
    damage(&patient.map, &device);
    let treated = patient.judge(&content(&device), vec![name.to_owned()], true);
    if let Verdict::Failed(why) = &treated.verdict {
        panic!("{name}: {why}");
    }
    Some(treated)
}

fn all_is_saved(treated: &Treated) -> bool {
    let ours = treated.ours.as_ref().unwrap();
    (ours.names, ours.bytes) == (treated.sound.names, treated.sound.bytes)
}

fn blocks_of(map: &MetadataMap, is_wanted: impl Fn(&BlockContent) -> bool) -> Vec<u64> {
    map.blocks.iter().filter(|(_, kind)| is_wanted(kind)).map(|(block, _)| *block).collect()
}

fn inode_of(map: &MetadataMap, number: InodeNumber) -> Inode {
    Inode::read(&map.inode_bytes(number), number, map.layout()).unwrap()
}

/// The first block of a file whose blocks pointers map.
fn first_block(map: &MetadataMap, number: InodeNumber) -> u64 {
    let area = inode_of(map, number).block_area;
    u64::from(u32::from_le_bytes(*area.first_chunk().unwrap()))
}

/// The byte of the device where an inode starts.
pub fn place_of(map: &MetadataMap, number: InodeNumber) -> u64 {
    let layout = map.layout();
    let table = map.descriptor(layout.group_of_inode(number).unwrap()).inode_table;
    let (block, offset) = layout.inode_location(number, table).unwrap();
    block.get() * layout.block_size() as u64 + offset as u64
}

/// The inodes of a kind that have links.
fn inodes_of(map: &MetadataMap, is_wanted: impl Fn(&Inode) -> bool) -> Vec<InodeNumber> {
    let numbers = (1..=map.layout().inodes_count()).map(InodeNumber::new);
    let inodes = numbers.map(|number| (number, map.inode_bytes(number)));
    inodes
        .filter(|(number, bytes)| {
            Inode::read(bytes, *number, map.layout())
                .is_ok_and(|inode| inode.links_count > 0 && is_wanted(&inode))
        })
        .map(|(number, _)| number)
        .collect()
}
