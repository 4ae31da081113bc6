//! PAX extended headers: records of `length key=value` for what a header has no room for.
//!
//! A record with an empty value cancels that of a global header. Records of the sparse formats 0.0,
//! 0.1 and 1.0 are only collected here; [`super::sparse`] makes maps of them.
//!
//! # Reference
//! POSIX.1-2017, pax, "pax Extended Header"; GNU tar manual, "Storing Sparse Files"; star(5);
//! libarchive, tar(5).

use super::entry::{TarAttributes, Time};
use super::error::TarProblem;
use super::header::{BLOCK_BYTES, LARGE_MAX, RawTarHeader, put_octal, put_text};
use super::text_encodings::{base64, escape, percent};
use crate::bytes::{Shown, decimal, decimal_seconds, seconds};
use std::collections::HashSet;

/// The data of an entry's extended headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extended {
    pub path: Option<Vec<u8>>,
    pub link_path: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub user: Option<u64>,
    pub group: Option<u64>,
    pub user_name: Option<Vec<u8>>,
    pub group_name: Option<Vec<u8>>,
    pub modified: Option<Time>,
    pub device_major: Option<u64>,
    pub device_minor: Option<u64>,
    /// Extended attributes, with names as they are stored; the last of a name wins.
    attributes: TarAttributes,
    /// Attributes that bsdtar wrote a second time, with values in base 64.
    encoded_attributes: TarAttributes,
    pub access_list: Option<Vec<u8>>,
    pub default_list: Option<Vec<u8>>,
    pub label: Option<Vec<u8>>,
    pub sparse: SparseRecords,
}

/// The data of a sparse file's extended headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SparseRecords {
    pub major: Option<u64>,
    pub minor: Option<u64>,
    pub name: Option<Vec<u8>>,
    /// Size with the holes.
    pub size: Option<u64>,
    /// Offsets and lengths, in turn, of formats 0.0 and 0.1.
    pub map: Vec<u64>,
}

impl Extended {
    /// Adds the records of a global extended header. Attributes, lists, labels and maps are
    /// ignored: no program writes them globally, and each entry would have a copy.
    pub fn add_global(&mut self, bytes: &[u8]) -> Result<(), TarProblem> {
        self.add(bytes)?;
        self.attributes.clear();
        self.encoded_attributes.clear();
        (self.access_list, self.default_list, self.label) = (None, None, None);
        self.sparse = SparseRecords::default();
        Ok(())
    }

    /// Adds the records of an extended header; later ones win.
    pub fn add(&mut self, mut bytes: &[u8]) -> Result<(), TarProblem> {
        let length = bytes.len();
        while !bytes.is_empty() {
            let offset = length - bytes.len();
            let (key, value, rest) = record(bytes).ok_or(TarProblem::Records { offset })?;
            self.add_record(key, value)
                .ok_or_else(|| TarProblem::Record { key: Shown(key).to_string() })?;
            bytes = rest;
        }
        Ok(())
    }

