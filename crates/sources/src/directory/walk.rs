//! Walking a directory with several threads.
//!
//! Workers list directories and read the metadata of their entries. The thread that owns the tree
//! inserts the results and queues the directories among them. Results come in pieces, so that a
//! directory of a million names doesn't have to be in memory beside the tree.
//!
//! # Locking
//! One lock, around the directories to be listed and the pieces to be inserted.

use super::entry::{self, FoundFile, FoundKind};
use super::files::{DirectoryFiles, NamedPlaces, ROOT};
use super::{DirectoryError, DirectoryOptions};
use drystone_mkfs::tree::{
    FileTree, NodeContent, NodeToInsert, Segment, SourceError, SourceId, TreeNodeId,
};
use drystone_sync::{Arc, Condvar, LockClass, Mutex, thread};
use rustix::fs::{Dir, Mode, OFlags};
use std::collections::{HashMap, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Directories to be listed, and what was found.
static WALK: LockClass = LockClass::new("walk of a directory", 110);

/// Files of one piece at most.
const PIECE_FILES: usize = 2048;
/// Pieces that wait at most.
const WAITING_MAX: usize = 32;

/// A directory to be listed.
struct ListJob {
    node: TreeNodeId,
    place: u32,
    path: Vec<u8>,
}

/// Files of one directory.
struct ListedPiece {
    directory: Arc<ListJob>,
    found: Vec<FoundFile>,
    is_last: bool,
}

#[derive(Default)]
struct WalkState {
    jobs: VecDeque<ListJob>,
    pieces: VecDeque<Result<ListedPiece, DirectoryError>>,
    is_over: bool,
}

struct SharedWalk {
    state: Mutex<WalkState>,
    changed: Condvar,
}

/// Adds the content of a directory to the tree, over what is there already.
///
/// # Errors
/// Something can't be read, or can't be in a tree.
pub fn read_directory(
    tree: &mut FileTree,
    path: &Path,
    options: &DirectoryOptions<'_>,
) -> Result<(), DirectoryError> {
    read_directory_at(tree, path, b"", options)
}

/// Fills a directory of the tree, which is made if need be, with what is in one of the host.
///
/// # Errors
/// Something can't be read, or can't be in a tree.
pub fn read_directory_at(
    tree: &mut FileTree,
    path: &Path,
    at: &[u8],
    options: &DirectoryOptions<'_>,
) -> Result<(), DirectoryError> {
    let name = path.as_os_str().as_bytes().to_vec();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| SourceError { path: name.clone(), problem: errno.to_string() })?;
    let files = Arc::new(DirectoryFiles::new(root, name));
    let (stat, metadata) = entry::look_at_root(&files)?;
    let root = tree.insert(at, NodeToInsert::Directory, &metadata, entry::modified(&stat))?;
    let mut inserter = Inserter {
        source: tree.add_source(Box::new(Arc::clone(&files)))?,
        tree,
        places: NamedPlaces::default(),
        linked: HashMap::new(),
        device: options.one_file_system.then_some(stat.st_dev),
        files: &files,
    };
    inserter.places.add(ROOT, b"", &stat);
    let shared =
        SharedWalk { state: Mutex::new(&WALK, WalkState::default()), changed: Condvar::new() };
    let root = ListJob { node: root, place: ROOT, path: Vec::new() };
    shared.state.lock().jobs.push_back(root);
    let result: Result<(), DirectoryError> = thread::scope(|scope| {
        let _end = thread::at_end(|| {
            shared.state.lock().is_over = true;
            shared.changed.notify_all();
        });
        let walk = || work(&shared, &files, options);
        thread::spawn_several(scope, "walk", options.threads.max(1), walk)
            .map_err(|error| files.error(b"", format_args!("can't start a thread: {error}")))?;
        insert_all(&shared, &mut inserter)
    });
    result?;
    // Set once: no other thread has seen these files yet.
    let _ = files.places.set(inserter.places);
    Ok(())
}

/// Takes pieces until nothing is left to be listed.
fn insert_all(shared: &SharedWalk, inserter: &mut Inserter<'_>) -> Result<(), DirectoryError> {
    let mut unfinished = 1;
    while unfinished > 0 {
        let piece = {
            let mut state = shared.state.lock();
            shared.changed.wait_while(&mut state, |state| state.pieces.is_empty());
            let piece = state.pieces.pop_front();
            shared.changed.notify_all();
            piece
        };
        // The wait ends when there is one.
        let Some(piece) = piece else { continue };
        let piece = piece?;
        let is_last = piece.is_last;
        let jobs = inserter.insert(piece)?;
        unfinished += jobs.len();
        unfinished -= usize::from(is_last);
        if !jobs.is_empty() {
            shared.state.lock().jobs.extend(jobs);
            shared.changed.notify_all();
        }
    }
    Ok(())
}

