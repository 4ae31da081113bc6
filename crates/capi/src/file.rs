//! Open files.
#![allow(
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    clippy::missing_safety_doc,
    reason = "functions for C, as the crate's header says"
)]

use crate::arguments::{input, path, put, room};
use crate::attributes::CStat;
use crate::failure::{Failure, answer, done};
use crate::handles;
use crate::image::{CImage, Session, session};
use drystone::vfs::{Errno, FallocateMode, SeekFrom as Extent};
use drystone::{File, OpenOptions};
use drystone_sync::Arc;
use std::ffi::{c_char, c_int, c_void};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// An open file.
pub struct CFile {
    _private: (),
}

/// What a file's handle stands for.
struct OpenFile {
    file: File<'static>,
    _session: Arc<Session>,
}

fn open_file(file: *mut CFile) -> Result<Arc<OpenFile>, Failure> {
    handles::get(file)
}

/// Opens a file. The flags are those of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC
/// and O_APPEND, which need one of the latter two. `mode` is for a file that is made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_file_open(
    image: *mut CImage,
    name: *const c_char,
    flags: c_int,
    mode: u32,
) -> *mut CFile {
    answer(|| {
        let (session, name) = (session(image)?, path(name)?);
        let file = session.fs.open_with(name, open_options(flags)?.mode(mode))?;
        if is_cut_to_append(flags) {
            file.set_len(0)?;
        }
        Ok(handles::insert(OpenFile { file, _session: session }))
    })
}

/// Whether a file loses its content and is then appended to, which the options of the library don't allow, as those of
/// the standard library don't.
fn is_cut_to_append(flags: c_int) -> bool {
    flags & (libc::O_TRUNC | libc::O_APPEND) == libc::O_TRUNC | libc::O_APPEND
}

fn open_options(flags: c_int) -> Result<OpenOptions, Failure> {
    use libc::{O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_EXCL, O_LARGEFILE, O_RDONLY, O_RDWR};
    use libc::{O_TRUNC, O_WRONLY};
    let wrong = |message: String| Err(Failure::new(Errno::EINVAL, message));
    let known = O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_CLOEXEC | O_LARGEFILE;
    if flags & !known != 0 {
        return wrong(format!("unknown flags {:#o}", flags & !known));
    }
    let has = |flag: c_int| flags & flag != 0;
    let access = flags & O_ACCMODE;
    if ![O_RDONLY, O_WRONLY, O_RDWR].contains(&access) {
        return wrong("O_RDONLY, O_WRONLY and O_RDWR exclude each other".to_owned());
    }
    let writes = access != O_RDONLY;
    if !writes && has(O_CREAT | O_TRUNC | O_APPEND) {
        return wrong("O_CREAT, O_TRUNC and O_APPEND need O_WRONLY or O_RDWR".to_owned());
    }
    let options = OpenOptions::new().read(access != O_WRONLY).write(writes && !has(O_APPEND));
    let is_truncated = has(O_TRUNC) && !is_cut_to_append(flags);
    let options = options.append(has(O_APPEND)).truncate(is_truncated);
    Ok(options.create(has(O_CREAT)).create_new(has(O_CREAT) && has(O_EXCL)))
}

/// Closes a file. Small writes may still wait in memory: drystone_file_sync reports their errors.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_file_close(file: *mut CFile) -> c_int {
    done(|| handles::close::<OpenFile, _>(file))
}

/// Reads at the file's offset, and moves it. Returns how many bytes, at most `size`; 0 at the end. The rest of the
/// buffer is cleared; after an error, all of it may be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_file_read(
    file: *mut CFile,
    buffer: *mut c_void,
    size: usize,
) -> i64 {
    answer(|| Ok((&open_file(file)?.file).read(room(buffer, size)?)? as i64))
}

/// Reads at an offset. The file's own doesn't move. The rest of the buffer is cleared; after an error, all of it
/// may be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_file_pread(
    file: *mut CFile,
    buffer: *mut c_void,
    size: usize,
    offset: u64,
) -> i64 {
    answer(|| Ok(open_file(file)?.file.read_at(room(buffer, size)?, offset)? as i64))
}

