//! The 512-byte header of an entry, in its four dialects: v7, ustar, GNU and star.
//!
//! # Reference
//! POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar manual, "Basic Tar Format"; star(5).

use super::error::TarProblem;
use std::mem::{offset_of, size_of};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Headers and data are padded to this.
pub(crate) const BLOCK_BYTES: u64 = 512;

/// The largest number in 7 octal digits, as in fields of 8 bytes.
pub(crate) const SMALL_MAX: u64 = 0o7_777_777;
/// The largest number in 11 octal digits, as in fields of 12 bytes.
pub(crate) const LARGE_MAX: u64 = 0o77_777_777_777;

/// A header as it is stored.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawTarHeader {
    pub name: [u8; 100],
    pub mode: [u8; 8],
    pub user: [u8; 8],
    pub group: [u8; 8],
    pub size: [u8; 12],
    pub modified: [u8; 12],
    pub checksum: [u8; 8],
    pub kind: u8,
    pub link_name: [u8; 100],
    pub magic: [u8; 8],
    pub user_name: [u8; 32],
    pub group_name: [u8; 32],
    pub device_major: [u8; 8],
    pub device_minor: [u8; 8],
    /// The end of the header, which depends on the dialect.
    pub tail: [u8; 167],
}

/// The end of a GNU header.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct GnuTail {
    pub accessed: [u8; 12],
    pub changed: [u8; 12],
    pub offset: [u8; 12],
    pub long_names: [u8; 4],
    pub unused: u8,
    pub sparse: [RawSparse; 4],
    pub is_extended: u8,
    pub real_size: [u8; 12],
    pub padding: [u8; 17],
}

/// One piece of a sparse file in a GNU header.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawSparse {
    pub offset: [u8; 12],
    pub length: [u8; 12],
}

/// The block after a GNU header that has no room for all pieces.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SparseExtension {
    pub sparse: [RawSparse; 21],
    pub is_extended: u8,
    pub padding: [u8; 7],
}

/// The end of a star header.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct StarTail {
    pub prefix: [u8; 131],
    pub accessed: [u8; 12],
    pub changed: [u8; 12],
    pub padding: [u8; 8],
    pub trailer: [u8; 4],
}

const _: () = assert!(size_of::<RawTarHeader>() == BLOCK_BYTES as usize);
const _: () = assert!(offset_of!(RawTarHeader, kind) == 156);
const _: () = assert!(offset_of!(RawTarHeader, magic) == 257);
const _: () = assert!(offset_of!(RawTarHeader, tail) == 345);
const _: () = assert!(size_of::<GnuTail>() == 167);
const _: () = assert!(345 + offset_of!(GnuTail, sparse) == 386);
const _: () = assert!(345 + offset_of!(GnuTail, real_size) == 483);
const _: () = assert!(size_of::<SparseExtension>() == BLOCK_BYTES as usize);
const _: () = assert!(size_of::<StarTail>() == 167);
const _: () = assert!(345 + offset_of!(StarTail, trailer) == 508);

/// The dialect of a header, which determines its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// v7: nothing after the link's name.
    V7,
    /// POSIX.1-1988, and PAX, which only adds headers.
    Ustar,
    /// GNU tar's own.
    Gnu,
    /// Ustar with a shorter prefix and two more times.
    Star,
}

impl RawTarHeader {
    /// The header in a block of [`BLOCK_BYTES`].
    pub fn of(block: &[u8; BLOCK_BYTES as usize]) -> RawTarHeader {
        zerocopy::transmute!(*block)
    }

    /// A ustar header of something without a name, an owner, a time or content.
    pub fn ustar(mode: u16) -> RawTarHeader {
        let mut header = RawTarHeader { magic: *b"ustar\x0000", ..RawTarHeader::new_zeroed() };
        put_octal(&mut header.mode, mode.into());
        for field in [&mut header.user, &mut header.group] {
            put_octal(field, 0);
        }
        for field in [&mut header.size, &mut header.modified] {
            put_octal(field, 0);
        }
        header
    }

    /// The block as it is stored, with its checksum.
    pub fn into_block(mut self) -> [u8; BLOCK_BYTES as usize] {
        self.checksum = [b' '; 8];
        let sum = self.as_bytes().iter().map(|&byte| u64::from(byte)).sum();
        put_octal(&mut self.checksum, sum);
        zerocopy::transmute!(self)
    }

    /// The dialect.
    pub fn dialect(&self) -> Dialect {
        match &self.magic {
            b"ustar  \0" => Dialect::Gnu,
            [b'u', b's', b't', b'a', b'r', 0, ..] if self.tail.ends_with(b"tar\0") => Dialect::Star,
            [b'u', b's', b't', b'a', b'r', 0, ..] => Dialect::Ustar,
            _ => Dialect::V7,
        }
    }

    /// The end of a header that GNU tar made.
    pub fn gnu_tail(&self) -> GnuTail {
        zerocopy::transmute!(self.tail)
    }

    /// The end of a header that star made.
    pub fn star_tail(&self) -> StarTail {
        zerocopy::transmute!(self.tail)
    }

