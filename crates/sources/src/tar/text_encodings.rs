//! The two encodings that programs use for bytes in extended headers.
//!
//! Percent coding is our own code, because programs escape different bytes, and anything that isn't
//! an escape must stay as it is.

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Decodes `%41` to `A` if `accept` says so for the byte; everything else stays as it is.
pub(crate) fn percent(text: &[u8], accept: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let escaped = match text.get(at..at + 3) {
            Some([b'%', high, low]) => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        match escaped.filter(|byte| accept(*byte)) {
            Some(escaped) => {
                decoded.push(escaped);
                at += 3;
            }
            None => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    decoded
}

/// Writes `%41` for `A` if `is_escaped` says so for the byte.
pub(crate) fn escape(bytes: &[u8], is_escaped: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(bytes.len());
    for &byte in bytes {
        match is_escaped(byte) {
            true => escaped.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            false => escaped.push(byte),
        }
    }
    escaped
}

/// A hexadecimal digit.
pub(crate) fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// bsdtar doesn't always pad.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decodes base 64, padded or not; none if there is another character in it.
pub(crate) fn base64(text: &[u8]) -> Option<Vec<u8>> {
    BASE64.decode(text.trim_ascii_end()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_any_length() {
        for (text, expected) in [
            ("", Some(&b""[..])),
            ("QQ", Some(b"A")),
            ("QQ==", Some(b"A")),
            ("QUI", Some(b"AB")),
            ("QUJD", Some(b"ABC")),
            ("QUJDRA==\n", Some(b"ABCD")),
            ("Q", None),
            ("Q*", None),
        ] {
            assert_eq!(base64(text.as_bytes()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn percent_signs() {
        assert_eq!(percent(b"a%41%zz%4", |_| true), b"aA%zz%4");
        assert_eq!(percent(b"%41%3D%25", |byte| matches!(byte, b'%' | b'=')), b"%41=%");
    }
}
