//! What is left out of a tree, by patterns.

use crate::glob;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Patterns for entries that are left out, with all that is in them.
///
/// A pattern without `/` is for the name of an entry, wherever it is; one with `/` is for the whole
/// path from the top of the tree, with or without a `/` in front. `*` and `?` stand for any bytes,
/// `/` among them; `[a-z]`, `[!x]` and `\` are as in the shell.
#[derive(Clone, Debug, Default)]
pub struct Exclude {
    names: Vec<Vec<u8>>,
    paths: Vec<Vec<u8>>,
}

impl Exclude {
    /// Leaves out what matches one of these.
    pub fn new(patterns: impl IntoIterator<Item = OsString>) -> Exclude {
        let mut exclude = Exclude::default();
        for pattern in patterns {
            let pattern = pattern.into_vec();
            let pattern = pattern.strip_suffix(b"/").unwrap_or(&pattern);
            if pattern.contains(&b'/') {
                exclude.paths.push(pattern.strip_prefix(b"/").unwrap_or(pattern).to_vec());
            } else {
                exclude.names.push(pattern.to_vec());
            }
        }
        exclude
    }

    /// Whether nothing is left out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty()
    }

    /// True if an entry is left out. `path` gives the path from the top of the tree and is called
    /// only if needed.
    #[must_use]
    pub fn covers(&self, name: &[u8], path: impl FnOnce() -> PathBuf) -> bool {
        if self.names.iter().any(|pattern| glob::matches(pattern, name)) {
            return true;
        }
        if self.paths.is_empty() {
            return false;
        }
        let path = path();
        self.paths.iter().any(|pattern| glob::matches(pattern, path.as_os_str().as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_for_names_or_paths() {
        let exclude = Exclude::new(["*.o", "/usr/doc/", "a/b*"].map(OsString::from));
        let covers = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or(path);
            exclude.covers(name.as_bytes(), || path.into())
        };
        for (path, expected) in [
            ("x.o", true),
            ("deep/er/x.o", true),
            ("usr/doc", true),
            ("other/usr/doc", false),
            ("doc", false),
            ("a/b", true),
            ("a/bc/d", true),
            ("b", false),
        ] {
            assert_eq!(covers(path), expected, "{path}");
        }
    }
}
