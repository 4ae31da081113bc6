//! Copying data into the image: large contiguous pieces, filled and written by several threads.
//!
//! One thread walks the layout and says what goes where. Adjacent blocks form one [`Stripe`],
//! whatever files they belong to. Worker threads take stripes, read the data into their own buffer
//! and write each stripe with one call. So memory is bounded by the number of threads.
//!
//! # Locking
//! One lock, around the queue, held for as long as it takes to push or pop.

use super::BuildMonitor;
use crate::error::{Error, Result};
use crate::tree::{FileTree, Segment};
use drystone_blockdev::BlockDevice;
use drystone_sync::{Condvar, LockClass, Mutex, thread};
use std::collections::VecDeque;

/// Stripes that wait, and workers that take them.
static QUEUE: LockClass = LockClass::new("stripes of an image", 100);

/// Bytes of a stripe: with its source it stays in a core's cache.
const STRIPE_BYTES: usize = 512 * 1024;
/// Parts of a stripe at most, so that many small files don't make it large.
const PARTS_MAX: usize = 512;
/// Stripes that wait for each thread.
const WAITING_PER_THREAD: usize = 4;

/// The content of a part of a stripe.
#[derive(Debug)]
enum StripeContent {
    Bytes(Vec<u8>),
    Source(Segment),
}

/// A part of a stripe; what lies between parts is zeros.
#[derive(Debug)]
struct StripePart {
    /// Where in the stripe, in bytes.
    at: usize,
    fill: StripeContent,
}

/// A contiguous piece of the image.
#[derive(Debug, Default)]
struct Stripe {
    /// Where in the image, in bytes.
    offset: u64,
    length: usize,
    parts: Vec<StripePart>,
    /// Files that end in it.
    files: u64,
}

impl Stripe {
    fn write(&self, tree: &FileTree, device: &dyn BlockDevice, buffer: &mut [u8]) -> Result<()> {
        let buffer = &mut buffer[..self.length];
        let mut done = 0;
        for part in &self.parts {
            let length = match &part.fill {
                StripeContent::Bytes(bytes) => bytes.len(),
                // Cut to the length of a stripe.
                StripeContent::Source(segment) => segment.length as usize,
            };
            buffer[done..part.at].fill(0);
            done = part.at + length;
            let target = &mut buffer[part.at..done];
            match &part.fill {
                StripeContent::Bytes(bytes) => target.copy_from_slice(bytes),
                StripeContent::Source(from) => {
                    tree.source(from.source).read_at(from.object, from.offset, target)?;
                }
            }
        }
        buffer[done..].fill(0);
        device.write_at(self.offset, buffer)?;
        Ok(())
    }
}

#[derive(Debug, Default)]
struct CopyQueue {
    waiting: VecDeque<Stripe>,
    is_complete: bool,
    error: Option<Error>,
}

/// The queue of stripes.
struct CopyShared {
    queue: Mutex<CopyQueue>,
    changed: Condvar,
    waiting_max: usize,
}

impl CopyShared {
    /// Ends everything with the first error.
    fn fail(&self, error: Error) {
        let mut queue = self.queue.lock();
        queue.error.get_or_insert(error);
        queue.waiting.clear();
        queue.is_complete = true;
        self.changed.notify_all();
    }

    /// No more stripes will come.
    fn complete(&self) {
        self.queue.lock().is_complete = true;
        self.changed.notify_all();
    }

    fn push(&self, stripe: Stripe) -> Result<()> {
        let mut queue = self.queue.lock();
        self.changed.wait_while(&mut queue, |queue| {
            queue.waiting.len() >= self.waiting_max && queue.error.is_none()
        });
        if let Some(error) = &queue.error {
            return Err(error.clone());
        }
        queue.waiting.push_back(stripe);
        self.changed.notify_all();
        Ok(())
    }

    fn pop(&self) -> Option<Stripe> {
        let mut queue = self.queue.lock();
        self.changed.wait_while(&mut queue, |queue| queue.waiting.is_empty() && !queue.is_complete);
        let stripe = queue.waiting.pop_front();
        self.changed.notify_all();
        stripe
    }
}

/// Takes what lies where, in the order of the image or nearly so.
pub(super) struct Copier<'a> {
    tree: &'a FileTree,
    device: &'a dyn BlockDevice,
    monitor: &'a dyn BuildMonitor,
    block_size: u64,
    stripe: Stripe,
    /// `None` if this thread does all the work.
    shared: Option<&'a CopyShared>,
    buffer: Vec<u8>,
}

