//! Operations as short lines of text, so that a failing sequence can be printed and replayed.

use std::fmt;

/// Bytes that print as one word: `\xNN` for unprintable bytes, `\e` for the empty string.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word(pub Vec<u8>);

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("\\e");
        }
        for &byte in &self.0 {
            if byte.is_ascii_graphic() && byte != b'\\' {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<&str> for Word {
    fn from(text: &str) -> Word {
        Word(text.as_bytes().to_vec())
    }
}

/// A part of an operation that prints as one word.
pub(super) trait Field: Sized {
    fn print(&self) -> String;
    fn parse(word: &str) -> Option<Self>;
}

impl Field for Word {
    fn print(&self) -> String {
        self.to_string()
    }

    fn parse(word: &str) -> Option<Word> {
        let mut bytes = Vec::new();
        let mut rest = if word == "\\e" { "" } else { word };
        while let Some((before, escaped)) = rest.split_once("\\x") {
            bytes.extend_from_slice(before.as_bytes());
            bytes.push(u8::from_str_radix(escaped.get(..2)?, 16).ok()?);
            rest = &escaped[2..];
        }
        bytes.extend_from_slice(rest.as_bytes());
        Some(Word(bytes))
    }
}

macro_rules! number_fields {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn print(&self) -> String {
                self.to_string()
            }

            fn parse(word: &str) -> Option<$type> {
                word.parse().ok()
            }
        }
    )*};
}
number_fields!(u8, u32, u64, i64);

/// Permission bits print in octal.
impl Field for u16 {
    fn print(&self) -> String {
        format!("{self:o}")
    }

    fn parse(word: &str) -> Option<u16> {
        u16::from_str_radix(word, 8).ok()
    }
}

/// An absent number prints as `-`.
impl Field for Option<u32> {
    fn print(&self) -> String {
        self.map_or("-".to_owned(), |number| number.to_string())
    }

    fn parse(word: &str) -> Option<Option<u32>> {
        if word == "-" { Some(None) } else { word.parse().ok().map(Some) }
    }
}

/// The target of an operation: a path, or a file held open in a numbered slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationTarget {
    /// The inode at a path; a symbolic link at the end isn't followed.
    Path(Word),
    /// The inode that a slot holds.
    Slot(u8),
}

impl Field for OperationTarget {
    fn print(&self) -> String {
        match self {
            OperationTarget::Path(path) => path.to_string(),
            OperationTarget::Slot(slot) => format!("#{slot}"),
        }
    }

    fn parse(word: &str) -> Option<OperationTarget> {
        match word.strip_prefix('#') {
            Some(slot) => slot.parse().ok().map(OperationTarget::Slot),
            None => Word::parse(word).map(OperationTarget::Path),
        }
    }
}

/// Bytes to write, given in full or as the seed that they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// These bytes.
    Given(Word),
    /// Random bytes.
    Seeded {
        /// Where they come from.
        seed: u64,
        /// How many.
        length: u32,
    },
}

impl Data {
    /// The bytes.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Data::Given(word) => word.0.clone(),
            Data::Seeded { seed, length } => {
                let mut bytes = vec![0; *length as usize];
                fastrand::Rng::with_seed(*seed).fill(&mut bytes);
                bytes
            }
        }
    }
}

impl Field for Data {
    fn print(&self) -> String {
        match self {
            Data::Given(word) => format!("={word}"),
            Data::Seeded { seed, length } => format!("*{seed}:{length}"),
        }
    }

    fn parse(word: &str) -> Option<Data> {
        if let Some(given) = word.strip_prefix('=') {
            return Word::parse(given).map(Data::Given);
        }
        let (seed, length) = word.strip_prefix('*')?.split_once(':')?;
        Some(Data::Seeded { seed: seed.parse().ok()?, length: length.parse().ok()? })
    }
}

/// Declares an enum whose values print as words.
macro_rules! word_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl Field for $name {
            fn print(&self) -> String {
                match self { $($name::$variant => $word,)* }.to_owned()
            }

            fn parse(word: &str) -> Option<$name> {
                match word {
                    $($word => Some($name::$variant),)*
                    _ => None,
                }
            }
        }
    };
}
pub(super) use word_enum;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for bytes in [&b""[..], b"plain", b"\\", b" \n\xff\\x41", b"\\e"] {
            let word = Word(bytes.to_vec());
            let text = word.to_string();
            assert!(!text.contains(' ') && !text.is_empty());
            assert_eq!(Word::parse(&text), Some(word), "{text}");
        }
    }
}
