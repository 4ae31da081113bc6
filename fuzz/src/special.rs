//! The orphan file, multi-mount protection, quota files.

use crate::input::{BLOCK, Input};
use drystone_ext4_format::mmp::{Mmp, MmpState};
use drystone_ext4_format::orphan_file::{self, OrphanBlock, OrphanPlace};
use drystone_ext4_format::quota::{MemoryQuotaBlocks, QuotaEntry, QuotaFile, QuotaKind, build};
use drystone_ext4_format::{InodeNumber, PhysicalBlock};

/// Blocks of the orphan file.
pub fn orphan_block(data: &[u8]) {
    let mut input = Input(data);
    let place =
        OrphanPlace { inode: InodeNumber::new(12), block: PhysicalBlock::new(9), checksum: None };
    let mut sound = vec![0; BLOCK];
    orphan_file::init(&mut sound);
    let mut bytes = input.change(&sound);
    let cut = usize::from(input.u8() % 32);
    let _ = OrphanBlock::check(&bytes[..cut], &place, InodeNumber::new(100));
    let _ = OrphanBlock::verify(&bytes, &place);
    if let Ok(block) = OrphanBlock::check(&bytes, &place, InodeNumber::new(100)) {
        let taken = block.orphans().count();
        assert_eq!(taken + block.free_count(), orphan_file::slots_per_block(BLOCK));
    }
    let _ = orphan_file::set_slot(&mut bytes, usize::from(input.u16()), None);
}

/// The block of multi-mount protection.
pub fn mmp(data: &[u8]) {
    let mut input = Input(data);
    let mut sound = vec![0; BLOCK];
    let block = Mmp {
        state: MmpState::Clean,
        time_seconds: 1,
        node_name: b"node".to_vec(),
        device_name: b"device".to_vec(),
        check_interval_seconds: 5,
    };
    block.encode(&mut sound, None);
    let bytes = input.change(&sound);
    if let Ok(found) = Mmp::check(&bytes, None, PhysicalBlock::new(5)) {
        let mut again = vec![0; BLOCK];
        found.encode(&mut again, None);
        assert_eq!(Mmp::check(&again, None, PhysicalBlock::new(5)), Ok(found));
    }
}

/// Quota files as a whole.
pub fn quota_file(data: &[u8]) {
    let mut input = Input(data);
    let ids = [0_u32, 1, 1000, 70_000, u32::MAX];
    let entry = |id| QuotaEntry { id, inodes: 1, space_bytes: 4096, ..QuotaEntry::default() };
    let sound = build(QuotaKind::User, ids.map(entry));
    let mut bytes = sound.clone();
    // Changes where there is something, for the file is long.
    for piece in bytes.chunks_mut(1024) {
        let changed = input.change(piece);
        piece.copy_from_slice(&changed);
        if input.is_empty() {
            break;
        }
    }
    let blocks = MemoryQuotaBlocks::from_bytes(&bytes);
    let Ok(mut file) = QuotaFile::open(QuotaKind::User, blocks) else { return };
    if let Ok(entries) = file.entries() {
        assert!(entries.len() <= bytes.len() / 4);
    }
    for id in ids.into_iter().chain([input.u32()]) {
        let _ = file.get(id);
        let _ = file.set(&entry(id));
        let _ = file.set(&entry(id ^ 0x5a));
    }
    let _ = file.entries();
}
