//! Damages of images, and how a block gets one.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::metadata_map::{BlockContent, MetadataMap as Map};
use drystone_blockdev::BlockDevice;
use fastrand::Rng;

/// What a disk writes at once.
const SECTOR_BYTES: usize = 512;

/// A damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A few bits flip.
    Flip,
    /// Zeros.
    Zero,
    /// Ones.
    Ones,
    /// Only some of the block's sectors were written: the others hold what another block does, or zeros.
    Tear,
    /// The block and another metadata block change places.
    Swap,
    /// References to other metadata blocks change, and the checksum is computed again: a block or
    /// an inode gets two owners.
    Point,
    /// Numbers inside change, and the checksum is computed again.
    Fuzz,
}

impl Damage {
    /// Every kind.
    pub const ALL: [Damage; 7] = [
        Damage::Flip,
        Damage::Zero,
        Damage::Ones,
        Damage::Tear,
        Damage::Swap,
        Damage::Point,
        Damage::Fuzz,
    ];

    /// Whether the block's checksum shows the damage.
    #[must_use]
    pub fn is_evident(self) -> bool {
        matches!(self, Damage::Flip | Damage::Zero | Damage::Ones)
    }
}

/// Damages one block on `device`, which holds a copy of the map's.
///
/// # Panics
/// If the map doesn't know the block, or the device fails.
pub fn apply(map: &Map, device: &dyn BlockDevice, block: u64, damage: Damage, random: &mut Rng) {
    let size = map.layout().block_size() as u64;
    let content = map.blocks[&block];
    let mut bytes = map.block(block);
    match damage {
        Damage::Flip => {
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] ^= 1 << random.u8(..8);
            }
        }
        Damage::Zero => bytes.fill(0),
        Damage::Ones => bytes.fill(0xff),
        Damage::Tear => {
            let other = match random.bool() {
                true => map.block(*random.choice(map.blocks.keys()).unwrap()),
                false => vec![0; bytes.len()],
            };
            let kept = random.usize(1..bytes.len() / SECTOR_BYTES) * SECTOR_BYTES;
            match random.bool() {
                true => bytes[kept..].copy_from_slice(&other[kept..]),
                false => bytes[..kept].copy_from_slice(&other[..kept]),
            }
        }
        Damage::Swap => {
            let other = *random.choice(map.blocks.keys()).unwrap();
            let first = map.block(other);
            device.write_at(other * size, &bytes).unwrap();
            bytes = first;
        }
        Damage::Point => {
            point_elsewhere(map, content, &mut bytes, random);
            map.seal(device, block, content, &mut bytes);
        }
        Damage::Fuzz => {
            for _ in 0..random.usize(1..4) {
                change_number(map, content, block, &mut bytes, random);
            }
            map.seal(device, block, content, &mut bytes);
        }
    }
    device.write_at(block * size, &bytes).unwrap();
}

/// Replaces something that looks like the number of a block, or in a directory like that of an inode, by
/// another such number.
fn point_elsewhere(map: &Map, content: BlockContent, bytes: &mut [u8], random: &mut Rng) {
    let blocks = map.layout().blocks_count();
    let inodes = u64::from(map.layout().inodes_count());
    let is_directory = matches!(content, BlockContent::Directory(..));
    let limit = if is_directory { inodes } else { blocks };
    let words: Vec<usize> = (0..bytes.len() / 4)
        .map(|word| word * 4)
        .filter(|&at| (5..limit).contains(&word_at(bytes, at)))
        .collect();
    for _ in 0..random.usize(1..3) {
        let Some(&at) = random.choice(&words) else { return };
        let new = match is_directory {
            true => random.u64(..=inodes),
            false => *random.choice(map.blocks.keys()).unwrap(),
        };
        bytes[at..at + 4].copy_from_slice(&(new as u32).to_le_bytes());
    }
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(*bytes[at..].first_chunk().unwrap()))
}

/// Replaces one number, mostly at a place where the structure has one.
fn change_number(map: &Map, content: BlockContent, block: u64, bytes: &mut [u8], random: &mut Rng) {
    let (from, to) = region(map, content, block, bytes, random);
    let width = [1, 2, 4, 4, 8][random.usize(..5)];
    let at = (from + random.usize(..(to - from).max(1))) / width * width;
    let Some(place) = bytes.get_mut(at..at + width) else { return };
    let big = matches!(content, BlockContent::JournalSuperblock | BlockContent::Log);
    let old = place.iter().enumerate().fold(0_u64, |number, (index, &byte)| {
        let shift = if big { width - 1 - index } else { index };
        number | u64::from(byte) << (8 * shift)
    });
    let blocks = map.layout().blocks_count();
    let new = match random.u32(..12) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => u64::MAX >> 1 >> (64 - 8 * width),
        4 => old.wrapping_add(1),
        5 => old.wrapping_sub(1),
        6 => old ^ 1 << random.usize(..8 * width),
        7 => blocks - random.u64(..3),
        8 => *random.choice(map.blocks.keys()).unwrap(),
        9 => u64::from(random.u16(..)),
        10 => random.u64(..),
        _ => random.u64(..20),
    };
    for (index, byte) in place.iter_mut().enumerate() {
        let shift = if big { width - 1 - index } else { index };
        *byte = (new >> (8 * shift)) as u8;
    }
}

/// The part of a block where a change has most effect.
fn region(
    map: &Map,
    content: BlockContent,
    block: u64,
    bytes: &[u8],
    random: &mut Rng,
) -> (usize, usize) {
    let whole = (0, bytes.len());
    match content {
        BlockContent::Superblock | BlockContent::SuperblockBackup => {
            let start = if block == 0 { 1024 } else { 0 };
            let end = if random.bool() { 0x180 } else { 1024 };
            (start, start + end)
        }
        BlockContent::Descriptors | BlockContent::DescriptorsBackup => {
            let size = map.layout().descriptor_size();
            let groups = map.layout().group_count() as usize;
            (0, (size * groups).min(bytes.len()))
        }
        BlockContent::InodeTable(_) => {
            let size = map.layout().inode_size();
            let used: Vec<usize> = (0..bytes.len() / size)
                .filter(|index| bytes[index * size..][..size].iter().any(|&byte| byte != 0))
                .collect();
            let Some(&index) = random.choice(&used) else { return whole };
            let start = index * size;
            match random.u32(..4) {
                0 => (start, start + 40),
                1 => (start + 40, start + 100),
                _ => (start, start + size),
            }
        }
        BlockContent::ExtentNode(..) => (0, 12 + 12 * random.usize(..8)),
        BlockContent::Directory(..) | BlockContent::Attributes => match random.u32(..3) {
            0 => (0, 64),
            1 => (0, 256),
            _ => whole,
        },
        BlockContent::Quota => match random.u32(..3) {
            0 => (0, 64),
            _ => whole,
        },
        // The sequence number stays: otherwise a mount would wait for a holder that doesn't exist.
        BlockContent::Mmp => (8, 128),
        BlockContent::JournalSuperblock => (0, 0x60),
        BlockContent::Log => match random.u32(..2) {
            0 => (0, 64),
            _ => whole,
        },
        _ => whole,
    }
}
