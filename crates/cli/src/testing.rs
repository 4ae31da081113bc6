//! Images in memory for the tests of the commands.

use crate::terminal::Output;
use crate::tree::{ImageTree, join};
use drystone::vfs::{
    FileSystem, InodeGuard, NewNode, RequestContext, SetAttributes, SetTime, Timestamp, find_path,
};
use drystone_testkit::model::{Configuration, MemoryFileSystem};
use std::path::Path;

/// An image with these files, each holding its own path, and the directories that they need. All
/// are of 2001-09-09 01:46:40 UTC.
pub fn example(files: &[&str]) -> MemoryFileSystem {
    let image = MemoryFileSystem::new(Configuration::default());
    for file in files {
        put(&image, file, file.as_bytes());
    }
    image
}

/// Adds a file, and the directories that it needs.
pub fn put(image: &MemoryFileSystem, path: &str, content: &[u8]) {
    let context = RequestContext::superuser();
    let mut directory = find_path(image, &context, b"/", true).unwrap();
    let names: Vec<&str> = path.split('/').collect();
    let (file, parents) = names.split_last().unwrap();
    let make = |directory: &InodeGuard<'_>, name: &str, node, mode| {
        InodeGuard::create(image, &context, directory.inode(), name.as_bytes(), node, mode).unwrap()
    };
    for name in parents {
        let found = InodeGuard::lookup(image, &context, directory.inode(), name.as_bytes());
        directory = found.unwrap_or_else(|_| make(&directory, name, NewNode::Directory, 0o755));
    }
    let file = make(&directory, file, NewNode::Regular, 0o644);
    image.write(&context, file.inode(), 0, content).unwrap();
    let time = SetTime::At(Timestamp { seconds: 1_000_000_000, nanoseconds: 0 });
    let changes =
        SetAttributes { modified: Some(time), accessed: Some(time), ..SetAttributes::default() };
    image.set_attributes(&context, file.inode(), &changes).unwrap();
}

/// The image as commands see it.
pub fn tree_of(image: &MemoryFileSystem) -> ImageTree<'_> {
    ImageTree::new(image, Path::new("test.img"))
}

/// What `body` prints.
pub fn printed(json: bool, body: impl FnOnce(&mut Output<'_>)) -> String {
    let mut text = Vec::new();
    body(&mut Output::new(&mut text, true, json));
    String::from_utf8(text).unwrap()
}

/// All paths in an image, sorted.
pub fn paths(tree: &ImageTree<'_>) -> Vec<String> {
    let mut paths = Vec::new();
    let mut waiting = vec![(tree.file_system.root(), b"/".to_vec())];
    while let Some((directory, path)) = waiting.pop() {
        for name in tree.list(directory, &path).unwrap_or_default() {
            let path = join(&path, &name);
            paths.push(String::from_utf8(path.clone()).unwrap());
            let node = tree.child(directory, &name).unwrap().unwrap();
            waiting.push((node.inode(), path));
        }
    }
    paths.sort();
    paths
}

/// The content of a file.
pub fn content(tree: &ImageTree<'_>, path: &str) -> Vec<u8> {
    let node = tree.find(Path::new(path), true).unwrap();
    let mut buffer = vec![0; node.attributes().size as usize];
    tree.file_system.read(node.inode(), 0, &mut buffer).unwrap();
    buffer
}
