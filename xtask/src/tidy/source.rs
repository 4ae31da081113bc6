//! Rust source without its comments and literals, so that rules about code see code only.

/// Replaces comments and the content of string and character literals with spaces; lines stay
/// where they are.
pub fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match literal_or_comment(bytes, at) {
            Some(end) => end,
            None => {
                at += 1;
                continue;
            }
        };
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    // Whole characters were replaced: a multi-byte one can only be in a literal or comment, or
    // untouched in an identifier.
    String::from_utf8_lossy(&code).into_owned()
}

/// The end of the comment or literal that starts at `at`, if one does.
fn literal_or_comment(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return Some(find(bytes, at, b"\n").unwrap_or(bytes.len()));
    }
    if rest.starts_with(b"/*") {
        return Some(end_of_block_comment(bytes, at));
    }
    if rest[0] == b'r' && !is_word(bytes, at) {
        let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
        if rest.get(1 + hashes) == Some(&b'"') {
            let closing = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
            let end = find(bytes, at + 2 + hashes, &closing);
            return Some(end.map_or(bytes.len(), |end| end + closing.len()));
        }
    }
    match rest[0] {
        b'"' => Some(end_of_quotes(bytes, at, b'"')),
        // A lifetime has no closing quote after one character.
        b'\'' if rest.get(1) == Some(&b'\\') => Some(end_of_quotes(bytes, at, b'\'')),
        b'\'' => {
            let length = std::str::from_utf8(&rest[1..rest.len().min(5)])
                .ok()
                .and_then(|text| text.chars().next())
                .map_or(1, char::len_utf8);
            (rest.get(1 + length) == Some(&b'\'')).then_some(at + length + 2)
        }
        _ => None,
    }
}

/// True if the byte before `at` belongs to an identifier (other than the `b` of a byte string).
fn is_word(bytes: &[u8], at: usize) -> bool {
    let Some(before) = at.checked_sub(1).map(|before| bytes[before]) else { return false };
    (before.is_ascii_alphanumeric() && before != b'b') || before == b'_'
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let from = from.min(bytes.len());
    bytes[from..].windows(what.len()).position(|window| window == what).map(|at| from + at)
}

fn end_of_block_comment(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn end_of_quotes(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::code_only;

    #[test]
    fn comments_and_literals_become_spaces() {
        let text = "let a = \"x\\\"y\"; // z\n/* b /* c */ d */ f('\\'', 'q', b\"w\");";
        assert_eq!(
            code_only(text).split_whitespace().collect::<Vec<_>>(),
            ["let", "a", "=", ";", "f(", ",", ",", "b", ");"]
        );
        assert_eq!(code_only(text).lines().count(), text.lines().count());
    }

    #[test]
    fn lifetimes_and_raw_strings() {
        assert_eq!(code_only("fn f<'a>(x: &'a u8)"), "fn f<'a>(x: &'a u8)");
        assert_eq!(code_only("r#\"a\"b\"# c").trim(), "c");
        assert_eq!(code_only("for\"a\"").trim(), "for");
    }

    #[test]
    fn unfinished_text_ends_at_the_end() {
        for text in ["\"a", "/* a", "r\"a", "'\\", "// a", "'"] {
            assert_eq!(code_only(text).len(), text.len(), "{text}");
        }
    }

    #[test]
    fn characters_of_several_bytes() {
        assert_eq!(code_only("'\u{e4}' x"), "     x");
    }
}