/// Lists directories until the walk is over.
fn work(shared: &SharedWalk, files: &DirectoryFiles, options: &DirectoryOptions<'_>) {
    let _end = thread::at_end(|| {
        // No thread may go on waiting for this one. The panic ends the scope, whatever the error.
        if thread::panicking() {
            shared.state.lock().pieces.push_back(Err(DirectoryError::Cancelled));
            shared.changed.notify_all();
        }
    });
    loop {
        let job = {
            let mut state = shared.state.lock();
            shared.changed.wait_while(&mut state, |state| state.jobs.is_empty() && !state.is_over);
            if state.is_over {
                return;
            }
            // The newest first, so that few are queued at a time. The wait ends when there is one.
            state.jobs.pop_back()
        };
        let Some(job) = job.map(Arc::new) else { continue };
        let mut push = |found, is_last| {
            push_piece(shared, Ok(ListedPiece { directory: Arc::clone(&job), found, is_last }))
        };
        if let Err(error) = list(files, &job.path, options, &mut push) {
            push_piece(shared, Err(error));
        }
    }
}

/// Returns whether the walk goes on.
fn push_piece(shared: &SharedWalk, piece: Result<ListedPiece, DirectoryError>) -> bool {
    let mut state = shared.state.lock();
    shared
        .changed
        .wait_while(&mut state, |state| state.pieces.len() >= WAITING_MAX && !state.is_over);
    state.pieces.push_back(piece);
    shared.changed.notify_all();
    !state.is_over
}

fn list(
    files: &DirectoryFiles,
    path: &[u8],
    options: &DirectoryOptions<'_>,
    push: &mut dyn FnMut(Vec<FoundFile>, bool) -> bool,
) -> Result<(), DirectoryError> {
    let failed = |errno: rustix::io::Errno| files.error(path, errno);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory = files.open_below(path, flags).map_err(failed)?;
    let mut found = Vec::new();
    let mut whole = entry::join(path, b"");
    let names_start = whole.len();
    for entry in Dir::read_from(&directory).map_err(failed)? {
        if (options.is_cancelled)() {
            return Err(DirectoryError::Cancelled);
        }
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes();
        whole.truncate(names_start);
        whole.extend_from_slice(name);
        if name == b"." || name == b".." || (options.exclude)(&whole) {
            continue;
        }
        found.push(entry::look(files, &directory, path, name)?);
        if found.len() >= PIECE_FILES && !push(std::mem::take(&mut found), false) {
            return Ok(());
        }
    }
    push(found, true);
    Ok(())
}

/// Puts what was found into the tree.
struct Inserter<'a> {
    tree: &'a mut FileTree,
    source: SourceId,
    places: NamedPlaces,
    /// Files with several names, by device and inode.
    linked: HashMap<(u64, u64), TreeNodeId>,
    /// The only device to walk on.
    device: Option<u64>,
    files: &'a DirectoryFiles,
}

impl Inserter<'_> {
    /// Returns the directories in the piece.
    fn insert(&mut self, piece: ListedPiece) -> Result<Vec<ListJob>, DirectoryError> {
        let mut jobs = Vec::new();
        let ListJob { node: directory, place, path } = &*piece.directory;
        let (directory, place) = (*directory, *place);
        for FoundFile { name, stat, metadata, kind } in piece.found {
            let identity = (stat.st_dev, stat.st_ino);
            let is_linked = stat.st_nlink > 1 && !matches!(kind, FoundKind::Directory);
            if is_linked && let Some(&node) = self.linked.get(&identity) {
                self.tree.link_in(directory, &name, node)?;
                continue;
            }
            let is_directory = matches!(kind, FoundKind::Directory);
            let has_place = is_directory || matches!(kind, FoundKind::File(_)) && stat.st_size > 0;
            let own_place = match has_place.then(|| self.places.add(place, &name, &stat)) {
                Some(None) => return Err(self.files.error(b"", "more files than 2^32").into()),
                Some(Some(place)) => place,
                None => ROOT,
            };
            let new = self.new_node(&stat, own_place, kind);
            let modified = entry::modified(&stat);
            let node = self
                .tree
                .insert_in(directory, &name, new, &metadata, modified)
                .map_err(DirectoryError::Tree)?;
            if is_linked {
                self.linked.insert(identity, node);
            }
            if is_directory && self.device.is_none_or(|device| device == stat.st_dev) {
                jobs.push(ListJob { node, place: own_place, path: entry::join(path, &name) });
            }
        }
        Ok(jobs)
    }

    fn new_node(&self, stat: &rustix::fs::Stat, object: u32, kind: FoundKind) -> NodeToInsert {
        let size = stat.st_size as u64;
        let source = self.source;
        let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        match kind {
            FoundKind::Directory => NodeToInsert::Directory,
            FoundKind::File(None) => {
                NodeToInsert::File(NodeContent::Whole { size, source, object, offset: 0 })
            }
            FoundKind::File(Some(parts)) => {
                let piece = |part: std::ops::Range<u64>| Segment {
                    logical: part.start,
                    length: part.end - part.start,
                    source,
                    object,
                    offset: part.start,
                };
                let pieces = parts.into_iter().map(piece).collect();
                NodeToInsert::File(NodeContent::Pieces { size, pieces })
            }
            FoundKind::Symlink(target) => NodeToInsert::Symlink(target),
            FoundKind::CharacterDevice => NodeToInsert::CharacterDevice { major, minor },
            FoundKind::BlockDevice => NodeToInsert::BlockDevice { major, minor },
            FoundKind::Fifo => NodeToInsert::Fifo,
            FoundKind::Socket => NodeToInsert::Socket,
        }
    }
}