    fn add_record(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let bytes = || (!value.is_empty()).then(|| value.to_vec());
        match key {
            b"path" => self.path = bytes(),
            b"linkpath" => self.link_path = bytes(),
            b"size" => self.size = optional(value, decimal)?,
            b"uid" => self.user = optional(value, decimal)?,
            b"gid" => self.group = optional(value, decimal)?,
            b"uname" => self.user_name = bytes(),
            b"gname" => self.group_name = bytes(),
            b"mtime" => self.modified = optional(value, time)?,
            b"SCHILY.devmajor" => self.device_major = optional(value, decimal)?,
            b"SCHILY.devminor" => self.device_minor = optional(value, decimal)?,
            b"SCHILY.acl.access" => self.access_list = bytes(),
            b"SCHILY.acl.default" => self.default_list = bytes(),
            b"RHT.security.selinux" => self.label = bytes(),
            b"GNU.sparse.major" => self.sparse.major = optional(value, decimal)?,
            b"GNU.sparse.minor" => self.sparse.minor = optional(value, decimal)?,
            b"GNU.sparse.name" => self.sparse.name = bytes(),
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => {
                self.sparse.size = optional(value, decimal)?;
            }
            b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
                let is_offset = key.ends_with(b"offset");
                if is_offset != self.sparse.map.len().is_multiple_of(2) {
                    return None;
                }
                self.sparse.map.push(decimal(value)?);
            }
            b"GNU.sparse.map" => {
                self.sparse.map = value
                    .split(|&byte| byte == b',')
                    .filter(|number| !number.is_empty())
                    .map(decimal)
                    .collect::<Option<_>>()?;
            }
            _ => self.add_attribute(key, value)?,
        }
        Some(())
    }

    fn add_attribute(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            self.attributes.push((name.to_vec(), value.to_vec()));
        } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
            self.encoded_attributes.push((name.to_vec(), base64(value)?));
        }
        Some(())
    }

    /// Takes the extended attributes out, with their true names. Of several with the same name the
    /// first counts: the later record, and the one whose value isn't encoded.
    pub fn take_attributes(&mut self) -> TarAttributes {
        let plain = std::mem::take(&mut self.attributes);
        let encoded = std::mem::take(&mut self.encoded_attributes);
        // GNU tar escapes what would end the key; bsdtar more, and in both records of an attribute.
        let by_bsdtar: HashSet<&[u8]> = encoded.iter().map(|(name, _)| &name[..]).collect();
        let plain = plain.into_iter().rev().map(|(name, value)| {
            let is_by_bsdtar = by_bsdtar.contains(&name[..]);
            (percent(&name, |byte| is_by_bsdtar || matches!(byte, b'%' | b'=')), value)
        });
        let mut attributes: TarAttributes = plain.collect();
        let encoded = encoded.into_iter().rev();
        attributes.extend(encoded.map(|(name, value)| (percent(&name, |_| true), value)));
        attributes
    }
}

/// The value; `Some(None)` if it is cancelled, `None` if it can't be read.
#[allow(clippy::option_option)]
fn optional<T>(value: &[u8], parse: impl Fn(&[u8]) -> Option<T>) -> Option<Option<T>> {
    if value.is_empty() { Some(None) } else { parse(value).map(Some) }
}

fn time(text: &[u8]) -> Option<Time> {
    seconds(text).map(|(seconds, nanoseconds)| Time { seconds, nanoseconds })
}

/// Key, value, and what follows the first record.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|&byte| byte == b' ')?;
    let length = usize::try_from(decimal(&bytes[..space])?).ok()?;
    let (record, rest) = bytes.split_at_checked(length)?;
    let (b'\n', record) = record.get(space + 1..)?.split_last()? else { return None };
    let equals = record.iter().position(|&byte| byte == b'=')?;
    if equals == 0 {
        return None;
    }
    Some((&record[..equals], &record[equals + 1..], rest))
}

/// Records of one entry that is written: `LENGTH KEY=VALUE\n`, where the length counts itself.
#[derive(Debug, Default)]
pub(crate) struct Records(Vec<u8>);

