//! An image that is open, as librbd has it: the only place with its pointers.
#![allow(unsafe_code, reason = "functions of a C library")]

use crate::RbdAddress;
use crate::library::{
    FEATURE_EXCLUSIVE_LOCK, FLAG_DURABLE, Handle, LOCK_EXCLUSIVE, Library, RawWatcher,
};
use crate::notes::{SnapshotNote, SnapshotNotes};
use drystone_sync::Arc;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::{fmt, io};

/// How long a client whose lock was broken stays on the blocklist: a year, long after it has ended.
const BLOCKLIST_SECONDS: u32 = 365 * 24 * 60 * 60;
/// How long a client may take to acknowledge a notify.
const NOTIFY_TIMEOUT_MS: u64 = 5000;
/// The largest identifier of an image.
const IDENTIFIER_BYTES: usize = 256;
/// Room for the name, the address or the cookie of a lock's owner; none of them is as long.
const OWNER_BYTES: usize = 1024;
/// What librbd calls the lock.
const LOCK_NAME: &CStr = c"rbd_lock";
/// How the cookies of locks begin that librbd and the kernel take by themselves; what follows names a watch.
const COOKIE_START: &str = "auto ";

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

/// The client that has the lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LockOwner {
    /// As `client.4123`.
    pub client: String,
    /// Which of its locks it is.
    pub cookie: String,
    /// The client's address, as in the blocklist.
    pub address: String,
    /// Whether the lock was set by `rbd lock add`, for whatever reason somebody had.
    pub is_advisory: bool,
}

impl LockOwner {
    /// The client's number.
    pub fn number(&self) -> io::Result<u64> {
        let number = self.client.strip_prefix("client.").and_then(|number| number.parse().ok());
        number.ok_or_else(|| {
            let problem = format!("the lock is of '{}', which isn't a client", self.client);
            io::Error::new(io::ErrorKind::InvalidData, problem)
        })
    }
}

