//! Insertion into trees.

use super::*;

fn meta() -> NodeMetadata {
    NodeMetadata::new(0o644, 1, 2)
}

fn file(text: &str) -> NodeToInsert {
    NodeToInsert::File(NodeContent::Bytes(text.as_bytes().to_vec()))
}

fn insert(tree: &mut FileTree, path: &str, new: NodeToInsert) -> TreeResult<TreeNodeId> {
    tree.insert(path.as_bytes(), new, &meta(), InodeTimestamp::from_seconds(7))
}

fn names(tree: &FileTree, path: &str) -> Vec<String> {
    let directory = tree.lookup(path.as_bytes()).unwrap();
    tree.children(directory).map(|(name, _)| String::from_utf8_lossy(name).into()).collect()
}

#[test]
fn missing_parents_are_made_and_the_last_wins() {
    let mut tree = FileTree::new();
    insert(&mut tree, "./a//b/c", file("1")).unwrap();
    let second = insert(&mut tree, "/a/b/c", file("22")).unwrap();
    assert_eq!(tree.lookup(b"a/b/c"), Some(second));
    assert_eq!(tree.node(second).inline_bytes(), Some(&b"22"[..]));
    assert_eq!(names(&tree, "a/b"), ["c"]);
    assert_eq!(tree.node(tree.lookup(b"a").unwrap()).metadata().permissions, 0o755);
    assert_eq!(tree.directory_path(tree.lookup(b"a/b").unwrap()), b"/a/b");
}

#[test]
fn a_directory_joins_a_directory_and_a_file_replaces_one() {
    let mut tree = FileTree::new();
    insert(&mut tree, "d/x", file("1")).unwrap();
    let before = tree.lookup(b"d").unwrap();
    assert_eq!(insert(&mut tree, "d", NodeToInsert::Directory).unwrap(), before);
    assert_eq!(names(&tree, "d"), ["x"]);
    assert_eq!(tree.node(before).metadata().permissions, 0o644);
    insert(&mut tree, "d", file("2")).unwrap();
    assert_eq!(tree.lookup(b"d/x"), None);
    insert(&mut tree, "d", NodeToInsert::Directory).unwrap();
    assert_eq!(names(&tree, "d"), [] as [&str; 0]);
}

