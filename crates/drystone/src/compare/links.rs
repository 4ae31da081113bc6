//! Whether the same names belong together in both trees.

use super::{Kind, Which};
use crate::Way;
use drystone_sync::Arc;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Device and inode number.
type Identity = (u64, u64);

/// What was seen of a file with several names: its counterpart, and under which name.
struct Seen {
    counterpart: Identity,
    way: Arc<Way>,
}

/// Files of both trees that have further names.
#[derive(Default)]
pub(super) struct Links {
    first: HashMap<Identity, Seen>,
    second: HashMap<Identity, Seen>,
}

/// What is known of a pair.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// At least one of both is new.
    New,
    /// These two have been compared under another name.
    Same,
    /// They belong to others.
    Different(Kind),
}

impl Links {
    /// Takes note of a pair, of which `links` says how many names each has.
    pub fn note(&mut self, pair: [Identity; 2], links: [u64; 2], way: &Arc<Way>) -> Known {
        let [first, second] = pair;
        let before = note(&mut self.first, first, second, links[0], way);
        let other = note(&mut self.second, second, first, links[1], way);
        match (before, other) {
            (Some((counterpart, _)), _) if counterpart == second => Known::Same,
            (_, Some((counterpart, _))) if counterpart == first => Known::Same,
            (Some((_, way)), _) => Known::Different(Kind::Links(Which::First, way.path())),
            (_, Some((_, way))) => Known::Different(Kind::Links(Which::Second, way.path())),
            (None, None) => Known::New,
        }
    }
}

/// What was known of a file.
fn note(
    seen: &mut HashMap<Identity, Seen>,
    identity: Identity,
    counterpart: Identity,
    links: u64,
    way: &Arc<Way>,
) -> Option<(Identity, Arc<Way>)> {
    if links < 2 {
        return None;
    }
    match seen.entry(identity) {
        Entry::Occupied(entry) => Some((entry.get().counterpart, entry.get().way.clone())),
        Entry::Vacant(entry) => {
            entry.insert(Seen { counterpart, way: way.clone() });
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_belong_together_or_not() {
        let mut links = Links::default();
        let mut note = |first, second, counts, path: &str| {
            links.note([(1, first), (2, second)], counts, &Way::top(path))
        };
        assert_eq!(note(1, 11, [2, 2], "a"), Known::New);
        assert_eq!(note(1, 11, [2, 2], "b"), Known::Same);
        assert_eq!(note(2, 12, [2, 1], "c"), Known::New);
        let expected = Known::Different(Kind::Links(Which::First, "c".into()));
        assert_eq!(note(2, 13, [2, 1], "d"), expected);
        assert_eq!(note(3, 14, [1, 2], "e"), Known::New);
        let expected = Known::Different(Kind::Links(Which::Second, "e".into()));
        assert_eq!(note(4, 14, [1, 2], "f"), expected);
    }
}
