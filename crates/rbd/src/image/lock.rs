//! Who has an image's lock and who watches it, and shutting clients out.
#![allow(unsafe_code, reason = "functions of a C library")]

use super::Image;
use super::values::{ERANGE, check, not_permitted, string, text, told};
use crate::library::{FEATURE_EXCLUSIVE_LOCK, LOCK_EXCLUSIVE, RawWatcher};
use std::ffi::{CStr, CString, c_char};
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

impl Image {
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
}
