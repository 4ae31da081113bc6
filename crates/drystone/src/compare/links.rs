//! Compares hard links: whether the same names are one file in both trees.

use super::{DifferenceKind, Which};
use crate::EntryPath;
use drystone_sync::Arc;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Device and inode number.
type InodeIdentity = (u64, u64);

/// A file with several names that was seen before: its counterpart in the other tree, and the first name.
struct SeenFile {
    counterpart: InodeIdentity,
    way: Arc<EntryPath>,
}

/// Files of both trees that have further names.
#[derive(Default)]
pub(super) struct NotedLinks {
    first: HashMap<InodeIdentity, SeenFile>,
    second: HashMap<InodeIdentity, SeenFile>,
}

/// What is known of a pair.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KnownPair {
    /// At least one of both is new.
    New,
    /// These two have been compared under another name.
    Same,
    /// They belong to others.
    Different(DifferenceKind),
}

impl NotedLinks {
    /// Takes note of a pair, of which `links` says how many names each has.
    pub fn note(
        &mut self,
        pair: [InodeIdentity; 2],
        links: [u64; 2],
        way: &Arc<EntryPath>,
    ) -> KnownPair {
        let [first, second] = pair;
        let before = note(&mut self.first, first, second, links[0], way);
        let other = note(&mut self.second, second, first, links[1], way);
        match (before, other) {
            (Some((counterpart, _)), _) if counterpart == second => KnownPair::Same,
            (_, Some((counterpart, _))) if counterpart == first => KnownPair::Same,
            (Some((_, way)), _) => {
                KnownPair::Different(DifferenceKind::Links(Which::First, way.path()))
            }
            (_, Some((_, way))) => {
                KnownPair::Different(DifferenceKind::Links(Which::Second, way.path()))
            }
            (None, None) => KnownPair::New,
        }
    }
}

/// What was known of a file.
fn note(
    seen: &mut HashMap<InodeIdentity, SeenFile>,
    identity: InodeIdentity,
    counterpart: InodeIdentity,
    links: u64,
    way: &Arc<EntryPath>,
) -> Option<(InodeIdentity, Arc<EntryPath>)> {
    if links < 2 {
        return None;
    }
    match seen.entry(identity) {
        Entry::Occupied(entry) => Some((entry.get().counterpart, entry.get().way.clone())),
        Entry::Vacant(entry) => {
            entry.insert(SeenFile { counterpart, way: way.clone() });
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_belong_together_or_not() {
        let mut links = NotedLinks::default();
        let mut note = |first, second, counts, path: &str| {
            links.note([(1, first), (2, second)], counts, &EntryPath::top(path))
        };
        assert_eq!(note(1, 11, [2, 2], "a"), KnownPair::New);
        assert_eq!(note(1, 11, [2, 2], "b"), KnownPair::Same);
        assert_eq!(note(2, 12, [2, 1], "c"), KnownPair::New);
        let expected = KnownPair::Different(DifferenceKind::Links(Which::First, "c".into()));
        assert_eq!(note(2, 13, [2, 1], "d"), expected);
        assert_eq!(note(3, 14, [1, 2], "e"), KnownPair::New);
        let expected = KnownPair::Different(DifferenceKind::Links(Which::Second, "e".into()));
        assert_eq!(note(4, 14, [1, 2], "f"), expected);
    }
}
