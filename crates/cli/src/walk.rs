//! Walks trees in an image, depth first, names in order.

use crate::failure::Outcome;
use crate::tree::{Listed, Node, Tree, join};
use drystone::vfs::InodeNumber;

/// An entry on the way.
pub struct Step<'s, 'a> {
    /// The entry.
    pub node: &'s Node<'a>,
    /// The directory that it was found in; none for the start.
    pub parent: Option<InodeNumber>,
    /// Its name; the path for the start.
    pub name: &'s [u8],
    /// Its path.
    pub path: &'s [u8],
    /// For the entry and each directory above it but the start: whether it is the last there.
    pub lasts: &'s [bool],
}

impl Step<'_, '_> {
    /// How far below the start it is.
    pub fn depth(&self) -> usize {
        self.lasts.len()
    }
}

/// What is done on the way.
pub trait Visitor {
    /// At an entry, before what is in it; false to leave that out.
    fn enter(&mut self, tree: &Tree<'_>, step: &Step<'_, '_>) -> Outcome<bool>;

    /// At a directory, after everything in it.
    fn leave(&mut self, _tree: &Tree<'_>, _step: &Step<'_, '_>) -> Outcome {
        Ok(())
    }
}

/// A directory that is being walked.
struct Frame<'a> {
    node: Node<'a>,
    parent: Option<InodeNumber>,
    name: Vec<u8>,
    path: Vec<u8>,
    names: std::iter::Peekable<std::vec::IntoIter<Listed>>,
}

/// Walks everything from `start`, which is at `path`. What can't be read is reported and left out.
pub fn walk<'a>(
    tree: &Tree<'a>,
    start: Node<'a>,
    path: &[u8],
    visitor: &mut dyn Visitor,
) -> Outcome {
    let mut lasts = Vec::new();
    let mut frames: Vec<Frame<'a>> = Vec::new();
    visit(tree, start, None, path.to_vec(), path.to_vec(), &lasts, &mut frames, visitor)?;
    while let Some(frame) = frames.last_mut() {
        let Some(listed) = frame.names.next() else {
            let Some(frame) = frames.pop() else { break };
            let Frame { node, parent, name, path, .. } = &frame;
            let step = Step { node, parent: *parent, name, path, lasts: &lasts };
            visitor.leave(tree, &step)?;
            lasts.pop();
            continue;
        };
        lasts.push(frame.names.peek().is_none());
        let directory = frame.node.inode();
        let path = join(&frame.path, &listed.name);
        let depth = frames.len();
        match tree.child(directory, &listed.name) {
            Ok(Some(node)) => {
                let parent = Some(directory);
                visit(tree, node, parent, listed.name, path, &lasts, &mut frames, visitor)?;
            }
            // It went away after it was listed.
            Ok(None) => {}
            Err(error) => tree.report(&path, &error),
        }
        if frames.len() == depth {
            lasts.pop();
        }
    }
    Ok(())
}

/// Enters one entry, and opens it if it is a directory.
#[expect(clippy::too_many_arguments, reason = "the parts of a frame that may not come to be")]
fn visit<'a>(
    tree: &Tree<'a>,
    node: Node<'a>,
    parent: Option<InodeNumber>,
    name: Vec<u8>,
    path: Vec<u8>,
    lasts: &[bool],
    frames: &mut Vec<Frame<'a>>,
    visitor: &mut dyn Visitor,
) -> Outcome {
    let step = Step { node: &node, parent, name: &name, path: &path, lasts };
    if !visitor.enter(tree, &step)? || !node.is_directory() {
        return Ok(());
    }
    // A damaged image can hold a directory that lies in itself.
    if frames.iter().any(|frame| frame.node.inode() == node.inode()) {
        tree.report(&path, &"the directory lies in itself");
        return Ok(());
    }
    let names = match tree.list(node.inode()) {
        Ok(names) => names,
        Err(error) => {
            tree.report(&path, &error);
            Vec::new()
        }
    };
    frames.push(Frame { node, parent, name, path, names: names.into_iter().peekable() });
    Ok(())
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
        fn enter(&mut self, _tree: &Tree<'_>, step: &Step<'_, '_>) -> Outcome<bool> {
            let path = String::from_utf8_lossy(step.path);
            self.text += &format!("{path}({}) ", step.depth());
            Ok(!step.name.starts_with(b"skip"))
        }

        fn leave(&mut self, _tree: &Tree<'_>, step: &Step<'_, '_>) -> Outcome {
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
