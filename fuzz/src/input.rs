//! From bytes of the fuzzer to structures that are nearly sound.

use drystone_ext4_format::features::Features;
use drystone_ext4_format::layout::{Geometry, Layout};

/// Bytes in a block of the structures.
pub const BLOCK: usize = 1024;

/// A small geometry without checksums, so that what is changed is looked at.
pub fn geometry() -> Geometry {
    let list = "has_journal,ext_attr,dir_index,filetype,extent,64bit,flex_bg,sparse_super,\
                large_file,huge_file,dir_nlink,extra_isize,large_dir,ea_inode,inline_data";
    Geometry {
        features: Features::parse(list)
            .map(|list| Features::NONE.apply(&list))
            .unwrap_or(Features::NONE),
        uuid: [7; 16],
        checksum_seed: 0,
        log_block_size: 0,
        log_cluster_size: 0,
        blocks_count: 40_000,
        clusters_per_group: 8192,
        inodes_per_group: 512,
        inode_size: 256,
        first_inode: 11,
        descriptor_size: 64,
        reserved_descriptor_blocks: 0,
        first_meta_group: 0,
        log_groups_per_flex: 4,
        backup_groups: [0; 2],
        extra_inode_size: 32,
    }
}

/// The layout of [`geometry`].
///
/// # Panics
/// Never: the geometry is sound.
pub fn layout() -> Layout {
    Layout::new(&geometry()).expect("the geometry is sound")
}

/// Numbers taken off the front of the input; zeros past its end.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Whether anything is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next bytes, fewer at the end.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// The next number of 8 bits.
    pub fn u8(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// The next number of 16 bits.
    pub fn u16(&mut self) -> u16 {
        u16::from(self.u8()) | u16::from(self.u8()) << 8
    }

    /// The next number of 32 bits.
    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    /// The next number of 64 bits.
    pub fn u64(&mut self) -> u64 {
        u64::from(self.u32()) | u64::from(self.u32()) << 32
    }

    /// A sound structure with changes: either a beginning of other bytes, or single numbers.
    pub fn change(&mut self, sound: &[u8]) -> Vec<u8> {
        let mut bytes = sound.to_vec();
        if self.u8() % 4 == 3 {
            let new = self.bytes(sound.len());
            bytes[..new.len()].copy_from_slice(new);
            return bytes;
        }
        for _ in 0..self.u8() % 16 {
            let width = [1, 2, 4, 8][usize::from(self.u8() % 4)];
            let at = usize::from(self.u16()) % bytes.len() / width * width;
            let value = match self.u8() {
                0 => 0,
                1 => u64::MAX,
                2 => u64::MAX >> 1 >> (64 - 8 * width),
                3 => u64::from(self.u8()),
                _ => self.u64(),
            };
            if let Some(place) = bytes.get_mut(at..at + width) {
                place.copy_from_slice(&value.to_le_bytes()[..width]);
            }
        }
        bytes
    }
}
