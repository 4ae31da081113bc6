//! Images: making, opening, checking and closing them.
#![allow(
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    clippy::missing_safety_doc,
    reason = "functions for C, as the crate's header says"
)]

use crate::arguments::{bytes, path, put, values};
use crate::failure::{Failure, answer, done};
use crate::handles;
use drystone::fsck::Severity;
use drystone::nilfs2_check::IssueSeverity;
use drystone::vfs::Errno;
use drystone::{CreateOptions, FileSystemKind, Fs, Image};
use drystone_sync::Arc;
use std::ffi::{CString, c_char, c_int, c_void};

/// For drystone_open: changes nothing, not even to replay the journal, which is replayed in memory.
pub const DRYSTONE_READ_ONLY: u32 = 1;
/// For drystone_open, with DRYSTONE_READ_ONLY: the journal isn't replayed at all.
pub const DRYSTONE_IGNORE_JOURNAL: u32 = 2;
/// For drystone_mkfs: replaces what the file or device holds.
pub const DRYSTONE_OVERWRITE: u32 = 1;

/// Groups of one user in Linux (NGROUPS_MAX).
const GROUPS_MAX: usize = 65536;

/// An open image, with the rights of a user.
pub struct CImage {
    _private: (),
}

/// What an image's handle stands for.
pub(crate) struct Session {
    pub fs: Fs<'static>,
    image: Arc<Image>,
    /// Closing it closes the image.
    is_owner: bool,
}

pub(crate) fn session(image: *mut CImage) -> Result<Arc<Session>, Failure> {
    handles::get(image)
}

/// The version of the library, as in "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn drystone_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Opens an image: a file, a block device, a partition ("disk.img#2") or a checkpoint of NILFS2
/// ("disk.img@12"). An image that wasn't closed is recovered. All rights are those of root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_open(name: *const c_char, flags: u32) -> *mut CImage {
    answer(|| {
        let name = path(name)?;
        expect_known(flags, DRYSTONE_READ_ONLY | DRYSTONE_IGNORE_JOURNAL)?;
        let options = Image::options().read_only(flags & DRYSTONE_READ_ONLY != 0);
        let options = options.ignore_journal(flags & DRYSTONE_IGNORE_JOURNAL != 0);
        let image = Arc::new(options.open(name)?);
        let fs = image.shared_fs().with_umask(0);
        Ok(handles::insert(Session { fs, image, is_owner: true }))
    })
}

/// Another handle of the same image, for which permissions are checked as for this user. It is closed by
/// itself, before the one that it was made from.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_as_user(
    image: *mut CImage,
    user: u32,
    group: u32,
    groups: *const u32,
    groups_count: usize,
) -> *mut CImage {
    answer(|| {
        let session = session(image)?;
        // What a call that failed returns, such as getgroups(2), is no count.
        if groups_count > GROUPS_MAX {
            let message = format!("{groups_count} groups are more than a user can have");
            return Err(Failure::new(Errno::EINVAL, message));
        }
        let groups = values(groups, groups_count)?;
        let fs = session.fs.as_user(user, group, groups).with_umask(0);
        Ok(handles::insert(Session { fs, image: Arc::clone(&session.image), is_owner: false }))
    })
}

/// Returns when everything is durable.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_sync(image: *mut CImage) -> c_int {
    done(|| Ok(session(image)?.fs.sync()?))
}

/// Makes everything durable, marks the image clean and closes it. Fails with EBUSY, and leaves the image
/// open, while a call runs, while a file, a listing or a walk that was opened with this handle is open, and, if the
/// handle is that of drystone_open, while one of drystone_as_user is. After any other error the image is closed,
/// and is recovered when it is opened the next time.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_close(image: *mut CImage) -> c_int {
    done(|| {
        let closing = handles::remove(image, |session: Arc<Session>| {
            let session = Arc::try_unwrap(session).map_err(|session| (session, busy()))?;
            let Session { fs, image, is_owner } = session;
            if !is_owner {
                return Ok(None);
            }
            Arc::try_unwrap(image)
                .map(|image| Some((fs.clone(), image)))
                .map_err(|image| (Arc::new(Session { fs, image, is_owner }), busy()))
        })?;
        let Some((fs, image)) = closing else { return Ok(()) };
        drop(fs);
        Ok(image.close()?)
    })
}

