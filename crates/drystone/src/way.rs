//! Paths of entries in a tree, which share their prefixes in memory.

use drystone_sync::Arc;
use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The path of an entry: its name, and the shared path of its directory. The paths of a deep tree take as
/// much memory as its names; whole paths would take the square of its depth.
#[derive(Debug)]
pub struct EntryPath {
    above: Option<Arc<EntryPath>>,
    name: OsString,
}

impl EntryPath {
    /// The root of a tree. Its name, if it isn't empty, begins every path.
    pub fn top(name: impl Into<OsString>) -> Arc<EntryPath> {
        Arc::new(EntryPath { above: None, name: name.into() })
    }

    /// The path of the entry `name` in the directory at `self`.
    pub fn to(self: &Arc<EntryPath>, name: &OsStr) -> Arc<EntryPath> {
        Arc::new(EntryPath { above: Some(self.clone()), name: name.to_os_string() })
    }

    /// The whole path.
    pub fn path(&self) -> PathBuf {
        let names = self.steps().into_iter().map(|step| &step.name);
        names.filter(|name| !name.is_empty()).collect()
    }

    /// This path and its prefixes, the root first.
    fn steps(&self) -> Vec<&EntryPath> {
        let mut steps: Vec<&EntryPath> =
            std::iter::successors(Some(self), |way| way.above.as_deref()).collect();
        steps.reverse();
        steps
    }
}

impl Ord for EntryPath {
    /// Directories come before what is in them, names in the order of their bytes.
    fn cmp(&self, other: &EntryPath) -> Ordering {
        let (ours, theirs) = (self.steps(), other.steps());
        // Most ways share their beginnings, which needn't be compared.
        let mut pairs =
            ours.iter().zip(&theirs).filter(|(ours, theirs)| !std::ptr::eq(**ours, **theirs));
        let unlike = pairs.find_map(|(ours, theirs)| {
            Some(ours.name.cmp(&theirs.name)).filter(|order| order.is_ne())
        });
        unlike.unwrap_or_else(|| ours.len().cmp(&theirs.len()))
    }
}

impl PartialOrd for EntryPath {
    fn partial_cmp(&self, other: &EntryPath) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for EntryPath {
    fn eq(&self, other: &EntryPath) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for EntryPath {}

impl Drop for EntryPath {
    /// One after the other: a deep tree would take the whole stack.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut way) = above.and_then(Arc::into_inner) {
            above = way.above.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn ways_have_paths_and_an_order() {
        let top = EntryPath::top("");
        let a = top.to("a".as_ref());
        let ways = [top.clone(), a.clone(), a.to("x".as_ref()), top.to("a-b".as_ref())];
        let paths = ways.each_ref().map(|way| way.path());
        assert_eq!(paths, ["", "a", "a/x", "a-b"].map(PathBuf::from));
        assert!(ways.is_sorted());
        assert_eq!(a, top.to("a".as_ref()));
        assert_eq!(EntryPath::top(".").to("a".as_ref()).path(), Path::new("./a"));
    }

    #[test]
    fn a_long_way_takes_no_stack() {
        let mut way = EntryPath::top("");
        for _ in 0..1_000_000 {
            way = way.to("n".as_ref());
        }
        drop(way);
    }
}