/// Writes at the file's offset, or at the end with O_APPEND, and moves the offset. Returns how many bytes,
/// which is fewer than `size` only if there is no more room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_file_write(
    file: *mut CFile,
    data: *const c_void,
    size: usize,
) -> i64 {
    answer(|| Ok((&open_file(file)?.file).write(input(data, size)?)? as i64))
}

/// Writes at an offset, or at the end with O_APPEND. The file's own offset doesn't move.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_file_pwrite(
    file: *mut CFile,
    data: *const c_void,
    size: usize,
    offset: u64,
) -> i64 {
    answer(|| Ok(open_file(file)?.file.write_at(input(data, size)?, offset)? as i64))
}

/// Moves the file's offset, and returns it: lseek with SEEK_SET, SEEK_CUR or SEEK_END, or with SEEK_DATA or
/// SEEK_HOLE to what begins at the given offset or behind it: content that is stored, or a hole, which reads
/// as zeros. ENXIO if there is none before the end, where each file has a hole.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_file_seek(file: *mut CFile, offset: i64, whence: c_int) -> i64 {
    answer(|| {
        let file = &*open_file(file)?;
        let from_start = || {
            let offset = u64::try_from(offset);
            offset.map_err(|_| Failure::new(Errno::EINVAL, "the offset is negative"))
        };
        let to = match whence {
            libc::SEEK_SET => SeekFrom::Start(from_start()?),
            libc::SEEK_CUR => SeekFrom::Current(offset),
            libc::SEEK_END => SeekFrom::End(offset),
            libc::SEEK_DATA => SeekFrom::Start(file.file.find(Extent::Data(from_start()?))?),
            libc::SEEK_HOLE => SeekFrom::Start(file.file.find(Extent::Hole(from_start()?))?),
            _ => return Err(Failure::new(Errno::EINVAL, "no such way to seek")),
        };
        // An offset that was sought fits.
        Ok((&file.file).seek(to)? as i64)
    })
}

/// Says what an open file is: fstat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_file_stat(file: *mut CFile, stat: *mut CStat) -> c_int {
    done(|| put(stat, CStat::of(&open_file(file)?.file.metadata()?)))
}

/// Cuts a file off, or extends it by a hole: ftruncate.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_file_truncate(file: *mut CFile, size: u64) -> c_int {
    done(|| Ok(open_file(file)?.file.set_len(size)?))
}

/// Changes the space behind a range: fallocate, with the FALLOC_FL_ flags of Linux.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_file_fallocate(
    file: *mut CFile,
    mode: c_int,
    offset: u64,
    length: u64,
) -> c_int {
    use libc::{FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE, FALLOC_FL_KEEP_SIZE};
    use libc::{FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE};
    done(|| {
        let keep_size = mode & FALLOC_FL_KEEP_SIZE != 0;
        let mode = match mode & !FALLOC_FL_KEEP_SIZE {
            0 => FallocateMode::Allocate { keep_size },
            FALLOC_FL_PUNCH_HOLE if keep_size => FallocateMode::PunchHole,
            FALLOC_FL_ZERO_RANGE => FallocateMode::ZeroRange { keep_size },
            FALLOC_FL_COLLAPSE_RANGE if !keep_size => FallocateMode::CollapseRange,
            FALLOC_FL_INSERT_RANGE if !keep_size => FallocateMode::InsertRange,
            _ => return Err(Failure::new(Errno::EOPNOTSUPP, "no such mode of fallocate")),
        };
        Ok(open_file(file)?.file.fallocate(mode, offset, length)?)
    })
}

/// Returns when content and attributes are durable: fsync.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_file_sync(file: *mut CFile) -> c_int {
    done(|| Ok(open_file(file)?.file.sync_all()?))
}

/// Returns when the content is durable: fdatasync.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_file_sync_data(file: *mut CFile) -> c_int {
    done(|| Ok(open_file(file)?.file.sync_data()?))
}