#[test]
fn directories_are_found_through_links() {
    let mut tree = FileTree::new();
    insert(&mut tree, "usr/lib/x", file("1")).unwrap();
    for (name, target) in
        [("lib", "usr/lib"), ("gone", "srv/new"), ("round", "round"), ("f", "usr/lib/x")]
    {
        insert(&mut tree, name, NodeToInsert::Symlink(target.into())).unwrap();
    }
    for (path, expected) in
        [("lib", "/usr/lib"), ("/lib/a/", "/usr/lib/a"), ("gone", "/srv/new"), ("", "/")]
    {
        let made = tree.make_directory(path.as_bytes()).unwrap();
        assert_eq!(tree.directory_path(made), expected.as_bytes());
    }
    for (path, expected) in [("round", "too many"), ("f", "isn't a directory"), ("a/..", "`..`")] {
        let error = tree.make_directory(path.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn removal_and_opaque_directories() {
    let mut tree = FileTree::new();
    for path in ["d/e/f", "d/g", "h"] {
        insert(&mut tree, path, file("1")).unwrap();
    }
    assert!(tree.remove(b"d/g").unwrap());
    assert!(!tree.remove(b"d/g").unwrap());
    assert!(!tree.remove(b"nothing/at/all").unwrap());
    insert(&mut tree, "d/g", file("2")).unwrap();
    assert_eq!(names(&tree, "d"), ["e", "g"]);
    tree.clear(tree.lookup(b"d").unwrap());
    assert_eq!(tree.lookup(b"d/e"), None);
    assert_eq!(names(&tree, ""), ["d", "h"]);
}

/// A tree may be of any depth, but a path alone doesn't make it so.
#[test]
fn long_paths_need_their_directories() {
    let mut tree = FileTree::new();
    let refused = |error| matches!(error, Err(TreeError::PathTooLong { .. }));
    insert(&mut tree, &format!("{}x", "a/".repeat(2047)), file("1")).unwrap();
    assert!(refused(insert(&mut tree, &format!("{}xy", "b/".repeat(2048)), file("1"))));
    assert_eq!(names(&tree, ""), ["a"]);
    for depth in 1..3000 {
        insert(&mut tree, &"b/".repeat(depth), NodeToInsert::Directory).unwrap();
    }
    insert(&mut tree, &format!("{}x", "b/".repeat(2999)), file("1")).unwrap();
    assert!(refused(insert(&mut tree, &format!("{}x", "b/".repeat(3000)), file("1"))));
}

#[test]
fn hard_links_are_one_node() {
    let mut tree = FileTree::new();
    let node = insert(&mut tree, "a", file("1")).unwrap();
    assert_eq!(tree.link(b"d/b", b"a").unwrap(), node);
    assert_eq!(tree.link(b"d/b", b"a").unwrap(), node);
    assert_eq!(tree.node(node).links(), 2);
    insert(&mut tree, "a", file("other")).unwrap();
    assert_eq!(tree.node(node).links(), 1);
    assert!(matches!(tree.link(b"x", b"nothing"), Err(TreeError::LinkToNothing { .. })));
    assert!(matches!(tree.link(b"x", b"d"), Err(TreeError::LinkToDirectory { .. })));
}

#[test]
fn content_changes_under_all_names() {
    let mut tree = FileTree::new();
    let node = insert(&mut tree, "d/a", file("1")).unwrap();
    tree.link(b"b", b"d/a").unwrap();
    tree.set_content(node, NodeContent::Bytes(b"other".to_vec())).unwrap();
    assert_eq!(tree.node(tree.lookup(b"b").unwrap()).inline_bytes(), Some(&b"other"[..]));
    assert_eq!((tree.node(node).links(), tree.node(node).metadata()), (2, &meta()));
    let pieces = vec![Segment {
        logical: 9,
        length: 2,
        source: SourceId::new(0).unwrap(),
        object: 0,
        offset: 0,
    }];
    let error = tree.set_content(node, NodeContent::Pieces { size: 10, pieces }).unwrap_err();
    assert!(matches!(error, TreeError::Segments { .. }));
    assert_eq!(tree.node(node).inline_bytes(), Some(&b"other"[..]));
}

#[test]
fn links_on_the_way_are_followed_inside_the_tree() {
    let mut tree = FileTree::new();
    insert(&mut tree, "usr/lib/x", file("1")).unwrap();
    insert(&mut tree, "lib", NodeToInsert::Symlink(b"../../usr/lib".to_vec())).unwrap();
    insert(&mut tree, "lib/y", file("2")).unwrap();
    assert_eq!(names(&tree, "usr/lib"), ["x", "y"]);
    insert(&mut tree, "later", NodeToInsert::Symlink(b"/made/here".to_vec())).unwrap();
    insert(&mut tree, "later/z", file("3")).unwrap();
    assert_eq!(names(&tree, "made/here"), ["z"]);
    insert(&mut tree, "loop", NodeToInsert::Symlink(b"loop".to_vec())).unwrap();
    let looped = insert(&mut tree, "loop/z", file("3"));
    assert!(matches!(looped, Err(TreeError::Loop { .. })));
}

#[test]
fn what_cannot_be() {
    let mut tree = FileTree::new();
    insert(&mut tree, "f", file("1")).unwrap();
    let long = "n".repeat(256);
    assert!(matches!(insert(&mut tree, &long, file("")), Err(TreeError::NameTooLong { .. })));
    assert!(matches!(insert(&mut tree, "a/../b", file("")), Err(TreeError::BadPath { .. })));
    assert!(matches!(insert(&mut tree, "f/x", file("")), Err(TreeError::NotADirectory { .. })));
    assert!(matches!(insert(&mut tree, "/", file("")), Err(TreeError::BadPath { .. })));
    let link = insert(&mut tree, "s", NodeToInsert::Symlink(vec![]));
    assert!(matches!(link, Err(TreeError::SymlinkLength { .. })));
    let source = SourceId::new(0).unwrap();
    let piece = |logical, length| Segment { logical, length, source, object: 0, offset: 0 };
    for pieces in [vec![piece(0, 5), piece(4, 1)], vec![piece(8, 3)], vec![piece(9, u64::MAX)]] {
        let content = NodeToInsert::File(NodeContent::Pieces { size: 10, pieces });
        assert!(matches!(insert(&mut tree, "p", content), Err(TreeError::Segments { .. })));
    }
}

#[test]
fn a_node_and_its_name_are_small() {
    assert!(size_of::<node::StoredNode>() <= 56, "{}", size_of::<node::StoredNode>());
    assert_eq!(size_of::<Entry>(), 24);
}

#[test]
fn many_names_in_one_directory_take_linear_time() {
    let mut tree = FileTree::new();
    let directory = insert(&mut tree, "d", NodeToInsert::Directory).unwrap();
    for number in 0..100_000 {
        let name = format!("{number}");
        let new = NodeToInsert::File(NodeContent::Bytes(Vec::new()));
        tree.insert_in(directory, name.as_bytes(), new, &meta(), InodeTimestamp::default())
            .unwrap();
    }
    assert_eq!(tree.children(directory).count(), 100_000);
    tree.clear(directory);
    assert_eq!(tree.children(directory).count(), 0);
}

#[test]
fn there_can_be_too_many_sources() {
    #[derive(Debug)]
    struct Nothing;
    impl ContentSource for Nothing {
        fn read_at(&self, _: u32, _: u64, _: &mut [u8]) -> Result<(), SourceError> {
            Ok(())
        }
    }
    let mut tree = FileTree::new();
    for _ in 0..=u16::MAX {
        tree.add_source(Box::new(Nothing)).unwrap();
    }
    let error = tree.add_source(Box::new(Nothing)).unwrap_err();
    assert_eq!(error, TreeError::TooMuch { what: "sources" });
}