impl Copier<'_> {
    /// Puts bytes, generated or from a source, at a block of the image, `within` bytes after its
    /// start.
    fn add(
        &mut self,
        block: u64,
        within: u64,
        blocks: u64,
        fill: Option<StripeContent>,
    ) -> Result<()> {
        let offset = block * self.block_size;
        let length = (blocks * self.block_size) as usize;
        let at = offset.checked_sub(self.stripe.offset).map_or(usize::MAX, |at| at as usize);
        // A block may get several parts; then the stripe already ends after it.
        let follows = at <= self.stripe.length && self.stripe.length > 0;
        let fits = follows
            && at + length <= STRIPE_BYTES.max(self.block_size as usize)
            && self.stripe.parts.len() < PARTS_MAX;
        let is_inside = follows && at + length <= self.stripe.length;
        if !fits && !is_inside {
            self.flush()?;
            self.stripe.offset = offset;
        }
        let at = (offset - self.stripe.offset) as usize;
        self.stripe.length = self.stripe.length.max(at + length);
        if let Some(fill) = fill {
            self.stripe.parts.push(StripePart { at: at + within as usize, fill });
        }
        Ok(())
    }

    /// Puts whole generated blocks.
    pub fn add_block(&mut self, block: u64, bytes: Vec<u8>) -> Result<()> {
        debug_assert_eq!(bytes.len() as u64, self.block_size);
        self.add(block, 0, 1, Some(StripeContent::Bytes(bytes)))
    }

    /// Puts bytes at the start of a block.
    pub fn add_bytes(&mut self, block: u64, bytes: &[u8]) -> Result<()> {
        for (number, piece) in (block..).zip(bytes.chunks(self.block_size as usize)) {
            self.add(number, 0, 1, Some(StripeContent::Bytes(piece.to_vec())))?;
        }
        Ok(())
    }

    /// Puts a piece of a file: its `logical` counts from the start of `block`.
    pub fn add_segment(&mut self, block: u64, segment: Segment) -> Result<()> {
        let mut rest = segment;
        while rest.length > 0 {
            let within = rest.logical % self.block_size;
            // The rest of a block goes to the stripe that has its start.
            let room = if within > 0 { self.block_size } else { STRIPE_BYTES as u64 } - within;
            let length = rest.length.min(room);
            let first = block + rest.logical / self.block_size;
            let piece = Segment { length, ..rest };
            let blocks = (within + length).div_ceil(self.block_size);
            self.add(first, within, blocks, Some(StripeContent::Source(piece)))?;
            rest.logical += length;
            rest.offset += length;
            rest.length -= length;
        }
        Ok(())
    }

    /// A file is complete.
    pub fn end_file(&mut self) {
        self.stripe.files += 1;
    }

    /// Hands over the current stripe.
    pub fn flush(&mut self) -> Result<()> {
        let stripe = std::mem::take(&mut self.stripe);
        if self.monitor.is_cancelled() {
            return Err(Error::Cancelled);
        }
        if stripe.length == 0 {
            self.monitor.wrote(0, stripe.files);
            return Ok(());
        }
        match self.shared {
            Some(shared) => shared.push(stripe),
            None => {
                stripe.write(self.tree, self.device, &mut self.buffer)?;
                self.monitor.wrote(stripe.length as u64, stripe.files);
                Ok(())
            }
        }
    }
}

/// Runs `body` with a copier; when it returns, all is written.
pub(super) fn copy<T>(
    tree: &FileTree,
    device: &dyn BlockDevice,
    monitor: &dyn BuildMonitor,
    block_size: usize,
    threads: usize,
    body: impl FnOnce(&mut Copier<'_>) -> Result<T>,
) -> Result<T> {
    let buffer_bytes = STRIPE_BYTES.max(block_size);
    let mut copier = Copier {
        tree,
        device,
        monitor,
        block_size: block_size as u64,
        stripe: Stripe::default(),
        shared: None,
        buffer: Vec::new(),
    };
    if threads <= 1 {
        copier.buffer = vec![0; buffer_bytes];
        let result = body(&mut copier)?;
        copier.flush()?;
        return Ok(result);
    }
    let shared = CopyShared {
        queue: Mutex::new(&QUEUE, CopyQueue::default()),
        changed: Condvar::new(),
        waiting_max: threads * WAITING_PER_THREAD,
    };
    let result = thread::scope(|scope| {
        let _end = thread::at_end(|| shared.complete());
        let write = || {
            let _end = thread::at_end(|| {
                // No thread may go on waiting for this one. The panic ends the scope, whatever the
                // error.
                if thread::panicking() {
                    shared.fail(Error::Cancelled);
                }
            });
            let mut buffer = vec![0; buffer_bytes];
            while let Some(stripe) = shared.pop() {
                match stripe.write(tree, device, &mut buffer) {
                    Ok(()) => monitor.wrote(stripe.length as u64, stripe.files),
                    Err(error) => return shared.fail(error),
                }
            }
        };
        match thread::spawn_several(scope, "copy", threads, write) {
            Ok(_) => copier.shared = Some(&shared),
            // If no thread can be started, this one does the work.
            Err(_) => copier.buffer = vec![0; buffer_bytes],
        }
        let result = body(&mut copier).and_then(|result| copier.flush().map(|()| result));
        if let Err(error) = &result {
            shared.fail(error.clone());
        }
        result
    });
    match shared.queue.into_inner().error {
        Some(error) => Err(error),
        None => result,
    }
}
