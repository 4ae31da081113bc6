//! Parts of something larger: members of a RAID or a volume group, encrypted volumes.
//!
//! A member may look like a file system. A RAID 1 whose superblock is at the end has its file system at the
//! start of each member, and elsewhere the superblock of an old file system may have stayed. Writing to one member
//! changes it and no other, or destroys a part of the whole. So these formats are looked for first, as blkid(8)
//! does.
//!
//! # Reference
//!
//! "RAID superblock formats" of the Linux RAID wiki; md(4), "MD SUPER BLOCK"; `LABELONE` of LVM2; the header of
//! LUKS; `include/uapi/linux/bcache.h` for the place and the magic number of bcache.

use crate::kind::read_if_there;
use drystone_blockdev::{BlockDevice, DeviceError};

/// Formats with a magic number at one place: name, offset and bytes.
const AT_START: [(&str, u64, &[u8]); 6] = [
    ("crypto_LUKS", 0, b"LUKS\xba\xbe"),
    ("LVM2_member", 0, b"LABELONE"),
    ("LVM2_member", 512, b"LABELONE"),
    ("LVM2_member", 1024, b"LABELONE"),
    ("LVM2_member", 1536, b"LABELONE"),
    ("bcache", 4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
];

const RAID: &str = "linux_raid_member";
/// What a superblock of Linux's RAID begins with.
const RAID_MAGIC: u32 = 0xa92b_4efc;
/// Where version 1 says in which sector it is, and how much of it is read for that.
const RAID_SECTOR_AT: usize = 144;
const RAID_BYTES: usize = RAID_SECTOR_AT + 8;
const SECTOR_BYTES: u64 = 512;
/// The unit in which version 0.90 is placed.
const OLD_UNIT_BYTES: u64 = 64 << 10;

/// The name of the format, as blkid(8) has it, if a device is a part of something larger.
pub(crate) fn member_of(device: &dyn BlockDevice) -> Result<Option<&'static str>, DeviceError> {
    for (name, offset, expected) in AT_START {
        let mut bytes = vec![0; expected.len()];
        if read_if_there(device, offset, &mut bytes)? && bytes == expected {
            return Ok(Some(name));
        }
    }
    let sectors = device.size_bytes() / SECTOR_BYTES;
    let at_end = sectors.checked_sub(16).map(|sector| sector & !7);
    for sector in [Some(0), Some(8), at_end].into_iter().flatten() {
        let mut bytes = [0; RAID_BYTES];
        let is_there = read_if_there(device, sector * SECTOR_BYTES, &mut bytes)?;
        let [magic, version, ..] = words(&bytes);
        let own = u64::from_le_bytes(bytes[RAID_SECTOR_AT..].try_into().unwrap_or_default());
        if is_there && magic == RAID_MAGIC && version == 1 && own == sector {
            return Ok(Some(RAID));
        }
    }
    let whole_units = device.size_bytes() / OLD_UNIT_BYTES * OLD_UNIT_BYTES;
    if let Some(offset) = whole_units.checked_sub(OLD_UNIT_BYTES) {
        let mut bytes = [0; RAID_BYTES];
        if read_if_there(device, offset, &mut bytes)?
            && let [RAID_MAGIC, 0, 90, ..] = words(&bytes)
        {
            return Ok(Some(RAID));
        }
    }
    Ok(None)
}

/// The first numbers of a superblock.
fn words(bytes: &[u8; RAID_BYTES]) -> [u32; 3] {
    // Each of them has 4 bytes.
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
    [word(0), word(4), word(8)]
}
