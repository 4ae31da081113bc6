//! An image that is open, as librbd has it: the only place with its pointers.
#![allow(unsafe_code, reason = "functions of a C library")]

mod lock;
mod snapshots;
mod values;

pub(crate) use lock::LockOwner;

use crate::RbdAddress;
use crate::library::{FLAG_DURABLE, Handle, Library};
use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};
use std::{fmt, io};
use values::{check, error, text, told};

/// An image of a cluster, or a snapshot of it.
#[derive(Debug)]
pub(crate) struct Image {
    library: &'static Library,
    cluster: Handle,
    pool: Handle,
    image: Handle,
}

// SAFETY: the functions of librados and librbd may be called from any thread.
unsafe impl Send for Image {}
// SAFETY: and from several at once.
unsafe impl Sync for Image {}

impl fmt::Debug for Library {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("librbd")
    }
}

/// A request, without the bytes that it reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Read,
    Write,
    WriteDurably,
    Zero,
    Discard,
    Flush,
}

/// A request that is under way.
struct Call<F> {
    library: &'static Library,
    kind: RequestKind,
    /// What is read or written: librbd has a pointer to it.
    data: Vec<u8>,
    done: F,
}

impl Image {
    /// Connects to the cluster.
    pub fn connect(address: &RbdAddress) -> io::Result<Image> {
        let library = Library::get().map_err(io::Error::other)?;
        let mut image = Image { library, cluster: null_mut(), pool: null_mut(), image: null_mut() };
        let user = address.user.as_deref().map(text).transpose()?;
        let user = user.as_ref().map_or(null(), |user| user.as_ptr());
        // SAFETY: the pointers are to strings that end with a zero, and to a place for the handle.
        check(unsafe { (library.rados_create)(&mut image.cluster, user) })?;
        image.configure(address)?;
        let cluster = image.cluster;
        // SAFETY: the handle was made above.
        check(unsafe { (library.rados_connect)(cluster) })
            .map_err(|error| told(&error, "can't connect to the cluster"))?;
        let pool = text(&address.pool)?;
        // SAFETY: as above.
        check(unsafe { (library.rados_ioctx_create)(cluster, pool.as_ptr(), &mut image.pool) })
            .map_err(|error| told(&error, &format!("the pool '{}'", address.pool)))?;
        let namespace = text(&address.namespace)?;
        // SAFETY: as above.
        unsafe { (library.rados_ioctx_set_namespace)(image.pool, namespace.as_ptr()) };
        Ok(image)
    }