impl Records {
    /// Adds a record.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        let rest = key.len() + value.len() + 3;
        let digits = |number: usize| number.to_string().len();
        // Adding the length's digits may add another digit.
        let length = rest + digits(rest + digits(rest));
        self.0.extend_from_slice(format!("{length} ").as_bytes());
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }

    /// The value for a header's field that holds at most `max`; adds a record if it is larger.
    pub fn number(&mut self, key: &[u8], number: u64, max: u64) -> u64 {
        if number > max {
            self.add(key, number.to_string().as_bytes());
        }
        number.min(max)
    }

    /// Adds a time.
    pub fn time(&mut self, key: &[u8], Time { seconds, nanoseconds }: Time) {
        self.add(key, decimal_seconds(seconds, nanoseconds).as_bytes());
    }

    /// The whole seconds for a header's field; adds a record if they aren't exact.
    pub fn modified(&mut self, time: Time) -> u64 {
        let seconds = u64::try_from(time.seconds).unwrap_or(0).min(LARGE_MAX);
        if time.nanoseconds != 0 || i64::try_from(seconds) != Ok(time.seconds) {
            self.time(b"mtime", time);
        }
        seconds
    }

    /// Adds an extended attribute.
    pub fn attribute(&mut self, name: &[u8], value: &[u8]) {
        // A key would end at the first `=`.
        let name = escape(name, |byte| matches!(byte, b'%' | b'='));
        self.add(&[b"SCHILY.xattr.", &name[..]].concat(), value);
    }

    /// The entry that carries the records of the entry `base_name`; nothing if there are none.
    pub fn into_blocks(self, base_name: &[u8]) -> Vec<u8> {
        let Records(records) = self;
        if records.is_empty() {
            return Vec::new();
        }
        let mut header = RawTarHeader::ustar(0o644);
        header.kind = b'x';
        put_octal(&mut header.size, records.len() as u64);
        put_text(&mut header.name, &[b"PaxHeaders.0/", base_name].concat());
        let mut blocks = header.into_block().to_vec();
        blocks.extend_from_slice(&records);
        blocks.resize(blocks.len().next_multiple_of(BLOCK_BYTES as usize), 0);
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_themselves() {
        for length in 0..200 {
            let bytes = stored("k", &vec![b'v'; length]);
            let text = String::from_utf8(bytes).expect("text");
            let (count, _) = text.split_once(' ').expect("a length");
            assert_eq!(count.parse(), Ok(text.len()));
        }
    }

    /// A record as it is stored.
    fn stored(key: &str, value: &[u8]) -> Vec<u8> {
        let mut records = Records::default();
        records.add(key.as_bytes(), value);
        records.0
    }

    #[test]
    fn records_say_what_they_say() {
        let mut extended = Extended::default();
        let bytes = [
            stored("path", b"with\nnewline=and equals"),
            stored("size", b"8589934592"),
            stored("mtime", b"-1.5"),
            stored("SCHILY.xattr.user.a%3Db%25%41", b"\0=\n"),
            stored("LIBARCHIVE.xattr.user.%C3%A9", b"AAEC/w"),
            stored("comment", b"nothing"),
            stored("uid", b"1"),
            stored("uid", b""),
        ]
        .concat();
        extended.add(&bytes).expect("valid");
        assert_eq!(extended.path.as_deref(), Some(&b"with\nnewline=and equals"[..]));
        assert_eq!(extended.size, Some(1 << 33));
        assert_eq!(extended.modified, Some(Time { seconds: -2, nanoseconds: 500_000_000 }));
        assert_eq!(extended.user, None);
        let plain = (b"user.a=b%%41".to_vec(), b"\0=\n".to_vec());
        let encoded = (b"user.\xc3\xa9".to_vec(), vec![0, 1, 2, 255]);
        assert_eq!(extended.take_attributes(), [plain, encoded]);
    }

    #[test]
    fn malformed_records_are_found_at_their_place() {
        let good = stored("path", b"a");
        for bad in [
            &b"x"[..],
            b"5 a=b\n",
            b"7 a=b\n",
            b"0 a=b\n",
            b"6 a=b\nx",
            b"5 ab\n",
            b"5 =b\n",
            b" a=b\n",
            b"18446744073709551616 a=b\n",
            b"3 \n",
            b"2 ",
            b"-6 a=b\n",
        ] {
            let bytes = [&good[..], bad].concat();
            let problem = Extended::default().add(&bytes).expect_err("malformed");
            let in_good_one =
                matches!(problem, TarProblem::Records { offset } if offset >= good.len());
            assert!(in_good_one, "{}: {problem:?}", Shown(bad));
        }
        let problem = Extended::default().add(&stored("mtime", b"soon")).expect_err("no time");
        assert_eq!(problem, TarProblem::Record { key: "mtime".into() });
    }
}
