//! Shell patterns for names: `*`, `?`, `[a-z]`, `[!x]`, and `\` to escape.
//!
//! The crate `globset` isn't used: it takes only patterns that are UTF-8, gives `{` and `**` a meaning that
//! fnmatch(3) doesn't, and brings a compiler for regular expressions into the library (six crates, eight
//! seconds of compiling).

/// True if all of `name` matches `pattern`. Both are bytes; a `?` stands for one byte.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at_pattern, mut at_name) = (0, 0);
    // Where to try again: after the last star, with one more byte matched by it.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if at_pattern < pattern.len() && pattern[at_pattern] == b'*' {
            retry = Some((at_pattern + 1, at_name));
            at_pattern += 1;
            continue;
        }
        let step = match (pattern.get(at_pattern), name.get(at_name)) {
            (None, None) => return true,
            (Some(_), Some(&byte)) => match_one(&pattern[at_pattern..], byte),
            _ => None,
        };
        match (step, retry) {
            (Some(length), _) => {
                at_pattern += length;
                at_name += 1;
            }
            (None, Some((after_star, taken))) if taken < name.len() => {
                retry = Some((after_star, taken + 1));
                at_pattern = after_star;
                at_name = taken + 1;
            }
            _ => return false,
        }
    }
}

/// If the pattern's first element, which isn't a star, matches `byte`: how long that element is.
fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', ..] => match class(pattern, byte) {
            Some((true, length)) => Some(length),
            Some((false, _)) => None,
            // Without an end, `[` is an ordinary byte.
            None => (byte == b'[').then_some(1),
        },
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// Whether the class in brackets has `byte`, and its length; none if it has no end.
fn class(pattern: &[u8], byte: u8) -> Option<(bool, usize)> {
    let is_negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let start = if is_negated { 2 } else { 1 };
    let mut at = start;
    let mut is_in = false;
    loop {
        let low = *pattern.get(at)?;
        if low == b']' && at > start {
            return Some((is_in != is_negated, at + 1));
        }
        match (pattern.get(at + 1), pattern.get(at + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => {
                is_in |= (low..=high).contains(&byte);
                at += 3;
            }
            _ => {
                is_in |= low == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("", "a", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("*.rs", "main.rs", true),
            ("*.rs", "main.rsx", false),
            ("a*b*c", "axxbyybzzc", true),
            ("a*b*c", "axxbyybzz", false),
            ("?", "", false),
            ("a?c", "abc", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}
