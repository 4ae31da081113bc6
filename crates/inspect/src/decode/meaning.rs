//! The meaning of values: flags, states, times and names.

use drystone_ext4_format::features::{Compat, Features, Incompat, ReadOnlyCompat};
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::hash::HashVersion;
use drystone_ext4_format::inode::{InodeFlags, ModeFileType};

/// Of the superblock's fields.
pub(super) fn of_superblock(name: &str, value: u64) -> Option<String> {
    // The fields have no more bits.
    let word = value as u32;
    let none = Features::NONE;
    match name {
        "feature_compat" => {
            Some(Features { compat: Compat::from_bits_retain(word), ..none }.to_string())
        }
        "feature_incompat" => {
            Some(Features { incompat: Incompat::from_bits_retain(word), ..none }.to_string())
        }
        "feature_ro_compat" => {
            let read_only_compat = ReadOnlyCompat::from_bits_retain(word);
            Some(Features { read_only_compat, ..none }.to_string())
        }
        "log_block_size" | "log_cluster_size" if value <= 20 => {
            Some(format!("{} bytes", 1024u64 << value))
        }
        "state" => {
            let names = [(1, "clean"), (2, "errors"), (4, "orphans"), (0x20, "fast commits")];
            bits(value, &names)
        }
        "errors" => match value {
            1 => Some("continue".into()),
            2 => Some("remount read-only".into()),
            3 => Some("panic".into()),
            _ => None,
        },
        "flags" => bits(value, &[(1, "signed hash"), (2, "unsigned hash"), (4, "test")]),
        "def_hash_version" => hash_version(value),
        "magic" | "checksum" | "checksum_seed" => Some(format!("{value:#x}")),
        _ if name.ends_with("_csum") => Some(format!("{value:#x}")),
        _ => None,
    }
}

/// Of a descriptor's fields.
pub(super) fn of_group(name: &str, value: u64) -> Option<String> {
    match name {
        "flags" => {
            let flags = GroupFlags::from_bits_retain(value as u16);
            let names = [
                (GroupFlags::INODE_UNINIT, "no inodes"),
                (GroupFlags::BLOCK_UNINIT, "no block bitmap"),
                (GroupFlags::INODE_ZEROED, "table zeroed"),
            ];
            let told: Vec<_> =
                names.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, n)| *n).collect();
            (!told.is_empty()).then(|| told.join(", "))
        }
        "checksum" => Some(format!("{value:#x}")),
        _ if name.contains("_csum") => Some(format!("{value:#x}")),
        _ => None,
    }
}

/// Of an inode's fields.
pub(super) fn of_inode(name: &str, value: u64) -> Option<String> {
    match name {
        "mode" => {
            let kind = match ModeFileType::from_mode(value as u16) {
                Some(ModeFileType::Regular) => "file",
                Some(ModeFileType::Directory) => "directory",
                Some(ModeFileType::Symlink) => "symbolic link",
                Some(ModeFileType::CharacterDevice) => "character device",
                Some(ModeFileType::BlockDevice) => "block device",
                Some(ModeFileType::Fifo) => "fifo",
                Some(ModeFileType::Socket) => "socket",
                None if value == 0 => return None,
                None => "no known type",
            };
            Some(format!("{kind}, {:04o}", value & 0o7777))
        }
        "flags" if value != 0 => {
            let flags = InodeFlags::from_bits_retain(value as u32);
            let names: Vec<_> =
                flags.iter_names().map(|(name, _)| name.to_lowercase().replace('_', " ")).collect();
            Some(names.join(", "))
        }
        "atime" | "ctime" | "mtime" | "dtime" | "crtime" if value != 0 => {
            // Where there is no more room they are signed.
            Some(format!("{} s since 1970", value as u32 as i32))
        }
        "checksum_lo" | "checksum_hi" => Some(format!("{value:#x}")),
        _ => None,
    }
}

/// The name of a hash function.
pub(super) fn hash_version(value: u64) -> Option<String> {
    let version = HashVersion::from_raw(u8::try_from(value).ok()?)?;
    Some(version.name().to_owned())
}

/// How people write a field that isn't a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BytesForm {
    /// As text, which ends with a zero if it is shorter than the field.
    Text,
    /// As a UUID.
    Uuid,
    /// As hexadecimal digits.
    Digits,
}

/// How people write the field of this name, which isn't a number.
pub(crate) fn form_of(name: &str) -> BytesForm {
    match name {
        "volume_name" | "last_mounted" | "mount_opts" | "first_error_func" | "last_error_func"
        | "node_name" | "device_name" => BytesForm::Text,
        "uuid" | "journal_uuid" | "s_uuid" => BytesForm::Uuid,
        _ => BytesForm::Digits,
    }
}

/// Of fields that aren't numbers.
pub(crate) fn of_bytes(name: &str, raw: &[u8]) -> Option<String> {
    match form_of(name) {
        BytesForm::Text => {
            let end = raw.iter().position(|&byte| byte == 0).unwrap_or(raw.len());
            Some(String::from_utf8_lossy(&raw[..end]).into_owned()).filter(|text| !text.is_empty())
        }
        BytesForm::Uuid => {
            let text = digits(raw);
            let cuts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
            let parts: Option<Vec<&str>> = cuts.iter().map(|&(a, b)| text.get(a..b)).collect();
            parts.map(|parts| parts.join("-"))
        }
        BytesForm::Digits => None,
    }
}

fn bits(value: u64, names: &[(u64, &str)]) -> Option<String> {
    let told: Vec<_> =
        names.iter().filter(|(bit, _)| value & bit != 0).map(|(_, name)| *name).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// Bytes as hexadecimal digits.
pub(super) fn digits(raw: &[u8]) -> String {
    raw.iter().map(|byte| format!("{byte:02x}")).collect()
}
