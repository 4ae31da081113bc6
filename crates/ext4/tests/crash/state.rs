//! Everything that is visible in a file system, with the content of files, in a form that takes little
//! memory for many versions.

use drystone_sync::Arc;
use drystone_testkit::operations::{Executor, Word, describe};
use drystone_testkit::walk::walk;
use drystone_vfs::{
    FileSystem, FileType, InodeAttributes, InodeNumber, RequestContext, Result, SeekFrom, find_path,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// One path.
#[derive(Clone, Debug)]
pub struct Entry {
    pub inode: InodeNumber,
    /// Everything journaled except the size, in words.
    pub facts: String,
    /// The first name of the inode, which is the same for all links to it.
    pub first_name: Vec<u8>,
    pub size: u64,
    pub content: Option<Arc<Vec<u8>>>,
}

impl Entry {
    pub fn is_directory(&self) -> bool {
        self.facts.starts_with("Directory")
    }

    /// Whether two are the same in everything except size and content.
    pub fn is_same_node(&self, other: &Entry) -> bool {
        self.facts == other.facts && self.first_name == other.first_name
    }
}

/// What [`State::covered`] finds.
#[derive(PartialEq)]
pub struct Covered<'a> {
    facts: &'a str,
    size: u64,
    names: BTreeSet<(&'a [u8], InodeNumber)>,
    children: BTreeSet<(&'a [u8], InodeNumber)>,
}

/// Everything below a directory.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// By path.
    pub entries: BTreeMap<Vec<u8>, Entry>,
    /// Files that are open and have no name. A crash after such a file is linked may leave it with its
    /// content from before, like any file.
    pub nameless: Vec<Entry>,
}

impl State {
    /// Reads everything below `base`. Content that equals that in `before` is shared with it.
    pub fn read(fs: &dyn FileSystem, base: &str, before: Option<&State>) -> Result<State> {
        let context = RequestContext::superuser();
        let found = walk(fs, &context, base.as_bytes())?;
        let mut first_names: BTreeMap<InodeNumber, Vec<u8>> = BTreeMap::new();
        for (path, attributes) in &found {
            let first = first_names.entry(attributes.inode).or_insert_with(|| path.clone());
            if path < first {
                first.clone_from(path);
            }
        }
        let mut entries = BTreeMap::new();
        for (path, attributes) in found {
            let old = before.and_then(|before| before.entries.get(&path));
            let old = old.and_then(|entry| entry.content.as_ref());
            let first_name = &first_names[&attributes.inode];
            // The caller needs a reference.
            let _held = find_path(fs, &context, &path, false)?;
            let entry = read_entry(fs, &context, &attributes, first_name, old)?;
            entries.insert(path, entry);
        }
        Ok(State { entries, nameless: Vec::new() })
    }

    /// Adds the files without a name that an executor holds open.
    pub fn read_nameless(&mut self, executor: &Executor, before: &State) -> Result<()> {
        let fs = executor.file_system();
        for inode in executor.open_inodes().collect::<BTreeSet<_>>() {
            let attributes = fs.attributes(inode)?;
            if attributes.links > 0 || attributes.file_type != FileType::Regular {
                continue;
            }
            let old = before.entry_of(inode).and_then(|entry| entry.content.as_ref());
            let context = RequestContext::superuser();
            self.nameless.push(read_entry(fs, &context, &attributes, b"", old)?);
        }
        Ok(())
    }

    /// All names, and all files without one.
    pub fn all_entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().chain(&self.nameless)
    }

    /// An inode, by any of its names or none.
    pub fn entry_of(&self, inode: InodeNumber) -> Option<&Entry> {
        self.all_entries().find(|entry| entry.inode == inode)
    }

    /// What a sync of an inode makes durable, except content: its attributes, its names and their
    /// directories, and, if it is a directory, what its names stand for.
    pub fn covered(&self, inode: InodeNumber) -> Option<Covered<'_>> {
        let entry = self.entry_of(inode)?;
        let (mut names, mut children) = (BTreeSet::new(), BTreeSet::new());
        for (path, other) in &self.entries {
            let Some(slash) = path.iter().rposition(|&byte| byte == b'/') else { continue };
            let Some(parent) = self.entries.get(&path[..slash]) else { continue };
            if other.inode == inode {
                names.insert((&path[slash..], parent.inode));
            }
            if parent.inode == inode {
                children.insert((&path[slash..], other.inode));
            }
        }
        Some(Covered { facts: &entry.facts, size: entry.size, names, children })
    }

    /// The first difference of the two, except in content, that `accepts` doesn't allow.
    pub fn difference(
        &self,
        other: &State,
        accepts: impl Fn(&[u8], Option<&Entry>, Option<&Entry>) -> bool,
    ) -> Option<String> {
        for (path, entry) in &self.entries {
            let matching = other.entries.get(path);
            let is_same = matching.is_some_and(|m| m.is_same_node(entry) && m.size == entry.size);
            if !is_same && !accepts(path, Some(entry), matching) {
                let show = |e: &Entry| {
                    format!("{} size {} first {}", e.facts, e.size, Word(e.first_name.clone()))
                };
                let there = matching.map_or("missing".to_owned(), show);
                return Some(format!("{}: {} / {there}", Word(path.clone()), show(entry)));
            }
        }
        for (path, entry) in &other.entries {
            if !self.entries.contains_key(path) && !accepts(path, None, Some(entry)) {
                return Some(format!("{}: missing / {}", Word(path.clone()), entry.facts));
            }
        }
        None
    }
}

fn read_entry(
    fs: &dyn FileSystem,
    context: &RequestContext,
    attributes: &InodeAttributes,
    first_name: &[u8],
    old: Option<&Arc<Vec<u8>>>,
) -> Result<Entry> {
    let inode = attributes.inode;
    let sizeless = InodeAttributes { size: 0, ..*attributes };
    let mut facts = describe(&sizeless);
    let mut content = None;
    let mut size = 0;
    match attributes.file_type {
        FileType::Regular => {
            size = attributes.size;
            content = Some(read_content(fs, inode, size, old)?);
        }
        FileType::Symlink => {
            let _ = write!(facts, " target {}", Word(fs.read_link(inode)?));
        }
        _ => {}
    }
    let mut names = fs.list_xattrs(context, inode)?;
    names.sort();
    for name in names {
        let value = fs.xattr(context, inode, &name)?;
        let _ = write!(facts, " {}={}", Word(name), Word(value));
    }
    Ok(Entry { inode, facts, first_name: first_name.to_vec(), size, content })
}

fn read_content(
    fs: &dyn FileSystem,
    inode: InodeNumber,
    size: u64,
    old: Option<&Arc<Vec<u8>>>,
) -> Result<Arc<Vec<u8>>> {
    let mut bytes = vec![0; size as usize];
    let mut at = 0;
    while let Ok(data) = fs.seek(inode, SeekFrom::Data(at)) {
        let end = fs.seek(inode, SeekFrom::Hole(data)).unwrap_or(size).min(size);
        let piece = &mut bytes[data as usize..end as usize];
        let count = fs.read(inode, data, piece)?;
        assert_eq!(count, piece.len(), "a short read inside inode {inode:?}");
        at = end;
        if at >= size {
            break;
        }
    }
    Ok(match old {
        Some(old) if **old == bytes => Arc::clone(old),
        _ => Arc::new(bytes),
    })
}
