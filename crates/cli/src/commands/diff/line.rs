//! The line of one difference.

use crate::output::{Escaped, NameJson, time_exact};
use crate::terminal::Output;
use drystone::compare::{Difference, DifferenceKind, Which};
use drystone::vfs::FileType;
use jiff::tz::TimeZone;
use serde::Serialize;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[derive(Serialize)]
struct DifferenceJson {
    /// Where it is below the tops.
    #[serde(flatten)]
    path: NameJson,
    /// What differs.
    what: &'static str,
    /// The name of an extended attribute.
    #[serde(skip_serializing_if = "Option::is_none")]
    attribute: Option<String>,
    /// The value of the first tree, where it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<String>,
    /// The value of the second tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<String>,
    /// The first byte that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
}

/// The parts of the line of a difference.
struct DifferenceText {
    what: &'static str,
    values: [Option<String>; 2],
    attribute: Option<String>,
    offset: Option<u64>,
}

impl DifferenceText {
    fn new(kind: &DifferenceKind) -> DifferenceText {
        let mut text =
            DifferenceText { what: "", values: [None, None], attribute: None, offset: None };
        let mut both = |what, first: String, second: String| {
            text.what = what;
            text.values = [Some(first), Some(second)];
        };
        match kind {
            DifferenceKind::Type(a, b) => both("type", type_name(*a).into(), type_name(*b).into()),
            DifferenceKind::Mode(a, b) => both("mode", format!("{a:04o}"), format!("{b:04o}")),
            DifferenceKind::Owner(a, b) => {
                both("owner", format!("{}:{}", a.0, a.1), format!("{}:{}", b.0, b.1));
            }
            DifferenceKind::Size(a, b) => both("size", a.to_string(), b.to_string()),
            DifferenceKind::Target(a, b) => {
                both("target", Escaped(a).to_string(), Escaped(b).to_string());
            }
            DifferenceKind::Device(a, b) => {
                both(
                    "device",
                    format!("{}:{}", a.major, a.minor),
                    format!("{}:{}", b.major, b.minor),
                );
            }
            DifferenceKind::Modified(a, b) => {
                both("modified", time_exact(*a, &TimeZone::UTC), time_exact(*b, &TimeZone::UTC));
            }
            DifferenceKind::Xattr(name, a, b) => {
                text.what = "xattr";
                text.attribute = Some(Escaped(name).to_string());
                text.values = [a, b].map(|value| value.as_deref().map(shown_value));
            }
            DifferenceKind::OnlyIn(which, file_type) => {
                text.what = "only";
                text.values[place(*which)] = Some(type_name(*file_type).to_string());
            }
            DifferenceKind::Links(which, name) => {
                text.what = "links";
                text.values[place(*which)] = Some(shown_path(name));
            }
            DifferenceKind::Content(offset) => {
                text.what = "content";
                text.offset = Some(*offset);
            }
            DifferenceKind::Holes(offset) => {
                text.what = "holes";
                text.offset = Some(*offset);
            }
        }
        text
    }
}

fn place(which: Which) -> usize {
    match which {
        Which::First => 0,
        Which::Second => 1,
    }
}

fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

fn shown_path(path: &Path) -> String {
    format!("/{}", Escaped(path.as_os_str().as_bytes()))
}

/// Text in quotes, anything else in hexadecimal digits, as `getfattr` shows them.
fn shown_value(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.contains(|c: char| c.is_control()) => format!("{text:?}"),
        _ => value.iter().fold("0x".to_string(), |text, byte| text + &format!("{byte:02x}")),
    }
}

/// Writes the line of a difference.
pub(super) fn print(
    output: &mut Output<'_>,
    difference: &Difference,
    labels: [&str; 2],
) -> anyhow::Result<()> {
    let DifferenceText { what, values, attribute, offset } = DifferenceText::new(&difference.kind);
    let path = difference.path.as_os_str().as_bytes();
    if output.json {
        let [a, b] = values;
        let path = NameJson::from([b"/", path].concat().as_slice());
        return output.json(&DifferenceJson { path, what, attribute, a, b, offset });
    }
    write!(output, "{}: ", shown_path(&difference.path))?;
    match &difference.kind {
        DifferenceKind::OnlyIn(which, file_type) => {
            write!(output, "only in {} ({})", labels[place(*which)], type_name(*file_type))?;
        }
        DifferenceKind::Links(which, name) => {
            let (name, label) = (shown_path(name), labels[place(*which)]);
            write!(output, "links: the same file as {name} in {label} only")?;
        }
        _ => {
            write!(output, "{what}")?;
            if let Some(attribute) = attribute {
                write!(output, " {attribute}")?;
            }
            match (values, offset) {
                (_, Some(offset)) => write!(output, ": from byte {offset} on")?,
                ([a, b], _) => {
                    let shown = |value: Option<String>| value.unwrap_or_else(|| "none".to_string());
                    write!(output, ": {} -> {}", shown(a), shown(b))?;
                }
            }
        }
    }
    Ok(writeln!(output)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::printed;

    #[test]
    fn lines() {
        let line = |json, kind| {
            let difference = Difference { path: "a/b\nc".into(), kind };
            printed(json, |output| print(output, &difference, ["x.img:/", "y"]).unwrap())
        };
        assert_eq!(
            line(false, DifferenceKind::Mode(0o644, 0o4755)),
            "/a/b\\nc: mode: 0644 -> 4755\n"
        );
        assert_eq!(line(false, DifferenceKind::Content(7)), "/a/b\\nc: content: from byte 7 on\n");
        let kind = DifferenceKind::OnlyIn(Which::Second, FileType::Directory);
        assert_eq!(line(false, kind.clone()), "/a/b\\nc: only in y (directory)\n");
        assert_eq!(
            line(true, kind),
            "{\"name\":\"/a/b\\nc\",\"what\":\"only\",\"b\":\"directory\"}\n"
        );
        let kind =
            DifferenceKind::Xattr(b"user.x".to_vec(), Some(b"v\"".to_vec()), Some(vec![0, 255]));
        let expected = "/a/b\\nc: xattr user.x: \"v\\\"\" -> 0x00ff\n";
        assert_eq!(line(false, kind), expected);
        let kind = DifferenceKind::Links(Which::First, "z".into());
        let expected = "/a/b\\nc: links: the same file as /z in x.img:/ only\n";
        assert_eq!(line(false, kind), expected);
    }
}
