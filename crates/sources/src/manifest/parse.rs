//! Parses the lines of a manifest.

use super::{Line, New};
use crate::bytes::{decimal, octal, seconds};
use crate::layer::{ATTRIBUTE_BYTES_MAX, ATTRIBUTE_NAME_BYTES_MAX, can_be_kept};
use crate::list::{LineError, LineField, Wrong, for_each_line};
use crate::tar::clean_path;
use drystone_mkfs::tree::InodeTimestamp;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Major numbers that Linux has.
const MAJOR_COUNT: u32 = 1 << 12;
/// Minor numbers that Linux has.
const MINOR_COUNT: u32 = 1 << 20;

/// Reads all lines.
pub(super) fn lines(name: &str, text: &[u8]) -> Result<Vec<Line>, LineError> {
    let mut lines = Vec::new();
    for_each_line(name, text, |number, fields| {
        lines.push(line(number, fields)?);
        Ok(())
    })?;
    Ok(lines)
}

/// Fields whose meaning depends on each other.
#[derive(Default)]
struct Parts<'a> {
    kind: Option<LineField<'a>>,
    device: Option<(LineField<'a>, (u32, u32))>,
    target: Option<(LineField<'a>, Vec<u8>)>,
    content: Option<(LineField<'a>, Vec<u8>)>,
}

fn line(number: usize, fields: &[LineField<'_>]) -> Result<Line, Wrong> {
    let Some((path, words)) = fields.split_first() else { return Ok(Line::default()) };
    let mut line = Line { number, ..Line::default() };
    line.path = clean_path(&path.text()?).map_err(|problem| path.wrong(problem))?;
    let mut parts = Parts::default();
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for word in words {
        let (key, value) = word.split();
        let key_text = key.text()?;
        if seen.contains(&key_text) {
            return Err(key.is_not("said twice"));
        }
        match value {
            Some(value) => set(&mut line, &mut parts, (key, &key_text), value)?,
            None => match &key_text[..] {
                b"remove" => line.removes = true,
                b"optional" => line.is_optional = true,
                name => line.attributes.push((attribute_name(key, name)?, None)),
            },
        }
        seen.push(key_text);
    }
    line.new = parts.finish()?;
    if line.removes && (line.new.is_some() || words.len() > 1 + usize::from(line.is_optional)) {
        return Err(path.wrong("what is removed can't be changed as well"));
    }
    if line.path.is_empty() && line.removes {
        return Err(path.wrong("the root can't be removed"));
    }
    Ok(line)
}

fn set<'a>(
    line: &mut Line,
    parts: &mut Parts<'a>,
    (key, key_text): (LineField<'a>, &[u8]),
    value: LineField<'a>,
) -> Result<(), Wrong> {
    let text = value.text()?;
    match key_text {
        b"type" => parts.kind = Some(value),
        b"mode" => {
            let mode = octal(&text).filter(|&mode| mode <= 0o7777);
            line.mode =
                Some(mode.ok_or_else(|| value.is_not("not an octal mode up to 7777"))? as u16);
        }
        b"uid" => line.user = Some(owner(value, &text)?),
        b"gid" => line.group = Some(owner(value, &text)?),
        b"mtime" => {
            let (seconds, nanoseconds) =
                seconds(&text).ok_or_else(|| value.is_not("not a decimal number of seconds"))?;
            let time = InodeTimestamp { seconds, nanoseconds };
            if time != time.clamp_to_inode(true) {
                return Err(value.is_not("before 1901 or after 2446, which no inode can hold"));
            }
            line.modified = Some(time);
        }
        b"device" => parts.device = Some((key, device(value, &text)?)),
        b"target" => parts.target = Some((key, text)),
        b"content" => parts.content = Some((key, text)),
        name => {
            let name = attribute_name(key, name)?;
            if text.len() > ATTRIBUTE_BYTES_MAX {
                return Err(value.wrong(format_args!("{} bytes; 65536 fit", text.len())));
            }
            line.attributes.push((name, Some(text)));
        }
    }
    Ok(())
}

/// The name after `xattr.`.
fn attribute_name(key: LineField<'_>, text: &[u8]) -> Result<Vec<u8>, Wrong> {
    let Some(name) = text.strip_prefix(b"xattr.") else {
        return Err(key.is_not(
            "not one of type, mode, uid, gid, mtime, device, target, content, xattr.NAME, remove, \
             optional",
        ));
    };
    if !can_be_kept(name) || name.len() > ATTRIBUTE_NAME_BYTES_MAX {
        return Err(key.is_not(
            "not an attribute that Linux has: user.*, trusted.*, security.* or system.posix_acl_*",
        ));
    }
    Ok(name.to_vec())
}

fn owner(value: LineField<'_>, text: &[u8]) -> Result<u32, Wrong> {
    let id = decimal(text).and_then(|id| u32::try_from(id).ok()).filter(|&id| id != u32::MAX);
    id.ok_or_else(|| value.is_not("not the number of a user or group"))
}

fn device(value: LineField<'_>, text: &[u8]) -> Result<(u32, u32), Wrong> {
    let mut numbers = text.splitn(2, |&byte| byte == b':');
    let mut number = |count: u32| {
        let number = numbers.next().and_then(decimal)?;
        u32::try_from(number).ok().filter(|&number| number < count)
    };
    let device = number(MAJOR_COUNT).zip(number(MINOR_COUNT));
    device.ok_or_else(|| value.is_not("not a device: MAJOR:MINOR, up to 4095:1048575"))
}

impl Parts<'_> {
    /// What these fields make together.
    fn finish(mut self) -> Result<Option<New>, Wrong> {
        let Some(kind) = self.kind else {
            return self.unused("needs a type=").map(|()| None);
        };
        let missing = |what| kind.wrong(format_args!("this type needs {what}"));
        let new = match &kind.text()?[..] {
            b"file" => {
                let content = self.content.take().map(|(_, path)| OsString::from_vec(path).into());
                New::File(content)
            }
            b"directory" => New::Directory,
            b"fifo" => New::Fifo,
            b"socket" => New::Socket,
            b"symlink" => {
                let (field, target) = self.target.take().ok_or_else(|| missing("a target="))?;
                if target.is_empty() || target.len() > 4095 || target.contains(&0) {
                    return Err(field.wrong("a symbolic link has 1 to 4095 bytes, none a NUL"));
                }
                New::Symlink(target)
            }
            b"hardlink" => {
                let (field, target) = self.target.take().ok_or_else(|| missing("a target="))?;
                New::HardLink(clean_path(&target).map_err(|problem| field.wrong(problem))?)
            }
            character_or_block @ (b"character" | b"block") => {
                let (_, (major, minor)) =
                    self.device.take().ok_or_else(|| missing("a device=MAJOR:MINOR"))?;
                if character_or_block == b"block" {
                    New::BlockDevice(major, minor)
                } else {
                    New::CharacterDevice(major, minor)
                }
            }
            _ => {
                return Err(kind.is_not(
                    "not one of file, directory, symlink, hardlink, character, block, fifo, socket",
                ));
            }
        };
        self.unused("doesn't go with this type")?;
        Ok(Some(new))
    }

    fn unused(&self, what: &str) -> Result<(), Wrong> {
        let device = self.device.as_ref().map(|(field, _)| field);
        let target = self.target.as_ref().map(|(field, _)| field);
        let content = self.content.as_ref().map(|(field, _)| field);
        match device.or(target).or(content) {
            Some(field) => Err((field.column, what.to_owned())),
            None => Ok(()),
        }
    }
}
