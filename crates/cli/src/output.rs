//! How names, times and inodes are written, for people and for programs.

use drystone::vfs::{DeviceNumber, FileType, InodeAttributes, Timestamp};
use jiff::tz::TimeZone;
use serde::Serialize;

/// A name whose control characters and bytes that aren't UTF-8 are written as escapes.
pub struct Escaped<'n>(pub &'n [u8]);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use std::fmt::Write;
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                if character.is_control() {
                    write!(f, "{}", character.escape_default())?;
                } else {
                    f.write_char(character)?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// How many of something.
pub fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// A name in JSON: text, and the bytes too where they aren't UTF-8.
#[derive(Serialize)]
pub struct NameJson {
    /// The name, with U+FFFD in place of what is no UTF-8.
    pub name: String,
    /// The bytes of a name that isn't UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_bytes: Option<Vec<u8>>,
}

impl From<&[u8]> for NameJson {
    fn from(name: &[u8]) -> NameJson {
        NameJson {
            name: String::from_utf8_lossy(name).into_owned(),
            name_bytes: std::str::from_utf8(name).is_err().then(|| name.to_vec()),
        }
    }
}

/// An inode in JSON.
#[derive(Serialize)]
pub struct InodeJson {
    #[serde(flatten)]
    pub name: NameJson,
    pub inode: u64,
    #[serde(rename = "type")]
    pub file_type: FileType,
    /// Octal digits.
    pub permissions: String,
    pub links: u32,
    pub user: u32,
    pub group: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_name: Option<String>,
    pub size: u64,
    /// Space used, in bytes.
    pub allocated: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceNumber>,
    pub accessed: String,
    pub modified: String,
    pub changed: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<NameJson>,
}

impl InodeJson {
    /// `target`: of a symbolic link. `names`: those of user and group, if any.
    pub fn new(
        name: &[u8],
        attributes: &InodeAttributes,
        target: Option<&[u8]>,
        names: [Option<&[u8]>; 2],
    ) -> InodeJson {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        InodeJson {
            name: name.into(),
            inode: attributes.inode.0,
            file_type: attributes.file_type,
            permissions: format!("{:04o}", attributes.permissions),
            links: attributes.links,
            user: attributes.user,
            group: attributes.group,
            user_name: names[0].map(text),
            group_name: names[1].map(text),
            size: attributes.size,
            allocated: attributes.sectors.saturating_mul(512),
            device: is_device(attributes.file_type).then_some(attributes.device),
            accessed: time_exact(attributes.accessed, &TimeZone::UTC),
            modified: time_exact(attributes.modified, &TimeZone::UTC),
            changed: time_exact(attributes.changed, &TimeZone::UTC),
            created: attributes.created.map(|time| time_exact(time, &TimeZone::UTC)),
            target: target.map(NameJson::from),
        }
    }
}

/// True for device nodes.
pub fn is_device(file_type: FileType) -> bool {
    matches!(file_type, FileType::CharacterDevice | FileType::BlockDevice)
}

/// The letter of a type, as `find -type` and `ls -l` have it.
pub fn type_letter(file_type: FileType) -> char {
    match file_type {
        FileType::Regular => 'f',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
    }
}

/// A type in words, as `stat` has it.
pub fn type_words(attributes: &InodeAttributes) -> &'static str {
    match attributes.file_type {
        FileType::Regular if attributes.size == 0 => "regular empty file",
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::CharacterDevice => "character special file",
        FileType::BlockDevice => "block special file",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

fn zoned(time: Timestamp, zone: &TimeZone) -> Option<jiff::Zoned> {
    let nanoseconds = i32::try_from(time.nanoseconds).ok()?;
    Some(jiff::Timestamp::new(time.seconds, nanoseconds).ok()?.to_zoned(zone.clone()))
}

/// A time with nanoseconds and zone.
pub fn time_exact(time: Timestamp, zone: &TimeZone) -> String {
    match zoned(time, zone) {
        Some(zoned) => zoned.strftime("%Y-%m-%dT%H:%M:%S.%9f%:z").to_string(),
        None => format!("{}.{:09} s since 1970", time.seconds, time.nanoseconds),
    }
}

/// A time as `stat` writes it.
pub fn time_stat(time: Timestamp, zone: &TimeZone) -> String {
    match zoned(time, zone) {
        Some(zoned) => zoned.strftime("%Y-%m-%d %H:%M:%S.%9f %z").to_string(),
        None => time_exact(time, zone),
    }
}

/// A time as `ls -l` writes it: the time of day if it was within half a year before `now`.
pub fn time_short(time: Timestamp, now: i64, zone: &TimeZone) -> String {
    /// Half of the average year.
    const RECENT_SECONDS: i64 = 31_556_952 / 2;
    let Some(zoned) = zoned(time, zone) else { return time.seconds.to_string() };
    let is_recent = time.seconds <= now && now.saturating_sub(time.seconds) < RECENT_SECONDS;
    zoned.strftime(if is_recent { "%b %e %H:%M" } else { "%b %e  %Y" }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_harmless_on_a_terminal() {
        let text = |name: &[u8]| Escaped(name).to_string();
        assert_eq!(text("ä b".as_bytes()), "ä b");
        assert_eq!(text(b"a\x1b[31m\n\xff"), "a\\u{1b}[31m\\n\\xff");
    }

    #[test]
    fn names_in_json() {
        let json = |name: &[u8]| serde_json::to_string(&NameJson::from(name)).unwrap();
        assert_eq!(json(b"a\"b"), r#"{"name":"a\"b"}"#);
        assert_eq!(json(b"a\xff"), "{\"name\":\"a\u{fffd}\",\"name_bytes\":[97,255]}");
    }

    #[test]
    fn times() {
        let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        let utc = &TimeZone::UTC;
        assert_eq!(time_exact(time(0, 5), utc), "1970-01-01T00:00:00.000000005+00:00");
        assert_eq!(time_exact(time(-1, 500_000_000), utc), "1969-12-31T23:59:59.500000000+00:00");
        assert_eq!(time_stat(time(4_294_967_296, 0), utc), "2106-02-07 06:28:16.000000000 +0000");
        assert_eq!(time_short(time(1_000_000_000, 0), 1_000_000_100, utc), "Sep  9 01:46");
        assert_eq!(time_short(time(1_000_000_000, 0), 1_100_000_000, utc), "Sep  9  2001");
        assert_eq!(time_short(time(1_000_000_000, 0), 999_999_999, utc), "Sep  9  2001");
        assert_eq!(
            time_exact(time(i64::MAX, 1), utc),
            "9223372036854775807.000000001 s since 1970"
        );
    }
}
