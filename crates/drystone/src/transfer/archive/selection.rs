//! What of a tree goes into an archive that is a layer, and what the layer takes away.
//!
//! # Reference
//! OCI Image Format Specification, "Image Layer Filesystem Changeset".

use drystone_sources::tar::{EntryKind, NewTarEntry, Time};
use drystone_vfs::{Errno, Error};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// How the name of an entry begins that takes another away.
const WHITEOUT: &[u8] = b".wh.";
/// The entry that takes away all that layers below have in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// The entries of a layer. Paths are below the top, without slashes at their ends; that of the top is empty.
#[derive(Debug, Default)]
pub(crate) struct LayerSelection {
    /// Entries that are written, directories without what is in them.
    entries: HashSet<Vec<u8>>,
    /// Directories that are written with all that is in them.
    whole: HashSet<Vec<u8>>,
    /// By directory: names of whiteouts.
    whiteouts: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
}

impl LayerSelection {
    /// Adds an entry and the directories that it is in: programs that unpack a layer by itself would make
    /// these with attributes of their own.
    pub fn add(&mut self, path: &[u8]) {
        let mut path = path;
        while self.entries.insert(path.to_vec()) && !path.is_empty() {
            path = &path[..path.iter().rposition(|&byte| byte == b'/').unwrap_or(0)];
        }
    }

    /// Adds a directory with all that is in it.
    pub fn add_whole(&mut self, path: &[u8]) {
        self.add(path);
        self.whole.insert(path.to_vec());
    }

    /// Takes an entry of a directory away.
    pub fn remove(&mut self, directory: &[u8], name: &[u8]) {
        self.add(directory);
        let whiteouts = self.whiteouts.entry(directory.to_vec()).or_default();
        whiteouts.insert([WHITEOUT, name].concat());
    }

    /// Takes everything away that was in a directory.
    pub fn clear(&mut self, directory: &[u8]) {
        self.add(directory);
        self.whiteouts.entry(directory.to_vec()).or_default().insert(OPAQUE.to_vec());
    }

    /// Whether an entry is written.
    pub fn contains(&self, path: &[u8]) -> bool {
        self.entries.contains(path)
    }

    /// Whether a directory is written with all that is in it.
    pub fn is_whole(&self, directory: &[u8]) -> bool {
        self.whole.contains(directory)
    }

    /// Whether an entry lies in a directory that is written with all that is in it.
    pub fn is_within_whole(&self, path: &[u8]) -> bool {
        let mut slashes = (0..path.len()).filter(|&at| path[at] == b'/');
        !self.whole.is_empty() && slashes.any(|end| self.is_whole(&path[..end]))
    }

    /// The whiteouts in a directory, which `prefix` is the path of in the archive.
    pub fn whiteouts(&self, directory: &[u8], prefix: &[u8]) -> Vec<Vec<u8>> {
        let names = self.whiteouts.get(directory).into_iter().flatten();
        names.map(|name| whiteout(&[prefix, name].concat())).collect()
    }
}

/// The bytes of an empty file, which are always the same.
fn whiteout(name: &[u8]) -> Vec<u8> {
    let never = Time { seconds: 0, nanoseconds: 0 };
    let entry = NewTarEntry {
        name,
        kind: EntryKind::File { size: 0, runs: Vec::new() },
        mode: 0o600,
        user: 0,
        group: 0,
        modified: never,
        accessed: never,
        attributes: const { &Vec::new() },
    };
    entry.head()
}

/// Fails for a name that would take something away in a layer.
pub(crate) fn check_layer_name(name: &[u8]) -> Result<(), Error> {
    if !name.starts_with(WHITEOUT) {
        return Ok(());
    }
    let detail = "in a layer, a name that begins with '.wh.' stands for what is taken away";
    Err(Error::with_detail(Errno::EINVAL, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_with_the_directories_that_they_are_in() {
        let mut selection = LayerSelection::default();
        assert!(!selection.contains(b""));
        selection.add(b"a/b/c");
        selection.add_whole(b"d/e");
        selection.remove(b"f", b"g");
        selection.remove(b"", b"h");
        for path in ["", "a", "a/b", "a/b/c", "d", "d/e", "f"] {
            assert!(selection.contains(path.as_bytes()), "{path}");
        }
        for path in ["b", "a/c", "d/e/f", "f/g", "h"] {
            assert!(!selection.contains(path.as_bytes()), "{path}");
        }
        assert!(selection.is_whole(b"d/e") && !selection.is_whole(b"d"));
        assert!(selection.is_within_whole(b"d/e/f/g") && !selection.is_within_whole(b"d/e"));
        assert_eq!(selection.whiteouts(b"f", b"./f/"), [whiteout(b"./f/.wh.g")]);
        assert!(selection.whiteouts(b"a", b"./a/").is_empty());
    }
}
