//! Members of a RAID, which look like the file system in it.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone_blockdev::OpenMode;
use drystone_testkit::judges::Scratch;
use drystone_volumes::{VolumeError, VolumeName, open};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const BYTES: u64 = (8 << 20) + 4096;
const MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();

/// A change would reach one member and no other.
#[test]
fn a_member_is_read_and_not_written() {
    let scratch = Scratch::new("members").unwrap();
    let path = scratch.join("member");
    let opened = |suffix: &str, mode| {
        let name = PathBuf::from(format!("{}{suffix}", path.display()));
        open(&VolumeName::find(&name).unwrap(), mode)
    };
    let raid = |sector: u64| {
        let mut superblock = vec![0; 256];
        superblock[..4].copy_from_slice(&MAGIC);
        superblock[4] = 1;
        superblock[144..152].copy_from_slice(&sector.to_le_bytes());
        (sector * 512, superblock)
    };
    let old = [&MAGIC[..], &[0, 0, 0, 0, 90, 0, 0, 0]].concat();
    for (offset, superblock) in [
        raid(0),
        raid(8),
        raid((BYTES / 512 - 16) & !7),
        ((BYTES & !0xffff) - 0x1_0000, old),
        (512, b"LABELONE".to_vec()),
        (0, b"LUKS\xba\xbe".to_vec()),
    ] {
        let file = File::create(&path).unwrap();
        file.set_len(BYTES).unwrap();
        let device = opened("@offset=0", OpenMode::ReadWrite).unwrap();
        let options = drystone_mkfs::MkfsOptions::new(BYTES, [9; 16], [2; 4], 1_000_000_000);
        drystone_mkfs::make(&*device, &options, true).unwrap();
        drop(device);
        opened("", OpenMode::ReadWrite).unwrap();
        file.write_all_at(&superblock, offset).unwrap();
        let refused = opened("", OpenMode::ReadWrite).unwrap_err();
        assert!(matches!(refused, VolumeError::Member { .. }), "{offset}: {refused}");
        opened("", OpenMode::ReadOnly).unwrap();
        opened("@offset=0", OpenMode::ReadWrite).unwrap();
        // Not where it would be on a disk of another size.
        file.write_all_at(&vec![0; superblock.len()], offset).unwrap();
        file.write_all_at(&superblock, offset + 1536).unwrap();
        opened("", OpenMode::ReadWrite).unwrap();
    }
}
