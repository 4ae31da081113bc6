//! Everything that can be seen of a file system, in a comparable form: of one behind the interface,
//! or of a directory of the host (such as an image that the kernel has mounted).

mod engine;
mod host;

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::operations::Word;

/// What a tree contains and leaves out.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    /// Times of last read and last change of content.
    pub times: bool,
    /// Times of last change of content or attributes.
    pub change_times: bool,
    /// The numbers of inodes.
    pub inode_numbers: bool,
    /// Flags as `lsattr` shows them (not of a host directory).
    pub flags: bool,
    /// Where data and holes are.
    pub holes: bool,
    /// The size of the largest file whose content is looked at.
    pub content_bytes_max: u64,
    /// Extended attributes whose names start so are left out.
    pub xattrs_ignored: Vec<Vec<u8>>,
    /// Paths that are left out with all below them. A directory left out at the root isn't
    /// counted in the root's links.
    pub paths_ignored: Vec<Vec<u8>>,
}

impl Default for TreeOptions {
    fn default() -> TreeOptions {
        TreeOptions {
            times: false,
            change_times: false,
            inode_numbers: false,
            flags: false,
            holes: false,
            content_bytes_max: u64::MAX,
            xattrs_ignored: Vec::new(),
            paths_ignored: vec![b"/lost+found".to_vec()],
        }
    }
}

/// The facts of one path, by name.
pub type PathFacts = BTreeMap<String, String>;

/// Everything below a directory, by paths that start with `/` there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeSnapshot {
    /// The facts of each path.
    pub entries: BTreeMap<Word, PathFacts>,
}

/// The differences, a line for each path or fact.
pub fn diff(left: &TreeSnapshot, right: &TreeSnapshot) -> Vec<String> {
    let mut lines = Vec::new();
    let unmatched =
        |from: &TreeSnapshot, other: &TreeSnapshot, side: &str, lines: &mut Vec<String>| {
            for (path, facts) in &from.entries {
                if !other.entries.contains_key(path) {
                    let file_type = facts.get("type").map_or("", String::as_str);
                    lines.push(format!("{path}: only {side} ({file_type})"));
                }
            }
        };
    unmatched(left, right, "left", &mut lines);
    unmatched(right, left, "right", &mut lines);
    for (path, facts) in &left.entries {
        let Some(others) = right.entries.get(path) else { continue };
        let names: std::collections::BTreeSet<_> = facts.keys().chain(others.keys()).collect();
        for name in names {
            let (a, b) = (facts.get(name), others.get(name));
            if a != b {
                let show = |fact: Option<&String>| fact.map_or("nothing".to_owned(), Clone::clone);
                lines.push(format!("{path}: {name}: left {}, right {}", show(a), show(b)));
            }
        }
    }
    lines
}

/// Collects facts in the words that both kinds of tree share.
#[derive(Default)]
struct Collector {
    tree: TreeSnapshot,
    /// The paths of each inode that has several names.
    names: BTreeMap<u64, Vec<Word>>,
    /// Directories at the root that were left out.
    ignored_at_root: u32,
}

impl Collector {
    /// Notes that `path` is a name of an inode that has several.
    fn note_name(&mut self, path: &[u8], inode: u64) {
        self.names.entry(inode).or_default().push(Word(path.to_vec()));
    }

    fn finish(mut self) -> TreeSnapshot {
        for paths in self.names.values() {
            let first = paths.iter().min().map(Word::to_string).unwrap_or_default();
            for path in paths {
                if let Some(facts) = self.tree.entries.get_mut(path) {
                    facts.insert("same inode as".to_owned(), first.clone());
                }
            }
        }
        let root = Word(b"/".to_vec());
        if let Some(facts) = self.tree.entries.get_mut(&root)
            && let Some(links) = facts.get("links").and_then(|links| links.parse::<u32>().ok())
        {
            facts.insert("links".to_owned(), (links - self.ignored_at_root).to_string());
        }
        self.tree
    }
}

/// A tree of facts that were collected elsewhere; they must include `type`, `links` and `inode`.
pub(crate) fn from_facts(entries: impl IntoIterator<Item = (Word, PathFacts)>) -> TreeSnapshot {
    let mut collector = Collector::default();
    for (path, facts) in entries {
        let fact = |name: &str| facts.get(name).map_or("", String::as_str);
        if fact("type") != "Directory" && fact("links") != "1" {
            collector.note_name(&path.0, fact("inode").parse().unwrap_or(0));
        }
        collector.tree.entries.insert(path, facts);
    }
    collector.finish()
}

/// Content is compared in pieces of this many bytes; a piece of zeros equals a hole.
const PIECE_BYTES: u64 = 65_536;