impl fmt::Display for LockOwner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at {}", self.client, self.address)
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
            let path = path.unwrap_or("ceph.conf, in /etc/ceph or where CEPH_CONF says");
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

    pub fn has_exclusive_lock(&self) -> io::Result<bool> {
        let mut features = 0;
        // SAFETY: the image is open.
        check(unsafe { (self.library.rbd_get_features)(self.image, &mut features) })?;
        Ok(features & FEATURE_EXCLUSIVE_LOCK != 0)
    }

    /// Takes the lock, and keeps it until the image is closed. If its owner no longer watches the image, librbd
    /// breaks the lock and puts the owner on the blocklist.
    pub fn lock(&self) -> io::Result<()> {
        // SAFETY: the image is open.
        let locked = check(unsafe { (self.library.rbd_lock_acquire)(self.image, LOCK_EXCLUSIVE) });
        match locked {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                let problem = "the image has an advisory lock: 'rbd lock list' shows it, and \
                               'rbd lock remove' removes it if it is out of date";
                Err(io::Error::new(error.kind(), problem))
            }
            locked => locked.map(drop).map_err(|error| not_permitted(&error, "can't lock it")),
        }
    }

    /// The client that has the lock, or the first one of those that share it.
    pub fn lock_owner(&self) -> io::Result<Option<LockOwner>> {
        let header = self.header()?;
        let mut exclusive = 0;
        // There is room for what one client says, which the lock is for.
        let (mut tag, mut client) = ([0_u8; OWNER_BYTES], [0_u8; OWNER_BYTES]);
        let (mut cookie, mut address) = ([0_u8; OWNER_BYTES], [0_u8; OWNER_BYTES]);
        let mut lengths = [OWNER_BYTES; 4];
        let [tag_length, client_length, cookie_length, address_length] = &mut lengths;
        // SAFETY: the pool is open, the names end with a zero, and there is as much room as said.
        let found = unsafe {
            (self.library.rados_list_lockers)(
                self.pool,
                header.as_ptr(),
                LOCK_NAME.as_ptr(),
                &mut exclusive,
                tag.as_mut_ptr().cast(),
                tag_length,
                client.as_mut_ptr().cast(),
                client_length,
                cookie.as_mut_ptr().cast(),
                cookie_length,
                address.as_mut_ptr().cast(),
                address_length,
            )
        };
        let found = check(found as i64).map_err(|error| told(&error, "can't see who locks it"))?;
        let first = |bytes: &[u8]| {
            let text = CStr::from_bytes_until_nul(bytes).unwrap_or_default();
            text.to_string_lossy().into_owned()
        };
        // Monitors keep a list of addresses without the version of the protocol.
        let address = first(&address);
        let address = address.rsplit_once("v1:").map_or(address.as_str(), |(_, address)| address);
        let cookie = first(&cookie);
        Ok((found > 0).then(|| LockOwner {
            client: first(&client),
            is_advisory: exclusive == 0 || !cookie.starts_with(COOKIE_START),
            cookie,
            address: address.to_owned(),
        }))
    }

    /// The numbers of the clients that watch the image, this one too.
    pub fn watchers(&self) -> io::Result<Vec<u64>> {
        let library = self.library;
        let mut count = 16;
        loop {
            let mut found = vec![RawWatcher { _address: null_mut(), id: 0, _cookie: 0 }; count];
            let list = library.rbd_watchers_list;
            // SAFETY: there is room for as many as `count` says.
            match check(unsafe { list(self.image, found.as_mut_ptr(), &mut count) }) {
                // It tells how many there are.
                Err(error) if error.raw_os_error() == Some(ERANGE) && count > found.len() => {}
                Err(error) => return Err(told(&error, "can't list those who use it")),
                Ok(_) => {
                    found.truncate(count);
                    let watchers = found.iter().map(|watcher| watcher.id.cast_unsigned()).collect();
                    // SAFETY: these are what librbd has filled in, freed once.
                    unsafe { (library.rbd_watchers_list_cleanup)(found.as_mut_ptr(), count) };
                    return Ok(watchers);
                }
            }
        }
    }

    /// The object that clients watch, and that has the lock.
    fn header(&self) -> io::Result<CString> {
        let mut identifier = [0; IDENTIFIER_BYTES];
        let room = identifier.as_mut_ptr().cast::<c_char>();
        // SAFETY: the image is open, and there is as much room as said.
        check(unsafe { (self.library.rbd_get_id)(self.image, room, IDENTIFIER_BYTES) })?;
        // SAFETY: librbd has put a string there.
        text(&format!("rbd_header.{}", unsafe { string(room) }))
    }

    /// The numbers of the clients that acknowledge a notify. It is an empty one, on which all that watch the image
    /// read its header again.
    pub fn answering(&self) -> io::Result<Vec<u64>> {
        let library = self.library;
        let header = self.header()?;
        let (mut reply, mut length) = (null_mut(), 0);
        // SAFETY: the notify has no bytes; the reply's place and length are filled in.
        let notified = check(unsafe {
            (library.rados_notify2)(
                self.pool,
                header.as_ptr(),
                null(),
                0,
                NOTIFY_TIMEOUT_MS,
                &mut reply,
                &mut length,
            )
        });
        match notified {
            // Some didn't acknowledge it; the reply says which did.
            Err(error) if error.kind() != io::ErrorKind::TimedOut || reply.is_null() => {
                return Err(told(&error, "can't ask those who use it"));
            }
            _ => {}
        }
        let (mut answers, mut answer_count) = (null_mut(), 0);
        let (mut silent, mut silent_count) = (null_mut(), 0);
        // SAFETY: the reply is what came above, and the other places are filled in.
        let decoded = check(unsafe {
            (library.rados_decode_notify_response)(
                reply,
                length,
                &mut answers,
                &mut answer_count,
                &mut silent,
                &mut silent_count,
            )
        });
        // SAFETY: it isn't used any more.
        unsafe { (library.rados_buffer_free)(reply) };
        decoded?;
        let mut all = Vec::new();
        for index in 0..answer_count {
            // SAFETY: there are as many as was said.
            let answer = unsafe { &*answers.add(index) };
            all.push(answer.client);
        }
        // SAFETY: they are what was decoded, freed once.
        unsafe { (library.rados_free_notify_response)(answers, answer_count, silent) };
        Ok(all)
    }

    /// Puts this client on the cluster's blocklist: what it has sent and wasn't carried out never will be.
    pub fn blocklist_self(&self) -> io::Result<()> {
        let mut addresses = null_mut();
        // SAFETY: the cluster is connected.
        check(unsafe { (self.library.rados_getaddrs)(self.cluster, &mut addresses) })?;
        // SAFETY: librados has put a string there, which is freed once.
        let own = unsafe { string(addresses) };
        // SAFETY: as above.
        unsafe { (self.library.rados_buffer_free)(addresses) };
        self.blocklist(&own)
    }

    /// Puts a client on the cluster's blocklist, by its address, which no other client gets.
    pub fn blocklist(&self, address: &str) -> io::Result<()> {
        let address = text(address)?.into_raw();
        let add = self.library.rados_blocklist_add;
        // SAFETY: the string ends with a zero, and is its own.
        let added = check(unsafe { add(self.cluster, address, BLOCKLIST_SECONDS) });
        // SAFETY: it came from a string above.
        drop(unsafe { CString::from_raw(address) });
        added.map(drop).map_err(|error| not_permitted(&error, "can't blocklist a client"))
    }

    /// Makes a snapshot. If another client has the lock, librbd asks it to.
    pub fn create_snapshot(&self, name: &str) -> io::Result<()> {
        let name = text(name)?;
        // SAFETY: the image is open, the name ends with a zero.
        check(unsafe { (self.library.rbd_snap_create)(self.image, name.as_ptr()) })?;
        Ok(())
    }

    /// Has snapshots noted before and after they are made, until the number that is returned is given to
    /// [`unwatch_snapshots`](Self::unwatch_snapshots).
    pub fn watch_snapshots(&self, notes: &Arc<SnapshotNotes>) -> io::Result<u64> {
        let mut number = 0;
        let watch = self.library.rbd_quiesce_watch;
        // librbd has a reference of its own. It stays: a call may be under way when the watch ends.
        let notes = Arc::into_raw(Arc::clone(notes)).cast_mut().cast();
        // SAFETY: the image is open, and the notes stay.
        check(unsafe { watch(self.image, before_snapshot, after_snapshot, notes, &mut number) })?;
        Ok(number)
    }

    /// Says whether a snapshot may be made now.
    pub fn snapshot_may_begin(&self, watch: u64, may_begin: bool) {
        let result = if may_begin { 0 } else { -EIO };
        // SAFETY: the image is open.
        unsafe { (self.library.rbd_quiesce_complete)(self.image, watch, result) };
    }

    /// Ends a watch.
    pub fn unwatch_snapshots(&self, watch: u64) {
        // SAFETY: the image is open. It fails only if there is no such watch.
        unsafe { (self.library.rbd_quiesce_unwatch)(self.image, watch) };
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

/// Called by librbd before a snapshot is made.
extern "C" fn before_snapshot(notes: *mut c_void) {
    // SAFETY: this is what the watch was made with, which stays.
    unsafe { &*notes.cast::<SnapshotNotes>() }.add(SnapshotNote::Before);
}

/// Called by librbd when it is made, or has failed.
extern "C" fn after_snapshot(notes: *mut c_void) {
    // SAFETY: as above.
    unsafe { &*notes.cast::<SnapshotNotes>() }.add(SnapshotNote::After);
}

const EIO: c_int = 5;
const ERANGE: c_int = 34;
/// What a cluster tells a client that is on its blocklist, as `ESHUTDOWN` of Linux.
const BLOCKLISTED: c_int = 108;

fn check(result: impl Into<i64>) -> io::Result<i64> {
    let result = result.into();
    if result < 0 { Err(error(result)) } else { Ok(result) }
}

/// An error of librbd or librados, which return a negated errno.
fn error(result: i64) -> io::Error {
    match c_int::try_from(-result).unwrap_or(c_int::MAX) {
        BLOCKLISTED => io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "this client is on the cluster's blocklist: its lock was broken by another one",
        ),
        errno => io::Error::from_raw_os_error(errno),
    }
}

/// An error with what it is about.
fn told(error: &io::Error, about: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{about}: {error}"))
}

/// The same, with what to do if the user may not.
fn not_permitted(error: &io::Error, about: &str) -> io::Error {
    let error = told(error, about);
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            told(&error, "the user needs the capability 'profile rbd' of monitors and of the pool")
        }
        _ => error,
    }
}

fn text(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// A copy of a string.
///
/// # Safety
///
/// The pointer is to a string that ends with a zero.
unsafe fn string(text: *const c_char) -> String {
    // SAFETY: as said.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
