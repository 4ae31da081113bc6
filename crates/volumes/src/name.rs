//! The names of volumes.

use crate::{parse_size, remote};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// What a volume is called, taken apart:
///
/// | name | what it stands for |
/// | --- | --- |
/// | `disk.img` | a file or a block device |
/// | `disk.img#2` | its second partition |
/// | `disk.img#root` | the one partition with this name, label, UUID or type |
/// | `disk.img@offset=1M` | what begins there; `,size=64M` says how much it is |
/// | `disk.img@format=raw` | the file as it is, whatever it begins with |
/// | `log.img@12` | a checkpoint of NILFS2 |
/// | `nbd://host/export`, `nbd+unix:///export?socket=/path` | an export of an NBD server; `nbds` for TLS |
/// | `rbd:pool/image`, `rbd:pool/image@snapshot` | an image in a Ceph cluster |
///
/// These may follow one another. A name is taken apart only where a file is in front: `a#2` may also be the
/// name of a file, and is that if the file is there. No file is made for a name with a `#` or a range of bytes behind
/// something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeName {
    source: PathBuf,
    suffix: OsString,
    format: Option<NamedFormat>,
    parts: Vec<VolumePart>,
    checkpoint: Option<u64>,
}

/// The format of a file, if the name says it. A file begins with what its writer wants, who may be a guest that
/// isn't trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedFormat {
    /// The file is the disk, whatever it begins with.
    Raw,
    /// It is a qcow2, whose backing files may be anywhere.
    Qcow2,
}

/// Which part of a disk is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumePart {
    /// A partition.
    Partition(PartitionChoice),
    /// These bytes, or all from the offset on.
    Range {
        /// Where it begins.
        offset: u64,
        /// How much it is.
        length: Option<u64>,
    },
}

/// How a partition is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionChoice {
    /// Its number in the table.
    Number(u32),
    /// Its UUID, or that of its type or of the file system in it.
    Uuid(Uuid),
    /// Its name in the table, the label of the file system in it, or the name of its type.
    Name(String),
}

/// A name that can't be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{suffix}' in the name of the volume: {problem}")]
pub struct NameError {
    suffix: String,
    problem: String,
}

impl VolumeName {
    /// Takes a name apart. What is there decides what is the name of a file.
    ///
    /// # Errors
    ///
    /// [`NameError`] if an offset or a size isn't a number.
    pub fn find(name: &Path) -> Result<VolumeName, NameError> {
        let bytes = name.as_os_str().as_bytes();
        let is_address = remote::is_address(bytes);
        let base = if is_address { remote::base_length(bytes) } else { 0 };
        let is_source = |length: usize| {
            let source = Path::new(OsStr::from_bytes(&bytes[..length]));
            source.metadata().is_ok_and(|found| !found.is_dir())
        };
        let marks = bytes.iter().enumerate().filter(|(_, byte)| b"#@".contains(byte));
        let mut ends = marks.map(|(at, _)| at).filter(|at| *at > 0 && *at >= base);
        let length = match is_source(bytes.len()) {
            true => bytes.len(),
            false if is_address => {
                ends.find(|at| begins_part(&bytes[*at..])).unwrap_or(bytes.len())
            }
            false => ends.find(|at| is_source(*at)).unwrap_or(bytes.len()),
        };
        let (source, suffix) = bytes.split_at(length);
        let mut volume = VolumeName {
            source: PathBuf::from(OsStr::from_bytes(source)),
            suffix: OsStr::from_bytes(suffix).to_owned(),
            format: None,
            parts: Vec::new(),
            checkpoint: None,
        };
        volume.read_suffix(suffix)?;
        Ok(volume)
    }

    /// Takes the name of a whole volume apart, not of a checkpoint in it.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find); [`NameError`] if it names a checkpoint.
    pub fn find_whole(name: &Path) -> Result<VolumeName, NameError> {
        let volume = VolumeName::find(name)?;
        match volume.checkpoint {
            None => Ok(volume),
            Some(number) => Err(NameError {
                suffix: format!("@{number}"),
                problem: "a checkpoint is part of an image; this is for the whole".to_owned(),
            }),
        }
    }

