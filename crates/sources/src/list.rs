//! Text files with a record per line: the common format of manifests and lists of sources.
//!
//! Fields are separated by blanks. In a field `\s` stands for a space, `\t` for a tab, `\n` for a
//! newline, `\\` for a backslash and `\x41` for any byte. Empty lines, and those that begin with
//! `#`, say nothing.
//!
//! The escapes are decoded here because the crate `bstr` has none for a space, and takes a wrong escape for
//! text instead of saying where it is.

use crate::bytes::Shown;
use crate::tar::hex;
use std::fmt;

/// An error in a line, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// What the user called the file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Byte in the line, from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for LineError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}:{}: {}", self.file, self.line, self.column, self.problem)
    }
}

impl std::error::Error for LineError {}

/// A place in a line, and what is wrong there.
pub(crate) type Wrong = (usize, String);

/// A field as it was written, escapes and all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineField<'a> {
    /// Byte in the line, from 1.
    pub column: usize,
    raw: &'a [u8],
}

impl<'a> LineField<'a> {
    /// The field with escapes decoded.
    pub fn text(self) -> Result<Vec<u8>, Wrong> {
        let mut text = Vec::with_capacity(self.raw.len());
        let mut at = 0;
        while let Some(&byte) = self.raw.get(at) {
            let (byte, length) = match (byte, self.raw.get(at + 1)) {
                (b'\\', Some(b's')) => (b' ', 2),
                (b'\\', Some(b't')) => (b'\t', 2),
                (b'\\', Some(b'n')) => (b'\n', 2),
                (b'\\', Some(b'\\')) => (b'\\', 2),
                (b'\\', Some(b'x')) => match self.raw.get(at + 2..at + 4) {
                    Some(&[high, low]) => match hex(high).zip(hex(low)) {
                        Some((high, low)) => (high << 4 | low, 4),
                        None => return Err(self.escape(at)),
                    },
                    _ => return Err(self.escape(at)),
                },
                (b'\\', _) => return Err(self.escape(at)),
                (byte, _) => (byte, 1),
            };
            text.push(byte);
            at += length;
        }
        Ok(text)
    }

    fn escape(self, at: usize) -> Wrong {
        let what = "a backslash stands before s, t, n, x and two digits, or another backslash";
        (self.column + at, what.to_owned())
    }

    /// The parts before and after the first `=`.
    pub fn split(self) -> (LineField<'a>, Option<LineField<'a>>) {
        match self.raw.iter().position(|&byte| byte == b'=') {
            Some(at) => (
                LineField { raw: &self.raw[..at], ..self },
                Some(LineField { column: self.column + at + 1, raw: &self.raw[at + 1..] }),
            ),
            None => (self, None),
        }
    }

    /// An error in this field.
    pub fn wrong(self, what: impl fmt::Display) -> Wrong {
        (self.column, what.to_string())
    }

    /// An error in this field, with the field in the message.
    pub fn is_not(self, what: impl fmt::Display) -> Wrong {
        (self.column, format!("\"{}\" is {what}", Shown(self.raw)))
    }
}

/// Calls `each` with the fields of every line that isn't empty or a comment.
pub(crate) fn for_each_line(
    file: &str,
    bytes: &[u8],
    mut each: impl FnMut(usize, &[LineField<'_>]) -> Result<(), Wrong>,
) -> Result<(), LineError> {
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let fields = fields(line.strip_suffix(b"\r").unwrap_or(line));
        if fields.first().is_none_or(|field| field.raw.starts_with(b"#")) {
            continue;
        }
        each(index + 1, &fields).map_err(|(column, problem)| LineError {
            file: file.to_owned(),
            line: index + 1,
            column,
            problem,
        })?;
    }
    Ok(())
}

fn fields(line: &[u8]) -> Vec<LineField<'_>> {
    let mut fields = Vec::new();
    let mut start = 0;
    for raw in line.split(|byte| matches!(byte, b' ' | b'\t')) {
        if !raw.is_empty() {
            fields.push(LineField { column: start + 1, raw });
        }
        start += raw.len() + 1;
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(bytes: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, LineError> {
        let mut lines = Vec::new();
        for_each_line("list", bytes, |_, fields| {
            lines.push(fields.iter().map(|field| field.text()).collect::<Result<_, _>>()?);
            Ok(())
        })?;
        Ok(lines)
    }

    #[test]
    fn lines_and_fields() {
        let lines = texts(b"# nothing\n\n  a\\sb \t c\\x00\\xFf\\\\\r\n \t\nd#e").expect("valid");
        assert_eq!(lines, [vec![b"a b".to_vec(), b"c\0\xff\\".to_vec()], vec![b"d#e".to_vec()]]);
    }

    #[test]
    fn wrong_escapes_are_found_at_their_place() {
        for (line, column) in [("\\", 1), ("ab\\q", 3), ("a \\x4", 3), ("a b\\xzz", 4)] {
            let error = texts(format!("good\n{line}\n").as_bytes()).expect_err("wrong");
            assert_eq!((error.line, error.column), (2, column), "{line}");
            assert!(error.to_string().starts_with(&format!("list:2:{column}: a backslash")));
        }
    }
}
