//! The words of a line, with the quoting of sh(1): `'…'`, `"…"` and `\`.

/// A word of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellWord {
    /// What it stands for.
    pub text: Vec<u8>,
    /// The same as a pattern: what was quoted is escaped.
    pub pattern: Vec<u8>,
    /// It has a `*`, `?` or `[` that isn't quoted.
    pub is_pattern: bool,
    /// Where it starts in the line.
    pub start: usize,
}

impl ShellWord {
    fn push(&mut self, byte: u8, is_quoted: bool) {
        let is_special = matches!(byte, b'*' | b'?' | b'[');
        if is_quoted && (is_special || matches!(byte, b']' | b'\\' | b'!' | b'^' | b'-')) {
            self.pattern.push(b'\\');
        }
        self.is_pattern |= is_special && !is_quoted;
        self.pattern.push(byte);
        self.text.push(byte);
    }
}

/// What a line may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Complete,
    /// A word ends at the end of the line: more of it may follow.
    InWord,
    /// A quote isn't closed, or a backslash is last.
    Open,
}

/// Takes a line apart. What follows a `#` that begins a word is a comment.
///
/// # Errors
/// It has something that sh would act on and we don't.
pub fn split(line: &[u8]) -> Result<(Vec<ShellWord>, Ending), String> {
    let mut words = Vec::new();
    let mut word: Option<ShellWord> = None;
    let mut quote = None;
    let mut bytes = line.iter().copied().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match (quote, byte) {
            (None, b' ' | b'\t' | b'\r' | b'\n') => words.extend(word.take()),
            (None, b'#') if word.is_none() => break,
            (None, b'|' | b'&' | b';' | b'<' | b'>' | b'`') => {
                return Err(format!("'{}' has no meaning here; quote it", char::from(byte)));
            }
            (_, 0) => return Err("a null byte is in the line".to_owned()),
            _ => {
                let current =
                    word.get_or_insert_with(|| ShellWord { start: at, ..ShellWord::default() });
                match (quote, byte) {
                    (None, b'\'' | b'"') => quote = Some(byte),
                    (Some(open), byte) if open == byte => quote = None,
                    (None | Some(b'"'), b'\\') => match bytes.next() {
                        None => {
                            words.extend(word.take());
                            return Ok((words, Ending::Open));
                        }
                        Some((_, next)) => {
                            if quote.is_some() && !matches!(next, b'"' | b'\\' | b'$' | b'`') {
                                current.push(b'\\', true);
                            }
                            current.push(next, true);
                        }
                    },
                    _ => current.push(byte, quote.is_some()),
                }
            }
        }
    }
    let ending = match (quote, &word) {
        (Some(_), _) => Ending::Open,
        (None, Some(_)) => Ending::InWord,
        (None, None) => Ending::Complete,
    };
    words.extend(word);
    Ok((words, ending))
}

/// The text as a word of a line.
pub fn quoted(text: &str) -> String {
    let mut word = String::new();
    for character in text.chars() {
        if !character.is_alphanumeric() && !"/._-+:,@%=~".contains(character) {
            word.push('\\');
        }
        word.push(character);
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        let (words, _) = split(line.as_bytes()).unwrap();
        words.into_iter().map(|word| String::from_utf8(word.text).unwrap()).collect()
    }

    #[test]
    fn words_are_those_of_sh() {
        assert_eq!(texts("ls  -l\t/a # all"), ["ls", "-l", "/a"]);
        assert_eq!(
            texts(r#"cat 'a b' "c\"d\e" f\ g '' h#i"#),
            ["cat", "a b", "c\"d\\e", "f g", "", "h#i"]
        );
        assert_eq!(texts("'a'b\"c\""), ["abc"]);
        assert_eq!(split(b"cat 'a").unwrap().1, Ending::Open);
        assert_eq!(split(b"cat a\\").unwrap().1, Ending::Open);
        assert_eq!(split(b"cat a").unwrap().1, Ending::InWord);
        assert_eq!(split(b"cat a ").unwrap().1, Ending::Complete);
        for line in ["cat a > b", "cat a | less", "a; b", "a & b"] {
            assert!(split(line.as_bytes()).is_err(), "{line}");
        }
        assert_eq!(texts("cat 'a;b' c\\>d"), ["cat", "a;b", "c>d"]);
    }

    #[test]
    fn what_is_quoted_is_no_pattern() {
        let (words, _) = split(br"a* 'b*' c\? 'd'*").unwrap();
        let patterns: Vec<_> = words.iter().map(|word| word.is_pattern).collect();
        assert_eq!(patterns, [true, false, false, true]);
        assert_eq!(words[1].pattern, br"b\*");
        for text in ["a b", "a'b\"c", "ä*?[x]", "#x", "a\\b"] {
            assert_eq!(texts(&quoted(text)), [text]);
        }
    }
}