    /// Checks the name of a file that is to be made, since none is there.
    ///
    /// # Errors
    ///
    /// [`NameError`] if it looks like that of a part of a disk.
    pub fn check_new(&self) -> Result<(), NameError> {
        let file = self.source.file_name().unwrap_or_default().as_bytes();
        let Some(mark) = (1..file.len()).find(|at| begins_disk_part(&file[*at..])) else {
            return Ok(());
        };
        let (image, suffix) = file.split_at(mark);
        let image = String::from_utf8_lossy(image);
        Err(NameError {
            suffix: String::from_utf8_lossy(suffix).into_owned(),
            problem: format!(
                "there is no '{image}' to take a part of; for a file of the whole name, make an empty one first"
            ),
        })
    }

    /// A file or device, whatever its name looks like.
    #[must_use]
    pub fn of_file(source: &Path) -> VolumeName {
        VolumeName {
            source: source.to_owned(),
            suffix: OsString::new(),
            format: None,
            parts: Vec::new(),
            checkpoint: None,
        }
    }

    /// The file or device.
    #[must_use]
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// Whether a name begins with the address of a server, whatever follows.
    #[must_use]
    pub fn is_address(name: &Path) -> bool {
        remote::is_address(name.as_os_str().as_bytes()) && !name.exists()
    }

    /// Whether it is behind a server instead.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.address().is_some()
    }

    /// The address of the export, if it is behind a server.
    pub(crate) fn address(&self) -> Option<&str> {
        self.source
            .to_str()
            .filter(|name| remote::is_address(name.as_bytes()) && !self.source.exists())
    }

    /// The format of the file, if the name says it.
    #[must_use]
    pub fn format(&self) -> Option<NamedFormat> {
        self.format
    }

    /// Which part of it is meant; of that, the next part, and so on.
    #[must_use]
    pub fn parts(&self) -> &[VolumePart] {
        &self.parts
    }

    /// The checkpoint of NILFS2 that is meant.
    #[must_use]
    pub fn checkpoint(&self) -> Option<u64> {
        self.checkpoint
    }

    /// The name with the full path of the file or device.
    ///
    /// # Errors
    ///
    /// What the host says of the file.
    pub fn full(&self) -> std::io::Result<PathBuf> {
        if self.is_remote() {
            return Ok(self.with_source(self.source.clone()));
        }
        Ok(self.with_source(self.source.canonicalize()?))
    }

    /// True if both stand for the same bytes, as far as the names tell.
    #[must_use]
    pub fn is_same(&self, other: &VolumeName) -> bool {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        self.suffix == other.suffix
            && (self.source == other.source || real(&self.source) == real(&other.source))
    }

    fn with_source(&self, source: PathBuf) -> PathBuf {
        let mut name = source.into_os_string();
        name.push(&self.suffix);
        name.into()
    }

    /// Reads what comes after the file: `#…` and `@…`, one after the other.
    fn read_suffix(&mut self, suffix: &[u8]) -> Result<(), NameError> {
        let mut rest = suffix;
        while let [mark, tail @ ..] = rest {
            // The name of a partition may hold an '@' that begins nothing.
            let end = (0..tail.len()).find(|at| begins_part(&tail[*at..])).unwrap_or(tail.len());
            let (text, next) = tail.split_at(end);
            match mark {
                b'#' => self.parts.push(VolumePart::Partition(PartitionChoice::read(text))),
                _ => self.read_at(text)?,
            }
            rest = next;
        }
        Ok(())
    }

    /// Reads what comes after an `@`.
    fn read_at(&mut self, text: &[u8]) -> Result<(), NameError> {
        let suffix = String::from_utf8_lossy(text).into_owned();
        if let Ok(number) = suffix.parse() {
            self.checkpoint = Some(number);
            return Ok(());
        }
        let wrong = |problem: String| NameError { suffix: format!("@{suffix}"), problem };
        let (mut offset, mut length) = (None, None);
        for word in suffix.split(',') {
            let (place, value) = match word.split_once('=') {
                Some(("offset", value)) => (&mut offset, value),
                Some(("size", value)) => (&mut length, value),
                Some(("format", value)) => {
                    self.format = Some(self.read_format(value).map_err(wrong)?);
                    continue;
                }
                _ => {
                    let expected = "a number, offset=BYTES[,size=BYTES], or format=raw|qcow2";
                    return Err(wrong(expected.to_owned()));
                }
            };
            *place = Some(parse_size(value).map_err(wrong)?);
        }
        if offset.is_some() || length.is_some() {
            self.parts.push(VolumePart::Range { offset: offset.unwrap_or(0), length });
        }
        Ok(())
    }

    fn read_format(&self, value: &str) -> Result<NamedFormat, String> {
        if self.is_remote() || !self.parts.is_empty() || self.format.is_some() {
            return Err("only a whole file has a format, and one".to_owned());
        }
        match value {
            "raw" => Ok(NamedFormat::Raw),
            "qcow2" => Ok(NamedFormat::Qcow2),
            _ => Err("the format is raw or qcow2".to_owned()),
        }
    }
}

