//! The two encodings that programs use for bytes in extended headers.

/// Takes `%41` back to `A` where `accept` says so of the byte; all else stays as it is.
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

/// A hexadecimal digit.
pub(crate) fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Decodes base 64, padded or not; none if there is another character in it.
pub(crate) fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii_end();
    let end = text.iter().rposition(|&byte| byte != b'=').map_or(0, |last| last + 1);
    let mut decoded = Vec::with_capacity(end * 3 / 4);
    for chunk in text[..end].chunks(4) {
        let bits = chunk.iter().try_fold(0_u32, |bits, &byte| Some(bits << 6 | digit(byte)?))?;
        // Four digits are three bytes, three are two, two are one; one is none.
        let bytes = (bits << (6 * (4 - chunk.len()))).to_be_bytes();
        match chunk.len() {
            1 => return None,
            length => decoded.extend_from_slice(&bytes[1..length]),
        }
    }
    Some(decoded)
}

fn digit(byte: u8) -> Option<u32> {
    let digit = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(digit))
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
