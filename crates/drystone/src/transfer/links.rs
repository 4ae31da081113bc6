//! Which files with several names have been copied, so that further names become links.

use drystone_sync::{LockClass, Mutex};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

static LINKS: LockClass = LockClass::new("transfer links", 1);

enum LinksState<O, W> {
    /// Somebody is copying it; these wait to link to it.
    Making(Vec<W>),
    /// It can be linked to, `left` times more; `users` are at it now.
    Made { original: O, left: u64, users: u64 },
}

/// What to do about a name.
pub(super) enum Claim<O, W> {
    /// Nobody has copied the file: the caller is to, and says so at the end.
    First(W),
    /// Link to this.
    Link(O, W),
    /// The waiter was put aside; the thread that copies the file gets it.
    Waits,
}

/// A table of files by identity. `O` is what is linked to, `W` what waits.
pub(super) struct CopiedLinks<O, W> {
    files: Mutex<HashMap<(u64, u64), LinksState<O, W>>>,
}

impl<O: Clone, W> CopiedLinks<O, W> {
    pub fn new() -> CopiedLinks<O, W> {
        CopiedLinks { files: Mutex::new(&LINKS, HashMap::new()) }
    }

    /// Says what is to be done about one more name of a file.
    pub fn claim(&self, identity: (u64, u64), waiter: W) -> Claim<O, W> {
        let mut files = self.files.lock();
        match files.entry(identity) {
            Entry::Vacant(entry) => {
                entry.insert(LinksState::Making(Vec::new()));
                Claim::First(waiter)
            }
            Entry::Occupied(mut entry) => match entry.get_mut() {
                LinksState::Making(waiters) => {
                    waiters.push(waiter);
                    Claim::Waits
                }
                LinksState::Made { original, users, .. } => {
                    *users += 1;
                    Claim::Link(original.clone(), waiter)
                }
            },
        }
    }

    /// The file is copied and may be linked to `left` times; gives those that waited, each of which
    /// is to use `original` now.
    pub fn made(&self, identity: (u64, u64), original: O, left: u64) -> Vec<W> {
        let mut files = self.files.lock();
        let waiters = match files.remove(&identity) {
            Some(LinksState::Making(waiters)) => waiters,
            _ => Vec::new(),
        };
        let users = waiters.len() as u64;
        files.insert(identity, LinksState::Made { original, left, users });
        waiters
    }

    /// The file could not be copied; gives those that waited.
    pub fn failed(&self, identity: (u64, u64)) -> Vec<W> {
        match self.files.lock().remove(&identity) {
            Some(LinksState::Making(waiters)) => waiters,
            _ => Vec::new(),
        }
    }

    /// A link was tried. What was linked to is dropped if that was the last.
    pub fn used(&self, identity: (u64, u64)) {
        let last = {
            let mut files = self.files.lock();
            let Entry::Occupied(mut entry) = files.entry(identity) else { return };
            let LinksState::Made { left, users, .. } = entry.get_mut() else { return };
            *left = left.saturating_sub(1);
            *users -= 1;
            // A damaged image may have more names than it counts: not while a thread uses it.
            (*left == 0 && *users == 0).then(|| entry.remove())
        };
        // That calls the target, so not under the lock.
        drop(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_sync::Arc;

    #[test]
    fn later_names_wait_and_then_link() {
        let links: CopiedLinks<Arc<u8>, &str> = CopiedLinks::new();
        let original = Arc::new(7);
        assert!(matches!(links.claim((1, 1), "a"), Claim::First("a")));
        assert!(matches!(links.claim((1, 1), "b"), Claim::Waits));
        assert_eq!(links.made((1, 1), original.clone(), 2), ["b"]);
        assert!(matches!(links.claim((1, 1), "c"), Claim::Link(seven, "c") if *seven == 7));
        assert_eq!(Arc::strong_count(&original), 2);
        links.used((1, 1));
        assert_eq!(Arc::strong_count(&original), 2);
        links.used((1, 1));
        assert_eq!(Arc::strong_count(&original), 1);
    }

    #[test]
    fn those_that_waited_for_what_failed_are_given_back() {
        let links: CopiedLinks<u8, &str> = CopiedLinks::new();
        assert!(matches!(links.claim((1, 2), "b"), Claim::First(_)));
        assert!(matches!(links.claim((1, 2), "c"), Claim::Waits));
        assert_eq!(links.failed((1, 2)), ["c"]);
    }
}