    /// The name with the prefix that dialects other than GNU's put before it.
    pub fn path(&self) -> Vec<u8> {
        let prefix = match self.dialect() {
            Dialect::Ustar => text(&self.tail[..155]).to_vec(),
            Dialect::Star => text(&self.star_tail().prefix).to_vec(),
            Dialect::Gnu | Dialect::V7 => Vec::new(),
        };
        let name = text(&self.name);
        if prefix.is_empty() { name.to_vec() } else { [&prefix[..], b"/", name].concat() }
    }
}

/// Checks the sum of a header's bytes, with the sum's own field counted as spaces. Some old
/// programs summed signed bytes.
pub(crate) fn check_sum(block: &[u8; BLOCK_BYTES as usize]) -> Result<(), TarProblem> {
    const FIELD: std::ops::Range<usize> =
        offset_of!(RawTarHeader, checksum)..offset_of!(RawTarHeader, checksum) + 8;
    let spaces = 8 * i64::from(b' ');
    let bytes = || block[..FIELD.start].iter().chain(&block[FIELD.end..]);
    let unsigned = spaces + bytes().map(|&byte| i64::from(byte)).sum::<i64>();
    let stored = number(&block[FIELD]).ok_or(TarProblem::NotAHeader)?;
    if stored == unsigned {
        return Ok(());
    }
    let signed = spaces + bytes().map(|&byte| i64::from(byte as i8)).sum::<i64>();
    if stored == signed {
        return Ok(());
    }
    Err(TarProblem::Checksum { stored, computed: unsigned })
}

/// Writes octal digits and a NUL. The number must fit.
pub(crate) fn put_octal(field: &mut [u8], number: u64) {
    let width = field.len() - 1;
    let digits = format!("{number:0width$o}\0");
    assert_eq!(digits.len(), field.len(), "the number has too many digits");
    field.copy_from_slice(digits.as_bytes());
}

/// Writes text, which needs no NUL at the end; false if it was cut off.
pub(crate) fn put_text(field: &mut [u8], text: &[u8]) -> bool {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
    length == text.len()
}

/// A field up to its first NUL.
pub(crate) fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// A number: octal digits that end at a NUL, a space or the field's end, or, with the top bit
/// set, a big-endian two's complement of the other bits. An empty field is zero.
pub(crate) fn number(field: &[u8]) -> Option<i64> {
    match field.first() {
        Some(&first) if first & 0x80 != 0 => {
            // The second highest bit is the sign.
            let head = i64::from(first & 0x7f) | if first & 0x40 != 0 { !0x7f } else { 0 };
            field[1..]
                .iter()
                .try_fold(head, |value, &byte| Some(value.checked_mul(256)? | i64::from(byte)))
        }
        _ => {
            let start = field.iter().position(|&byte| byte != b' ').unwrap_or(field.len());
            let digits = field[start..].split(|byte| matches!(byte, 0 | b' ')).next()?;
            digits.iter().try_fold(0_i64, |value, &byte| {
                let digit = byte.checked_sub(b'0').filter(|digit| *digit < 8)?;
                value.checked_mul(8)?.checked_add(i64::from(digit))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (field, expected) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"777777777777", Some(0o777_777_777_777)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"12a\0", None),
            (b"8\0", None),
            (b"-1\0", None),
            (b"\x80\0\0\0\0\0\0\x01\0\0\0\0", Some(1 << 32)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", Some(-1)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", Some(i64::MAX)),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", None),
            (b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"\x80\x01\0\0\0\0\0\0\0\0\0\0", None),
            (b"", Some(0)),
        ] {
            assert_eq!(number(field), expected, "{field:?}");
        }
    }

    #[test]
    fn sums_may_be_signed() {
        let mut block = [0_u8; 512];
        block[0] = 0xff;
        let put = |block: &mut [u8; 512], sum: i64| {
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        };
        put(&mut block, 8 * 32 + 255);
        assert_eq!(check_sum(&block), Ok(()));
        put(&mut block, 8 * 32 - 1);
        assert_eq!(check_sum(&block), Ok(()));
        put(&mut block, 8 * 32);
        assert_eq!(check_sum(&block), Err(TarProblem::Checksum { stored: 256, computed: 511 }));
    }

    #[test]
    fn prefixes_by_dialect() {
        let mut header = RawTarHeader::of(&[0; 512]);
        header.name[..4].copy_from_slice(b"name");
        header.tail[..3].copy_from_slice(b"dir");
        assert_eq!(header.path(), b"name");
        header.magic = *b"ustar\x0000";
        assert_eq!((header.dialect(), header.path()), (Dialect::Ustar, b"dir/name".to_vec()));
        header.magic = *b"ustar  \0";
        assert_eq!((header.dialect(), header.path()), (Dialect::Gnu, b"name".to_vec()));
        header.magic = *b"ustar\x0000";
        header.tail[131..143].copy_from_slice(b"00000000001 ");
        header.tail[163..].copy_from_slice(b"tar\0");
        assert_eq!((header.dialect(), header.path()), (Dialect::Star, b"dir/name".to_vec()));
    }
}
