//! Parses values of fields: numbers, text, UUIDs and hexadecimal digits.

use super::find::FoundField;
use crate::decode::{BytesForm, form_of};
use crate::error::{InspectError, Result};

/// Fields show this many bytes as a number at most.
const NUMBER_BYTES_MAX: usize = 8;

/// The bytes of a field for `text`.
pub(super) fn encode(found: &FoundField, text: &str) -> Result<Vec<u8>> {
    let encoded = match (found.bit, found.is_number) {
        (Some(_), _) => bit(text),
        (None, true) => number(text, found.length, found.is_big_endian()),
        (None, false) => bytes(text, found.length, form_of(&found.name)),
    };
    encoded.map_err(|problem| InspectError::unsettable(&found.name, problem))
}

fn bit(text: &str) -> Result<Vec<u8>, String> {
    match text {
        "0" => Ok(vec![0]),
        "1" => Ok(vec![1]),
        _ => Err(format!("it is one bit, and '{text}' is neither 0 nor 1")),
    }
}

/// A decimal number, a hexadecimal one after 0x or an octal one after 0, perhaps negative.
fn number(text: &str, length: usize, is_big_endian: bool) -> Result<Vec<u8>, String> {
    let (is_negative, digits) =
        text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    // The parser would take a sign.
    let is_digits = digits.chars().all(|digit| digit.is_digit(radix)) && !digits.is_empty();
    let no_number =
        || format!("'{text}' isn't a number: write it as 100, as 0x64, or in octal as 0144");
    if !is_digits {
        return Err(no_number());
    }
    let bits = length as u32 * 8;
    let is_wide = format!("{text} doesn't fit: the field has {}", counted(length));
    let Ok(size) = u64::from_str_radix(digits, radix) else { return Err(is_wide) };
    let max = u64::MAX >> (u64::BITS - bits);
    // A negative number has its lowest value at one more than half of that.
    if size > max || is_negative && size > max / 2 + 1 {
        return Err(is_wide);
    }
    let stored = if is_negative { size.wrapping_neg() } else { size };
    Ok(match is_big_endian {
        true => stored.to_be_bytes()[NUMBER_BYTES_MAX - length..].to_vec(),
        false => stored.to_le_bytes()[..length].to_vec(),
    })
}

/// `hex:` and digits for every field, and what is usual for this one.
fn bytes(text: &str, length: usize, form: BytesForm) -> Result<Vec<u8>, String> {
    if let Some(digits) = text.strip_prefix("hex:") {
        return from_digits(digits, length);
    }
    match form {
        BytesForm::Text => {
            let mut bytes = text.as_bytes().to_vec();
            if bytes.len() > length {
                let (has, needs) = (counted(length), counted(bytes.len()));
                return Err(format!("'{text}' doesn't fit: it has {needs}, and the field {has}"));
            }
            bytes.resize(length, 0);
            Ok(bytes)
        }
        BytesForm::Uuid => {
            let groups: Vec<usize> = text.split('-').map(str::len).collect();
            if groups != [8, 4, 4, 4, 12] {
                return from_digits(text, length);
            }
            from_digits(&text.replace('-', ""), length)
        }
        BytesForm::Digits => from_digits(text, length),
    }
}

fn from_digits(text: &str, length: usize) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    match digits {
        // Two digits are below 256.
        Some(digits) if digits.len() == 2 * length => {
            Ok(digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
        }
        Some(digits) => {
            let (found, needed) = (digits.len(), 2 * length);
            Err(format!(
                "the field has {}: {needed} hexadecimal digits are needed, and there are {found}",
                counted(length)
            ))
        }
        None => {
            Err(format!("'{text}' isn't {} in hexadecimal digits, two for each", counted(length)))
        }
    }
}

fn counted(bytes: usize) -> String {
    if bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn numbers_fill_their_field() {
        for (text, length, bytes) in [
            ("255", 1, &[255][..]),
            ("0", 2, &[0, 0]),
            ("0x1fe", 2, &[0xfe, 1]),
            ("0100644", 2, &[0xa4, 0x81]),
            ("-1", 4, &[255; 4]),
            ("-128", 1, &[128]),
            ("18446744073709551615", 8, &[255; 8]),
            ("-0x8000000000000000", 8, &[0, 0, 0, 0, 0, 0, 0, 0x80]),
        ] {
            assert_eq!(number(text, length, false).unwrap(), bytes, "{text}");
            let turned: Vec<u8> = bytes.iter().rev().copied().collect();
            assert_eq!(number(text, length, true).unwrap(), turned, "{text}");
        }
        for (text, length) in [("256", 1), ("-129", 1), ("0x10000", 2), ("1e20", 8), ("", 1)] {
            assert!(number(text, length, false).is_err(), "{text}");
        }
        for text in ["+1", "-", "0x", "08", "1 ", "--1", "18446744073709551616", "0x+1"] {
            assert!(number(text, 8, false).is_err(), "{text}");
        }
    }

    #[test]
    fn other_fields_take_what_is_usual_for_them() {
        assert_eq!(bytes("ab", 4, BytesForm::Text).unwrap(), b"ab\0\0");
        assert_eq!(bytes("hex:61620063", 4, BytesForm::Text).unwrap(), b"ab\0c");
        assert_eq!(bytes("00ff", 2, BytesForm::Digits).unwrap(), [0, 255]);
        let uuid = bytes("00112233-4455-6677-8899-aabbccddeeff", 16, BytesForm::Uuid).unwrap();
        assert_eq!(uuid[..3], [0, 0x11, 0x22]);
        assert_eq!(bytes("00112233445566778899aabbccddeeff", 16, BytesForm::Uuid).unwrap(), uuid);
        for (text, form) in [
            ("abcde", BytesForm::Text),
            ("00ff00", BytesForm::Digits),
            ("0x00ff00ff", BytesForm::Digits),
            ("-0011223344", BytesForm::Uuid),
        ] {
            let problem = bytes(text, 4, form).unwrap_err();
            assert!(problem.contains("4 bytes"), "{problem}");
        }
    }
}
