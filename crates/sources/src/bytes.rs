//! Byte strings shown as text, and numbers parsed from them.
//!
//! The crate `bstr` escapes blanks, but not the control characters above ASCII, which terminals obey.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Shows bytes as text. Unprintable bytes are escaped, so that no name can control a terminal.
pub(crate) struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                if matches!(character, '\n' | '\t' | '\r' | '\\')
                    || character > '\x7f' && character.is_control()
                {
                    write!(formatter, "{}", character.escape_default())?;
                } else if character.is_control() {
                    write!(formatter, "\\x{:02x}", u32::from(character))?;
                } else {
                    write!(formatter, "{character}")?;
                }
            }
            for byte in chunk.invalid() {
                write!(formatter, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// A path as text.
pub(crate) fn shown(path: &Path) -> String {
    Shown(path.as_os_str().as_bytes()).to_string()
}

/// A number in decimal digits, and nothing else.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, &byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A number in octal digits, and nothing else.
pub(crate) fn octal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, &byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value.checked_mul(8)?.checked_add(u64::from(digit))
    })
}

/// A time in decimal seconds since 1970, with a fraction and a sign if need be: whole seconds,
/// rounded down, and nanoseconds. What is finer is cut off.
pub(crate) fn seconds(text: &[u8]) -> Option<(i64, u32)> {
    let (is_negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let whole = i64::try_from(decimal(parts.next()?)?).ok()?;
    let fraction = parts.next().unwrap_or(b"0");
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |at: usize| u32::from(fraction.get(at).map_or(0, |byte| byte - b'0'));
    let nanoseconds = (0..9).fold(0, |value, at| value * 10 + digit(at));
    if !is_negative {
        return Some((whole, nanoseconds));
    }
    if nanoseconds == 0 {
        return Some((-whole, 0));
    }
    Some((-whole - 1, 1_000_000_000 - nanoseconds))
}

/// A time as a decimal number of seconds since 1970, with as many digits as it needs.
#[must_use]
pub fn decimal_seconds(seconds: i64, nanoseconds: u32) -> String {
    const BILLION: u32 = 1_000_000_000;
    // The nanoseconds of a time count upwards even before 1970; the decimal fraction of a negative
    // number counts away from zero.
    let (sign, seconds, nanoseconds) = match (seconds < 0, nanoseconds) {
        (true, 0) => ("-", seconds.unsigned_abs(), 0),
        (true, _) => ("-", seconds.unsigned_abs() - 1, BILLION.saturating_sub(nanoseconds)),
        (false, _) => ("", seconds.unsigned_abs(), nanoseconds),
    };
    let text = format!("{sign}{seconds}.{nanoseconds:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, expected) in [
            ("0", Some((0, 0))),
            ("1700000000.123456789", Some((1_700_000_000, 123_456_789))),
            ("1.5", Some((1, 500_000_000))),
            ("1.", Some((1, 0))),
            ("-1", Some((-1, 0))),
            ("-1.25", Some((-2, 750_000_000))),
            ("-0.000000001", Some((-1, 999_999_999))),
            ("1.0000000019", Some((1, 1))),
            ("", None),
            ("-", None),
            (".5", None),
            ("1.x", None),
            ("1e5", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(seconds(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn times_as_decimal_numbers() {
        for (seconds, nanoseconds, expected) in [
            (0, 0, "0"),
            (10, 0, "10"),
            (10, 500_000_000, "10.5"),
            (10, 5, "10.000000005"),
            (-1, 5, "-0.999999995"),
            (-10, 0, "-10"),
            (-10, 500_000_000, "-9.5"),
        ] {
            assert_eq!(decimal_seconds(seconds, nanoseconds), expected);
        }
    }

    #[test]
    fn names_are_shown_without_control_characters() {
        assert_eq!(Shown(b"a\x1b[2J\n\xff\\\xc3\xa9").to_string(), "a\\x1b[2J\\n\\xff\\\\é");
    }
}