/// Summarises content that `read_at` gives, skipping what `next_data` says is a hole: the SHA-256 of all
/// pieces that hold more than zeros, each after its offset.
fn summarise<E>(
    size: u64,
    mut next_data: impl FnMut(u64) -> Result<Option<u64>, E>,
    mut read_at: impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
) -> Result<String, E> {
    let mut buffer = vec![0; PIECE_BYTES as usize];
    let mut digest = Sha256::new();
    let mut at = 0;
    while at < size {
        let Some(data) = next_data(at)? else { break };
        at = at.max(data - data % PIECE_BYTES);
        let expected = PIECE_BYTES.min(size - at) as usize;
        let count = read_at(at, &mut buffer[..expected])?;
        if count != expected {
            return Ok(format!("read {count} bytes at {at} instead of {expected}"));
        }
        if buffer[..count].iter().any(|&byte| byte != 0) {
            digest.update(at.to_le_bytes());
            digest.update(&buffer[..count]);
        }
        at += PIECE_BYTES;
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn is_ignored(options: &TreeOptions, path: &[u8]) -> bool {
    options.paths_ignored.iter().any(|ignored| ignored == path)
}

fn is_xattr_ignored(options: &TreeOptions, name: &[u8]) -> bool {
    options.xattrs_ignored.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MemoryFileSystem;
    use crate::operations::{Executor, Operation, parse_operations};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn do_all(file_system: &MemoryFileSystem, operations: &str) {
        let mut executor = Executor::new(file_system);
        for operation in parse_operations(operations).unwrap() {
            let operation: Operation = operation;
            assert!(executor.apply(&operation).0.is_ok(), "{operation}");
        }
    }

    const BASE: &str = "
        u0 mkdir /d 750
        u0 create /d/f 640
        u0 write /d/f 70000 =hello
        u0 link /d/f /g
        u0 symlink d/f /s
        u0 setxattr /g user.a =1 set
    ";

    #[test]
    fn differences_are_named() {
        let (a, b) = (MemoryFileSystem::default(), MemoryFileSystem::default());
        do_all(&a, BASE);
        do_all(&b, BASE);
        let options = TreeOptions { holes: true, flags: true, times: true, ..Default::default() };
        let read = |file_system| TreeSnapshot::read(file_system, "/", &options).unwrap();
        assert_eq!(diff(&read(&a), &read(&b)), [""; 0]);
        do_all(&b, "u0 write /g 70000 =hallo\nu0 chmod /d 700\nu0 unlink /s");
        let options = TreeOptions::default();
        let lines = diff(
            &TreeSnapshot::read(&a, "/", &options).unwrap(),
            &TreeSnapshot::read(&b, "/", &options).unwrap(),
        );
        assert_eq!(lines.len(), 4, "{lines:#?}");
        assert_eq!(lines[0], "/s: only left (Symlink)");
        assert_eq!(lines[1], "/d: mode: left 0750, right 0700");
        assert!(lines[2].starts_with("/d/f: content: left "), "{}", lines[2]);
        assert_eq!(a.references() + b.references(), 0);
    }

    #[test]
    fn host_directory_equals_the_same_tree_in_the_model() {
        let host = tempfile::tempdir().unwrap();
        let at = |name: &str| host.path().join(name);
        std::fs::set_permissions(host.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::create_dir(at("d")).unwrap();
        std::fs::set_permissions(at("d"), PermissionsExt::from_mode(0o750)).unwrap();
        let mut content = vec![0; 70_000];
        content.extend_from_slice(b"hello");
        std::fs::write(at("d/f"), content).unwrap();
        std::fs::set_permissions(at("d/f"), PermissionsExt::from_mode(0o640)).unwrap();
        std::fs::hard_link(at("d/f"), at("g")).unwrap();
        symlink("d/f", at("s")).unwrap();
        let model = MemoryFileSystem::default();
        do_all(&model, BASE);
        // Not every host file system takes attributes.
        let options = TreeOptions { xattrs_ignored: vec![b"user.".to_vec()], ..Default::default() };
        let mut host_tree = TreeSnapshot::from_host(host.path(), &options).unwrap();
        let mut model_tree = TreeSnapshot::read(&model, "/", &options).unwrap();
        for tree in [&mut host_tree, &mut model_tree] {
            for facts in tree.entries.values_mut() {
                // The files belong to the user who runs the test; some hosts don't count
                // subdirectories.
                facts.remove("owner");
                if facts.get("type").is_some_and(|kind| kind == "Directory") {
                    facts.remove("links");
                }
            }
        }
        assert_eq!(diff(&host_tree, &model_tree), [""; 0]);
    }
}
