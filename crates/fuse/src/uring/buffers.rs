//! The memory in which requests and answers are exchanged.

use crate::wire::ring::EntryHeaders;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

/// Bytes between the headers of an entry and its payload: payloads begin at a page.
const HEADERS_LENGTH: usize = 4096;

const _: () = assert!(size_of::<EntryHeaders>() <= HEADERS_LENGTH);

/// A buffer as the kernel's interfaces describe it (`struct iovec`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    address: *mut c_void,
    length: usize,
}

/// The buffers of all entries of a ring, in one mapping whose pages exist once they are used.
pub(super) struct Entries {
    base: NonNull<c_void>,
    count: usize,
    payload_length: usize,
    /// Two per entry, which a `REGISTER` command points to.
    described: Vec<[Buffer; 2]>,
    /// The kernel may have some, and write to them.
    are_lent: bool,
}

impl Entries {
    pub(super) fn new(count: usize, payload_length: usize) -> io::Result<Entries> {
        let payload_length = payload_length.next_multiple_of(HEADERS_LENGTH);
        let length = count * (HEADERS_LENGTH + payload_length);
        // SAFETY: a new mapping, at a place that the kernel chooses, overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let base = NonNull::new(base).ok_or(rustix::io::Errno::NOMEM)?;
        let described = Vec::new();
        let mut entries = Entries { base, count, payload_length, described, are_lent: false };
        entries.described = (0..count)
            .map(|index| {
                let (headers, payload) = entries.places(index);
                [
                    Buffer { address: headers.cast(), length: size_of::<EntryHeaders>() },
                    Buffer { address: payload.cast(), length: payload_length },
                ]
            })
            .collect();
        Ok(entries)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// What a `REGISTER` command of an entry points to, which hands it to the kernel. Valid as long as
    /// `self`.
    pub(super) fn lend(&mut self, index: usize) -> *const [Buffer; 2] {
        self.are_lent = true;
        &raw const self.described[index]
    }

    /// The kernel has given back all entries for good.
    pub(super) fn are_back(&mut self) {
        self.are_lent = false;
    }

    fn places(&self, index: usize) -> (*mut EntryHeaders, *mut u8) {
        assert!(index < self.count, "the kernel names an entry that it wasn't given");
        let offset = index * (HEADERS_LENGTH + self.payload_length);
        // SAFETY: `index` is below the number of entries that the mapping was made for.
        let headers = unsafe { self.base.as_ptr().byte_add(offset) };
        // SAFETY: an entry is longer than its headers.
        let payload = unsafe { headers.byte_add(HEADERS_LENGTH) };
        (headers.cast(), payload.cast())
    }

    /// The headers and the payload of an entry that the kernel has handed over.
    pub(super) fn ours(&mut self, index: usize) -> (&mut EntryHeaders, &mut [u8]) {
        let (headers, payload) = self.places(index);
        // SAFETY: the place is inside the mapping, aligned to a page, and any bytes are a value. Only
        // the kernel could write to it otherwise, and it doesn't between a completion, after which
        // this is called, and the next command, for which the borrow has to end.
        let headers = unsafe { &mut *headers };
        // SAFETY: as above; headers and payload don't overlap.
        let payload = unsafe { std::slice::from_raw_parts_mut(payload, self.payload_length) };
        (headers, payload)
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        if self.are_lent {
            // A ring that is closed ends some time later, and until then the kernel may write to what
            // it was lent.
            return;
        }
        let length = self.count * (HEADERS_LENGTH + self.payload_length);
        // SAFETY: the mapping is ours, nothing borrowed from it is left, and the kernel has none of it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr(), length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn entries_do_not_overlap() {
        let mut entries = Entries::new(3, 5000).unwrap();
        for index in 0..3 {
            let (headers, payload) = entries.ours(index);
            headers.as_mut_bytes().fill(index as u8);
            payload.fill(16 + index as u8);
            assert_eq!(payload.len(), 8192);
        }
        for index in 0..3 {
            let (headers, payload) = entries.ours(index);
            assert!(headers.as_bytes().iter().all(|byte| *byte == index as u8));
            assert!(payload.iter().all(|byte| *byte == 16 + index as u8));
        }
    }

    #[test]
    fn what_the_kernel_has_stays_mapped() {
        let is_mapped = |lend: bool, give_back: bool| {
            let mut entries = Entries::new(2, 1 << 20).unwrap();
            let address = entries.base.as_ptr().addr();
            if lend {
                entries.lend(1);
            }
            if give_back {
                entries.are_back();
            }
            drop(entries);
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().any(|line| {
                let (first, rest) = line.split_once('-').unwrap();
                let end = usize::from_str_radix(rest.split(' ').next().unwrap(), 16).unwrap();
                (usize::from_str_radix(first, 16).unwrap()..end).contains(&address)
            })
        };
        assert!(is_mapped(true, false));
        // Another test may map something there right away.
        assert!((0..100).any(|_| !is_mapped(true, true)));
        assert!((0..100).any(|_| !is_mapped(false, false)));
    }

    #[test]
    #[should_panic(expected = "wasn't given")]
    fn a_foreign_entry_is_refused() {
        Entries::new(1, 4096).unwrap().ours(1);
    }
}
