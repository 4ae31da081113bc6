//! Walks trees in an image, depth first, names in order.

use crate::failure::Outcome;
use crate::output::Escaped;
use crate::tree::{Entered, ImageTree, push};
use drystone::vfs::{InodeGuard, InodeNumber};
use std::ops::Range;

/// An entry on the way.
pub struct WalkStep<'s, 'a> {
    /// The entry.
    pub node: &'s InodeGuard<'a>,
    /// The directory that it was found in; none for the start.
    pub parent: Option<InodeNumber>,
    /// Its name; the path for the start.
    pub name: &'s [u8],
    /// Its path.
    pub path: &'s [u8],
    /// For the entry and each directory above it but the start: whether it is the last there.
    pub lasts: &'s [bool],
}

impl WalkStep<'_, '_> {
    /// How far below the start it is.
    pub fn depth(&self) -> usize {
        self.lasts.len()
    }
}

/// What is done on the way.
pub trait Visitor {
    /// At an entry, before what is in it; false to leave that out.
    fn enter(&mut self, tree: &ImageTree<'_>, step: &WalkStep<'_, '_>) -> Outcome<bool>;

    /// At a directory that was already entered under another name; it is skipped.
    fn shun(&mut self, _step: &WalkStep<'_, '_>) {}

    /// At a directory, after everything in it.
    fn leave(&mut self, _tree: &ImageTree<'_>, _step: &WalkStep<'_, '_>) -> Outcome {
        Ok(())
    }
}

/// A directory that is being walked. Its path is a prefix of the walk's: separate paths would take
/// memory in the square of the depth.
struct WalkFrame<'a> {
    node: InodeGuard<'a>,
    parent: Option<InodeNumber>,
    /// Where its name starts in the path, and where its path ends.
    path: Range<usize>,
    names: std::iter::Peekable<std::vec::IntoIter<Box<[u8]>>>,
}

/// The state of a walk.
struct WalkPath<'a> {
    frames: Vec<WalkFrame<'a>>,
    path: Vec<u8>,
    lasts: Vec<bool>,
    entered: Entered,
}

/// Walks everything from `start`, which is at `path`. What can't be read is reported and left out. Ends
/// early after an interrupt.
pub fn walk<'a>(
    tree: &ImageTree<'a>,
    start: InodeGuard<'a>,
    path: &[u8],
    visitor: &mut dyn Visitor,
) -> Outcome {
    let mut way = WalkPath {
        frames: Vec::new(),
        path: path.to_vec(),
        lasts: Vec::new(),
        entered: Entered::default(),
    };
    way.visit(tree, start, None, 0, visitor)?;
    while let Some(frame) = way.frames.last_mut() {
        tree.check_interrupt()?;
        way.path.truncate(frame.path.end);
        let Some(name) = frame.names.next() else {
            let Some(WalkFrame { node, parent, path, .. }) = way.frames.pop() else { break };
            let (name, path) = (&way.path[path.start..], &way.path[..]);
            let step = WalkStep { node: &node, parent, name, path, lasts: &way.lasts };
            visitor.leave(tree, &step)?;
            way.lasts.pop();
            continue;
        };
        way.lasts.push(frame.names.peek().is_none());
        let directory = frame.node.inode();
        push(&mut way.path, &name);
        let depth = way.frames.len();
        match tree.child(directory, &name) {
            Ok(Some(node)) => {
                let name_start = way.path.len() - name.len();
                way.visit(tree, node, Some(directory), name_start, visitor)?;
            }
            // It went away after it was listed.
            Ok(None) => {}
            Err(error) => tree.report(&way.path, &error),
        }
        if way.frames.len() == depth {
            way.lasts.pop();
        }
    }
    Ok(())
}

impl<'a> WalkPath<'a> {
    /// Enters the entry at the path, and opens it if it is a directory.
    fn visit(
        &mut self,
        tree: &ImageTree<'a>,
        node: InodeGuard<'a>,
        parent: Option<InodeNumber>,
        name_start: usize,
        visitor: &mut dyn Visitor,
    ) -> Outcome {
        let (name, path) = (&self.path[name_start..], &self.path[..]);
        tracing::debug!(path = %Escaped(path), "came to");
        let step = WalkStep { node: &node, parent, name, path, lasts: &self.lasts };
        if node.is_directory()
            && let Err(error) = self.entered.enter(node.inode())
        {
            visitor.shun(&step);
            tree.report(path, &error);
            return Ok(());
        }
        if !visitor.enter(tree, &step)? || !node.is_directory() {
            return Ok(());
        }
        let names = match tree.list(node.inode(), path) {
            Ok(names) => names,
            Err(error) => {
                tree.report(path, &error);
                Vec::new()
            }
        };
        let path = name_start..self.path.len();
        self.frames.push(WalkFrame { node, parent, path, names: names.into_iter().peekable() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{example, tree_of};
    use std::path::Path;

    #[derive(Default)]
    struct Record {
        text: String,
    }

    impl Visitor for Record {
        fn enter(&mut self, _tree: &ImageTree<'_>, step: &WalkStep<'_, '_>) -> Outcome<bool> {
            let path = String::from_utf8_lossy(step.path);
            self.text += &format!("{path}({}) ", step.depth());
            Ok(!step.name.starts_with(b"skip"))
        }

        fn leave(&mut self, _tree: &ImageTree<'_>, step: &WalkStep<'_, '_>) -> Outcome {
            self.text += &format!("<{} ", String::from_utf8_lossy(step.name));
            Ok(())
        }
    }

    #[test]
    fn a_walk_enters_and_leaves_in_order() {
        let image = example(&["a/b/c", "a/d", "skip/x", "z"]);
        let tree = tree_of(&image);
        let mut record = Record::default();
        walk(&tree, tree.find(Path::new("/"), true).unwrap(), b"/", &mut record).unwrap();
        assert_eq!(record.text, "/(0) /a(1) /a/b(2) /a/b/c(3) <b /a/d(2) <a /skip(1) /z(1) </ ");
        assert_eq!(image.references(), 0);
    }
}
