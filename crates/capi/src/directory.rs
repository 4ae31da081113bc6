//! Listings of a directory, and walks through a tree.
#![allow(
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    clippy::missing_safety_doc,
    reason = "functions for C, as the crate's header says"
)]

use crate::arguments::{path, put};
use crate::attributes::CStat;
use crate::failure::{Failure, answer, done};
use crate::handles;
use crate::image::{CImage, Session, session};
use drystone::fs::{ReadDir, Walk};
use drystone_sync::{Arc, LockClass, Mutex};
use std::ffi::{CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

/// Held while the next entry is read.
static LISTING: LockClass = LockClass::new("C listing", 5);

/// A walk, and what it came to last.
struct Walking {
    walk: Walk<'static>,
    is_at_directory: bool,
}

/// A listing of a directory.
pub struct CDirectory {
    _private: (),
}

/// A walk through a tree.
pub struct CWalk {
    _private: (),
}

/// What is read one by one, and the name that C looks at meanwhile.
struct Listing<I> {
    entries: Mutex<(I, CString)>,
    _session: Arc<Session>,
}

impl<I> Listing<I> {
    fn new(entries: I, session: Arc<Session>) -> Listing<I> {
        let entries = Mutex::new(&LISTING, (entries, CString::default()));
        Listing { entries, _session: session }
    }
}

/// An entry of a directory.
#[repr(C)]
pub struct CEntry {
    /// The name, until the next call with this listing.
    pub name: *const c_char,
    /// The number of the inode.
    pub inode: u64,
    /// The type, as in st_mode: S_IFREG and so on.
    pub r#type: u32,
}

/// What a walk came to.
#[repr(C)]
pub struct CWalkEntry {
    /// The path: that of the start, with the names below it. Valid until the next call with this walk.
    pub path: *const c_char,
    /// How many directories below the start it is.
    pub depth: u32,
    /// What it is. Symbolic links aren't followed.
    pub stat: CStat,
}

/// Opens a directory to list it: opendir.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_directory_open(
    image: *mut CImage,
    name: *const c_char,
) -> *mut CDirectory {
    answer(|| {
        let session = session(image)?;
        let entries = session.fs.read_dir(path(name)?)?;
        Ok(handles::insert(Listing::new(entries, session)))
    })
}

/// The next entry, in no order and without "." and "..": readdir. Returns 1, or 0 at the end. After an
/// error the listing goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_directory_next(
    directory: *mut CDirectory,
    entry: *mut CEntry,
) -> c_int {
    answer(|| {
        let listing: Arc<Listing<ReadDir<'static>>> = handles::get(directory)?;
        let mut state = listing.entries.lock();
        let Some(next) = state.0.next() else { return Ok(0) };
        let next = next?;
        let r#type = u32::from(next.file_type()?.mode_bits());
        state.1 = text(next.file_name());
        put(entry, CEntry { name: state.1.as_ptr(), inode: next.ino(), r#type })?;
        Ok(1)
    })
}

/// Ends a listing.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_directory_close(directory: *mut CDirectory) -> c_int {
    done(|| handles::close::<Listing<ReadDir<'static>>, _>(directory))
}

/// Begins a walk from `path` down: first what is at `path` itself, a directory before what is in it, names in
/// the order of their bytes. Symbolic links aren't followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_walk_open(image: *mut CImage, name: *const c_char) -> *mut CWalk {
    answer(|| {
        let session = session(image)?;
        let walk = session.fs.walk(path(name)?);
        let walking = Walking { walk, is_at_directory: false };
        Ok(handles::insert(Listing::new(walking, session)))
    })
}

/// The next entry. Returns 1, or 0 at the end. After an error, of a directory that can't be read for
/// example, the walk goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_walk_next(walk: *mut CWalk, entry: *mut CWalkEntry) -> c_int {
    answer(|| {
        let listing = walking(walk)?;
        let mut state = listing.entries.lock();
        let next = state.0.walk.next();
        state.0.is_at_directory = matches!(&next, Some(Ok(entry)) if entry.file_type().is_dir());
        let Some(next) = next else { return Ok(0) };
        let next = next?;
        state.1 = text(next.path().as_os_str());
        let depth = u32::try_from(next.depth()).unwrap_or(u32::MAX);
        let stat = CStat::of(next.metadata());
        put(entry, CWalkEntry { path: state.1.as_ptr(), depth, stat })?;
        Ok(1)
    })
}

/// Leaves out what is in the directory that came last. Does nothing if what came last isn't a directory, or an
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_walk_skip(walk: *mut CWalk) -> c_int {
    done(|| {
        let listing = walking(walk)?;
        let walking = &mut listing.entries.lock().0;
        // After anything else the walk would leave out the rest of the directory that holds it.
        if std::mem::take(&mut walking.is_at_directory) {
            walking.walk.skip_current_dir();
        }
        Ok(())
    })
}

/// Ends a walk.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_walk_close(walk: *mut CWalk) -> c_int {
    done(|| handles::close::<Listing<Walking>, _>(walk))
}

fn walking(walk: *mut CWalk) -> Result<Arc<Listing<Walking>>, Failure> {
    handles::get(walk)
}

fn text(name: &OsStr) -> CString {
    // The library reports names with a 0 as damage.
    CString::new(name.as_bytes()).unwrap_or_default()
}
