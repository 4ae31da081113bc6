//! Everything that is visible in a file system, with the content of files, in a form that takes little
//! memory for many versions.

use crate::operations::{Word, describe};
use crate::walk::walk;
use drystone_sync::Arc;
use drystone_vfs::{
    FileSystem, FileType, InodeAttributes, InodeNumber, RequestContext, Result, SeekFrom, find_path,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;

/// One path.
#[derive(Clone, Debug)]
pub struct VisibleEntry {
    /// Its number.
    pub inode: InodeNumber,
    /// Everything journaled except the size, in words.
    pub facts: String,
    /// The first name of the inode, which is the same for all links to it.
    pub first_name: Vec<u8>,
    /// Bytes of a file.
    pub size: u64,
    /// What a file holds.
    pub content: Option<Arc<Vec<u8>>>,
}

impl VisibleEntry {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.facts.starts_with("Directory")
    }

    /// Whether two are the same in everything except size and content.
    pub fn is_same_node(&self, other: &VisibleEntry) -> bool {
        self.facts == other.facts && self.first_name == other.first_name
    }
}

/// What [`VisibleState::covered`] finds.
#[derive(PartialEq)]
pub struct Covered<'a> {
    facts: &'a str,
    size: u64,
    names: BTreeSet<(&'a [u8], InodeNumber)>,
    children: BTreeSet<(&'a [u8], InodeNumber)>,
}

/// Everything below a directory.
#[derive(Clone, Debug, Default)]
pub struct VisibleState {
    /// By path.
    pub entries: BTreeMap<Vec<u8>, VisibleEntry>,
    /// Files that are open and have no name. A crash after such a file is linked may leave it with its
    /// content from before, like any file.
    pub nameless: Vec<VisibleEntry>,
}

impl VisibleState {
    /// Reads everything below `base`. Content that equals that in `before` is shared with it.
    pub fn read(
        fs: &dyn FileSystem,
        base: &str,
        before: Option<&VisibleState>,
    ) -> Result<VisibleState> {
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
        Ok(VisibleState { entries, nameless: Vec::new() })
    }

    /// Adds the files without a name among inodes that somebody holds.
    pub fn read_nameless(
        &mut self,
        fs: &dyn FileSystem,
        held: impl Iterator<Item = InodeNumber>,
        before: Option<&VisibleState>,
    ) -> Result<()> {
        for inode in held.collect::<BTreeSet<_>>() {
            let attributes = fs.attributes(inode)?;
            if attributes.links > 0 || attributes.file_type != FileType::Regular {
                continue;
            }
            let old = before.and_then(|before| before.entry_of(inode));
            let old = old.and_then(|entry| entry.content.as_ref());
            let context = RequestContext::superuser();
            self.nameless.push(read_entry(fs, &context, &attributes, b"", old)?);
        }
        Ok(())
    }

    /// All names, and all files without one.
    pub fn all_entries(&self) -> impl Iterator<Item = &VisibleEntry> {
        self.entries.values().chain(&self.nameless)
    }

    /// An inode, by any of its names or none.
    pub fn entry_of(&self, inode: InodeNumber) -> Option<&VisibleEntry> {
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

    /// The first difference of the two, in content too.
    pub fn whole_difference(&self, other: &VisibleState) -> Option<String> {
        if let Some(difference) = self.difference(other, |_, _, _| false) {
            return Some(difference);
        }
        let differs = |path: &&Vec<u8>| self.entries[*path].content != other.entries[*path].content;
        let path = self.entries.keys().find(differs)?;
        Some(format!("{} has other content", Word(path.clone())))
    }

    /// The first difference of the two, except in content, that `accepts` doesn't allow.
    pub fn difference(
        &self,
        other: &VisibleState,
        accepts: impl Fn(&[u8], Option<&VisibleEntry>, Option<&VisibleEntry>) -> bool,
    ) -> Option<String> {
        for (path, entry) in &self.entries {
            let matching = other.entries.get(path);
            let is_same = matching.is_some_and(|m| m.is_same_node(entry) && m.size == entry.size);
            if !is_same && !accepts(path, Some(entry), matching) {
                let show = |e: &VisibleEntry| {
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
) -> Result<VisibleEntry> {
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
    Ok(VisibleEntry { inode, facts, first_name: first_name.to_vec(), size, content })
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

/// Each byte has to be in one of the versions at its place. If content was moved, it is enough that each
/// piece is somewhere in a version.
pub fn check_content(
    content: &[u8],
    versions: &[&Arc<Vec<u8>>],
    is_shifted: bool,
) -> std::result::Result<(), String> {
    // A sector: a block that was being overwritten where it was moved from may be torn between two.
    const PIECE_BYTES: usize = 512;
    if versions.iter().any(|version| version[..] == content[..]) {
        return Ok(());
    }
    // A file is never longer than what was written, so zeros past a version's end don't count.
    let at = |version: &[u8], place: usize| version.get(place).copied();
    let foreign =
        (0..content.len()).find(|&i| versions.iter().all(|v| at(v, i) != Some(content[i])));
    let Some(foreign) = foreign else { return Ok(()) };
    if is_shifted {
        let padded = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes.resize(PIECE_BYTES, 0);
            bytes
        };
        let known: HashSet<Vec<u8>> =
            versions.iter().flat_map(|v| v.chunks(PIECE_BYTES)).map(padded).collect();
        // The file may end within a piece that a later version has in full.
        let is_beginning = |piece: &[u8]| {
            piece.len() < PIECE_BYTES && known.iter().any(|whole| whole.starts_with(piece))
        };
        let is_known = |piece: &[u8]| {
            piece.iter().all(|&b| b == 0) || known.contains(&padded(piece)) || is_beginning(piece)
        };
        if content.chunks(PIECE_BYTES).all(is_known) {
            return Ok(());
        }
    }
    let expected: Vec<Option<u8>> = versions.iter().take(4).map(|v| at(v, foreign)).collect();
    Err(format!(
        "byte {foreign} of {} is {}, expected one of {expected:?} from {} versions",
        content.len(),
        content[foreign],
        versions.len()
    ))
}