impl std::fmt::Display for VolumeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.with_source(self.source.clone()).display().fmt(f)
    }
}

/// Whether a text begins with a mark, and what may stand after it.
fn begins_part(text: &[u8]) -> bool {
    match text {
        [b'@', rest @ ..] => is_checkpoint(rest) || is_described(rest),
        _ => begins_disk_part(text),
    }
}

/// Whether a text begins with a partition, a range of bytes or a format.
fn begins_disk_part(text: &[u8]) -> bool {
    match text {
        [b'#', ..] => true,
        [b'@', rest @ ..] => is_described(rest),
        _ => false,
    }
}

/// Whether a text after an `@` begins a range of bytes or a format.
fn is_described(text: &[u8]) -> bool {
    ["offset=", "size=", "format="].iter().any(|word| text.starts_with(word.as_bytes()))
}

/// Whether a text after an `@` is the number of a checkpoint, up to the next mark.
fn is_checkpoint(text: &[u8]) -> bool {
    let end = text.iter().position(|byte| b"#@".contains(byte)).unwrap_or(text.len());
    let text = &text[..end];
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

impl PartitionChoice {
    fn read(text: &[u8]) -> PartitionChoice {
        let text = String::from_utf8(text.to_vec())
            .unwrap_or_else(|_| OsString::from_vec(text.to_vec()).to_string_lossy().into_owned());
        if let Ok(number) = text.parse() {
            return PartitionChoice::Number(number);
        }
        match Uuid::parse_str(&text) {
            Ok(uuid) => PartitionChoice::Uuid(uuid),
            Err(_) => PartitionChoice::Name(text),
        }
    }
}

impl std::fmt::Display for PartitionChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "#{number}"),
            Self::Uuid(uuid) => write!(f, "#{uuid}"),
            Self::Name(name) => write!(f, "#{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(folder: &Path, name: &str) -> VolumeName {
        VolumeName::find(&folder.join(name)).unwrap()
    }

    fn partition(name: &str) -> VolumePart {
        VolumePart::Partition(PartitionChoice::read(name.as_bytes()))
    }

    #[test]
    fn names_are_taken_apart_behind_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::write(folder.join("d.img"), "").unwrap();
        std::fs::create_dir(folder.join("directory")).unwrap();
        let range = |offset, length| VolumePart::Range { offset, length };
        for (name, parts, checkpoint) in [
            ("d.img", vec![], None),
            ("d.img#2", vec![partition("2")], None),
            ("d.img#root", vec![partition("root")], None),
            ("d.img#my@home", vec![partition("my@home")], None),
            ("d.img#a@12", vec![partition("a")], Some(12)),
            ("d.img@12", vec![], Some(12)),
            ("d.img@offset=1M", vec![range(1 << 20, None)], None),
            ("d.img@offset=512,size=64K", vec![range(512, Some(64 << 10))], None),
            ("d.img#2@offset=1K@3", vec![partition("2"), range(1024, None)], Some(3)),
            ("d.img#2#1", vec![partition("2"), partition("1")], None),
        ] {
            let volume = found(folder, name);
            assert_eq!(volume.source(), folder.join("d.img"), "{name}");
            assert_eq!((volume.parts(), volume.checkpoint()), (&parts[..], checkpoint), "{name}");
            assert_eq!(volume.to_string(), folder.join(name).display().to_string());
        }
        for name in ["e.img#2", "directory#2", "e@12", "#2", "@1"] {
            let volume = found(folder, name);
            assert_eq!((volume.source(), volume.parts()), (&*folder.join(name), &[][..]), "{name}");
        }
    }

    #[test]
    fn a_name_may_say_the_format() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::write(folder.join("d"), "").unwrap();
        let range = VolumePart::Range { offset: 512, length: None };
        for (name, format, parts) in [
            ("d@format=raw", NamedFormat::Raw, vec![]),
            ("d@format=qcow2#2", NamedFormat::Qcow2, vec![partition("2")]),
            ("d@format=raw,offset=512", NamedFormat::Raw, vec![range.clone()]),
            ("d@format=raw@offset=512", NamedFormat::Raw, vec![range]),
        ] {
            let volume = found(folder, name);
            assert_eq!((volume.format(), volume.parts()), (Some(format), &parts[..]), "{name}");
            assert_eq!(volume.source(), folder.join("d"));
            assert!(volume.full().unwrap().ends_with(name));
        }
        for name in ["d@format=vdi", "d#1@format=raw", "d@format=raw,format=raw"] {
            assert!(VolumeName::find(&folder.join(name)).is_err(), "{name}");
        }
        assert!(VolumeName::find(Path::new("nbd://host/x@format=raw")).is_err());
    }

    #[test]
    fn no_file_is_made_for_a_partition() {
        let folder = tempfile::tempdir().unwrap();
        let new = |name: &str| found(folder.path(), name).check_new();
        assert_eq!(
            new("nope.img#2").unwrap_err().to_string(),
            "'#2' in the name of the volume: there is no 'nope.img' to take a part of; \
             for a file of the whole name, make an empty one first"
        );
        for name in ["nope.img#root", "a#b#1", "nope.img@offset=1M", "a@b@size=4K", "#@offset=0"] {
            assert!(new(name).is_err(), "{name}");
        }
        for name in ["nope.img", "#2", "@offset=1M", "a#b/nope.img", "a@size=1/b", "nope@12", "a@b"]
        {
            new(name).unwrap();
        }
    }

    #[test]
    fn a_file_of_the_whole_name_is_that() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["d.img", "d.img#2", "d.img@12"] {
            std::fs::write(folder.path().join(name), "").unwrap();
            let volume = found(folder.path(), name);
            assert_eq!((volume.source(), volume.checkpoint()), (&*folder.path().join(name), None));
        }
        assert_eq!(found(folder.path(), "d.img#2#1").source(), folder.path().join("d.img"));
    }

    #[test]
    fn addresses_end_where_a_part_begins() {
        let range = VolumePart::Range { offset: 1 << 20, length: None };
        for (name, source, parts) in [
            ("nbd://host:1/e", "nbd://host:1/e", vec![]),
            ("nbd://host/a@b#2", "nbd://host/a@b", vec![partition("2")]),
            ("rbd:pool/image", "rbd:pool/image", vec![]),
            ("rbd:pool/image@12#2", "rbd:pool/image@12", vec![partition("2")]),
            ("rbd:pool/image@a?conf=/x#2", "rbd:pool/image@a?conf=/x", vec![partition("2")]),
            ("rbd:pool/image?@offset=1M", "rbd:pool/image?", vec![range.clone()]),
            ("rbd:pool/image@a@offset=1M", "rbd:pool/image@a", vec![range]),
            ("nbd+unix:///?socket=/a@b#home", "nbd+unix:///?socket=/a@b", vec![partition("home")]),
        ] {
            let volume = VolumeName::find(Path::new(name)).unwrap();
            assert_eq!((volume.source(), volume.parts()), (Path::new(source), &parts[..]));
            assert!(volume.is_remote() && volume.full().unwrap() == Path::new(name));
        }
    }

    #[test]
    fn what_is_no_offset_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("d"), "").unwrap();
        for name in ["d@offset=x", "d@offset=1M,length=2", "d@12b", "d@", "d@offset=1M,size=-1"] {
            assert!(VolumeName::find(&folder.path().join(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn partitions_are_named_in_three_ways() {
        let uuid = "0fc63daf-8483-4772-8e79-3d69d8477de4";
        assert_eq!(PartitionChoice::read(b"12"), PartitionChoice::Number(12));
        assert_eq!(
            PartitionChoice::read(uuid.to_uppercase().as_bytes()),
            PartitionChoice::Uuid(uuid.parse().unwrap())
        );
        for name in ["root", "", "-1", "4294967296"] {
            assert_eq!(PartitionChoice::read(name.as_bytes()), PartitionChoice::Name(name.into()));
        }
    }

    #[test]
    fn the_same_volume_by_other_paths() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("d"), "").unwrap();
        std::os::unix::fs::symlink("d", folder.path().join("link")).unwrap();
        let at = |name: &str| found(folder.path(), name);
        assert!(at("d#1").is_same(&at("link#1")) && at("d").is_same(&at("./d")));
        assert!(!at("d#1").is_same(&at("d#2")) && !at("d").is_same(&at("d#1")));
        let full = folder.path().canonicalize().unwrap().join("d#1");
        assert_eq!(at("link#1").full().unwrap(), full);
    }
}