    fn configure(&self, address: &RbdAddress) -> io::Result<()> {
        let library = self.library;
        let path = address.configuration.as_ref().and_then(|path| path.to_str());
        let named = path.map(text).transpose()?;
        let named = named.as_ref().map_or(null(), |path| path.as_ptr());
        // SAFETY: the pointer is to a string that ends with a zero, or null.
        check(unsafe { (library.rados_conf_read_file)(self.cluster, named) }).map_err(|error| {
            let path =
                path.unwrap_or("ceph.conf (conf=PATH, CEPH_CONF or /etc/ceph/ceph.conf names it)");
            told(&error, path)
        })?;
        // SAFETY: null stands for the usual variable.
        check(unsafe { (library.rados_conf_parse_env)(self.cluster, null()) })?;
        let seconds = address.timeout.as_secs().to_string();
        for (name, value) in [
            // The engine has caches of its own, and the answer to a write means that it is durable.
            ("rbd_cache", "false"),
            ("rbd_blocklist_on_break_lock", "true"),
            ("client_mount_timeout", &seconds),
            ("rados_mon_op_timeout", &seconds),
        ] {
            self.set(name, value)?;
        }
        self.limit_waiting(&seconds)
    }

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        let (name_text, value) = (text(name)?, text(value)?);
        let set = self.library.rados_conf_set;
        // SAFETY: the pointers are to strings that end with a zero.
        check(unsafe { set(self.cluster, name_text.as_ptr(), value.as_ptr()) })
            .map_err(|error| told(&error, name))?;
        Ok(())
    }

    /// Sets the time limit of librados for every request to an OSD; "0" for none. It is for calls that wait for
    /// their requests, such as opening an image. Once the image is in use librados must not give up a request: it may
    /// have been carried out, or may be later.
    fn limit_waiting(&self, seconds: &str) -> io::Result<()> {
        self.set("rados_osd_op_timeout", seconds)
    }

    /// Opens the image.
    pub fn open(&mut self, address: &RbdAddress, is_writable: bool) -> io::Result<()> {
        let name = text(&address.image)?;
        let snapshot = address.snapshot.as_deref().map(text).transpose()?;
        let snapshot = snapshot.as_ref().map_or(null(), |snapshot| snapshot.as_ptr());
        let open = match is_writable {
            true => self.library.rbd_open,
            false => self.library.rbd_open_read_only,
        };
        // SAFETY: the pool is open, the pointers are to strings that end with a zero and to a place for
        // the handle.
        let opened = check(unsafe { open(self.pool, name.as_ptr(), &mut self.image, snapshot) });
        if let Err(error) = opened {
            // What it holds isn't a handle then.
            self.image = null_mut();
            return Err(match error.kind() {
                io::ErrorKind::NotFound => told(&error, "no such image or snapshot"),
                _ => error,
            });
        }
        Ok(())
    }

    /// Says that the image is in use from now on.
    pub fn begin(&self) -> io::Result<()> {
        self.limit_waiting("0")
    }

    pub fn size_bytes(&self) -> io::Result<u64> {
        let mut size = 0;
        // SAFETY: the image is open.
        check(unsafe { (self.library.rbd_get_size)(self.image, &mut size) })?;
        Ok(size)
    }

    /// Begins a request; `done` is called with its result, by a thread of librbd or this one. A read gives its
    /// bytes.
    pub fn begin_request<F>(
        &self,
        kind: RequestKind,
        offset: u64,
        length: usize,
        data: Vec<u8>,
        done: F,
    ) where
        F: FnOnce(io::Result<Vec<u8>>) + Send + 'static,
    {
        let library = self.library;
        let data = if kind == RequestKind::Read { vec![0; length] } else { data };
        let is_write = matches!(kind, RequestKind::Write | RequestKind::WriteDurably);
        assert!(!is_write || data.len() == length, "librbd reads as much as it is told");
        let call = Box::into_raw(Box::new(Call { library, kind, data, done }));
        // SAFETY: only this thread has the box until the request is begun. Its bytes stay where they are.
        let bytes = unsafe { (*call).data.as_mut_ptr().cast::<c_char>() };
        let mut request = null_mut();
        let create = library.rbd_aio_create_completion;
        // SAFETY: the callback gets the box back.
        let created = check(unsafe { create(call.cast(), answered::<F>, &mut request) });
        let begun = created.and_then(|_| {
            let image = self.image;
            // SAFETY: the image is open, and the bytes are there until the callback is called.
            check(unsafe {
                match kind {
                    RequestKind::Read => {
                        (library.rbd_aio_read)(image, offset, length, bytes, request)
                    }
                    RequestKind::Write => {
                        (library.rbd_aio_write2)(image, offset, length, bytes, request, 0)
                    }
                    RequestKind::WriteDurably => (library.rbd_aio_write2)(
                        image,
                        offset,
                        length,
                        bytes,
                        request,
                        FLAG_DURABLE,
                    ),
                    RequestKind::Zero => {
                        (library.rbd_aio_write_zeroes)(image, offset, length, request, 0, 0)
                    }
                    RequestKind::Discard => {
                        (library.rbd_aio_discard)(image, offset, length as u64, request)
                    }
                    RequestKind::Flush => (library.rbd_aio_flush)(image, request),
                }
            })
        });
        if let Err(error) = begun {
            // SAFETY: what wasn't begun has no callback, so the box is still here alone.
            let call = unsafe { Box::from_raw(call) };
            if !request.is_null() {
                // SAFETY: as above.
                unsafe { (library.rbd_aio_release)(request) };
            }
            (call.done)(Err(error));
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: each handle is closed once, in the reverse order, if it was opened.
        unsafe {
            if !self.image.is_null() {
                (self.library.rbd_close)(self.image);
            }
            if !self.pool.is_null() {
                (self.library.rados_ioctx_destroy)(self.pool);
            }
            if !self.cluster.is_null() {
                (self.library.rados_shutdown)(self.cluster);
            }
        }
    }
}

/// Called by librbd with the result of a request.
extern "C" fn answered<F: FnOnce(io::Result<Vec<u8>>)>(request: Handle, call: *mut c_void) {
    // SAFETY: this is the box that the request was begun with, and nobody else has it.
    let call = unsafe { Box::from_raw(call.cast::<Call<F>>()) };
    // SAFETY: the request is answered, and isn't used after this.
    let result = unsafe {
        let result = (call.library.rbd_aio_get_return_value)(request);
        (call.library.rbd_aio_release)(request);
        result
    };
    let Call { kind, data, done, .. } = *call;
    done(match usize::try_from(result) {
        Err(_) => Err(error(result as i64)),
        Ok(count) if kind == RequestKind::Read && count != data.len() => {
            let problem = format!("{count} bytes instead of {}", data.len());
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem))
        }
        Ok(_) => Ok(data),
    });
}
