//! The C interface of librbd and librados, found when it is first asked for: nothing is linked with them.
//!
//! # Reference
//!
//! `rbd/librbd.h` and `rados/librados.h` of Ceph 16, whose interface later releases keep.
#![allow(unsafe_code, reason = "functions of a C library")]

use drystone_sync::OnceLock;
use std::ffi::{c_char, c_int, c_void};

/// A cluster, a pool, an image, or a request that is under way.
pub(crate) type Handle = *mut c_void;
pub(crate) type RequestCallback = extern "C" fn(Handle, *mut c_void);
pub(crate) type WatchCallback = extern "C" fn(*mut c_void);

/// A client that watches an image, as `rbd_image_watcher_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawWatcher {
    pub _address: *mut c_char,
    pub id: i64,
    pub _cookie: u64,
}

/// A client that acknowledged a notify, as `notify_ack_t`.
#[repr(C)]
pub(crate) struct RawAnswer {
    pub client: u64,
    pub _cookie: u64,
    pub _payload: *mut c_char,
    pub _payload_length: u64,
}

pub(crate) const LOCK_EXCLUSIVE: c_int = 0;
pub(crate) const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;
/// Durable before the answer, whatever is cached.
pub(crate) const FLAG_DURABLE: c_int = 0x80;

macro_rules! library {
    ($($name:ident($($type:ty),*) -> $result:ty;)*) => {
        pub(crate) struct Library {
            $(pub $name: unsafe extern "C" fn($($type),*) -> $result,)*
        }

        impl Library {
            fn load() -> Result<Library, String> {
                // SAFETY: what runs when the library is loaded is Ceph's, as with any program linked with it.
                let file = unsafe { libloading::Library::new(FILE_NAME) };
                let file = file.map_err(|error| {
                    format!("librbd is needed, of the package librbd1 or librbd: {error}")
                })?;
                let library = Library {
                    // SAFETY: the types are those of the headers.
                    $($name: *unsafe { file.get(concat!(stringify!($name), "\0").as_bytes()) }
                        .map_err(|error| format!("librbd of Ceph 16 or newer is needed: {error}"))?,)*
                };
                // Its functions and threads must stay.
                std::mem::forget(file);
                Ok(library)
            }
        }
    };
}

library! {
    rados_create(*mut Handle, *const c_char) -> c_int;
    rados_conf_read_file(Handle, *const c_char) -> c_int;
    rados_conf_parse_env(Handle, *const c_char) -> c_int;
    rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
    rados_connect(Handle) -> c_int;
    rados_shutdown(Handle) -> ();
    rados_getaddrs(Handle, *mut *mut c_char) -> c_int;
    rados_blocklist_add(Handle, *mut c_char, u32) -> c_int;
    rados_buffer_free(*mut c_char) -> ();
    rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
    rados_ioctx_set_namespace(Handle, *const c_char) -> ();
    rados_ioctx_destroy(Handle) -> ();
    rados_notify2(Handle, *const c_char, *const c_char, c_int, u64, *mut *mut c_char, *mut usize) -> c_int;
    rados_decode_notify_response(
        *mut c_char, usize, *mut *mut RawAnswer, *mut usize, *mut *mut c_void, *mut usize
    ) -> c_int;
    rados_free_notify_response(*mut RawAnswer, usize, *mut c_void) -> ();
    rados_list_lockers(
        Handle, *const c_char, *const c_char, *mut c_int, *mut c_char, *mut usize,
        *mut c_char, *mut usize, *mut c_char, *mut usize, *mut c_char, *mut usize
    ) -> isize;
    rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd_close(Handle) -> c_int;
    rbd_get_size(Handle, *mut u64) -> c_int;
    rbd_get_features(Handle, *mut u64) -> c_int;
    rbd_get_id(Handle, *mut c_char, usize) -> c_int;
    rbd_snap_create(Handle, *const c_char) -> c_int;
    rbd_lock_acquire(Handle, c_int) -> c_int;
    rbd_watchers_list(Handle, *mut RawWatcher, *mut usize) -> c_int;
    rbd_watchers_list_cleanup(*mut RawWatcher, usize) -> ();
    rbd_quiesce_watch(Handle, WatchCallback, WatchCallback, *mut c_void, *mut u64) -> c_int;
    rbd_quiesce_complete(Handle, u64, c_int) -> ();
    rbd_quiesce_unwatch(Handle, u64) -> c_int;
    rbd_aio_create_completion(*mut c_void, RequestCallback, *mut Handle) -> c_int;
    rbd_aio_get_return_value(Handle) -> isize;
    rbd_aio_release(Handle) -> ();
    rbd_aio_read(Handle, u64, usize, *mut c_char, Handle) -> c_int;
    rbd_aio_write2(Handle, u64, usize, *const c_char, Handle, c_int) -> c_int;
    rbd_aio_write_zeroes(Handle, u64, usize, Handle, c_int, c_int) -> c_int;
    rbd_aio_discard(Handle, u64, u64, Handle) -> c_int;
    rbd_aio_flush(Handle, Handle) -> c_int;
}

const FILE_NAME: &str = "librbd.so.1";

static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();

impl Library {
    /// The library, loaded with the first call.
    pub fn get() -> Result<&'static Library, &'static str> {
        LIBRARY.get_or_init(Library::load).as_ref().map_err(String::as_str)
    }
}