fn busy() -> Failure {
    Failure::new(Errno::EBUSY, "cannot close the image: handles that were made from it are open")
}

/// Space of an image.
#[repr(C)]
pub struct CStatistics {
    /// Bytes in a block.
    pub block_size: u32,
    /// Bytes in the longest name.
    pub name_length_max: u32,
    /// Blocks that files may use.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Blocks that are free for users without privileges.
    pub blocks_available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

/// Says how much room there is: statvfs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_statistics(
    image: *mut CImage,
    statistics: *mut CStatistics,
) -> c_int {
    done(|| {
        let found = session(image)?.fs.statistics()?;
        let value = CStatistics {
            block_size: found.block_size,
            name_length_max: found.name_length_max,
            blocks: found.blocks,
            blocks_free: found.blocks_free,
            blocks_available: found.blocks_available,
            inodes: found.inodes,
            inodes_free: found.inodes_free,
        };
        put(statistics, value)
    })
}

/// Makes an image of this size in a file or on a device, which must be empty or new unless
/// DRYSTONE_OVERWRITE is among the flags. `type` is "ext4" or "nilfs2"; NULL is "ext4". `label` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_mkfs(
    name: *const c_char,
    size_bytes: u64,
    r#type: *const c_char,
    label: *const c_char,
    flags: u32,
) -> c_int {
    done(|| {
        let name = path(name)?;
        expect_known(flags, DRYSTONE_OVERWRITE)?;
        let mut options = CreateOptions::new(size_bytes).overwrite(flags & DRYSTONE_OVERWRITE != 0);
        if !r#type.is_null() {
            options = options.kind(match bytes(r#type)? {
                b"ext4" => FileSystemKind::Ext4,
                b"nilfs2" => FileSystemKind::Nilfs2,
                other => {
                    let other = String::from_utf8_lossy(other);
                    let message = format!("no type '{other}': there are ext4 and nilfs2");
                    return Err(Failure::new(Errno::EINVAL, message));
                }
            });
        }
        if !label.is_null() {
            let label = std::str::from_utf8(bytes(label)?);
            let label =
                label.map_err(|_| Failure::new(Errno::EINVAL, "the label isn't UTF-8 text"))?;
            options = options.label(label);
        }
        Ok(Image::create(name, &options)?.close()?)
    })
}

/// Is told of a problem: a sentence, whether it is an error (1) or a warning (0), and the `data` that was
/// passed with the function.
pub type CProblem =
    Option<unsafe extern "C" fn(message: *const c_char, is_error: c_int, data: *mut c_void)>;

/// Looks for errors in an image that isn't open, and changes nothing. Returns how many errors there are.
/// `problem` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_check(
    name: *const c_char,
    problem: CProblem,
    data: *mut c_void,
) -> i64 {
    answer(|| {
        let name = path(name)?;
        let tell = |text: String, is_error: bool| {
            let text = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
            if let Some(problem) = problem {
                problem(text.as_ptr(), c_int::from(is_error), data);
            }
        };
        let cannot = |error: drystone::Error| {
            let message = format!("cannot check '{}': {}", name.display(), error.cause());
            Failure::new(error.errno(), message)
        };
        let kind = drystone::kind_of(name).map_err(|error| cannot(error.into()))?;
        let errors = if kind == Some(FileSystemKind::Nilfs2) {
            let report = drystone::check_nilfs2(name, &Default::default()).map_err(cannot)?;
            for found in &report.problems {
                tell(found.to_string(), found.severity() == IssueSeverity::Error);
            }
            report.errors
        } else {
            let report = drystone::check_image(name, &Default::default(), &mut |_| {});
            let report = report.map_err(cannot)?;
            for found in &report.problems {
                tell(found.to_string(), found.severity() == Severity::Error);
            }
            report.errors
        };
        Ok(i64::try_from(errors).unwrap_or(i64::MAX))
    })
}

fn expect_known(flags: u32, known: u32) -> Result<(), Failure> {
    match flags & !known {
        0 => Ok(()),
        unknown => Err(Failure::new(Errno::EINVAL, format!("unknown flags {unknown:#x}"))),
    }
}
