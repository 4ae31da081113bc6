//! Makes the kernel write back and drop what it caches of a file, while a request waits for that.
//!
//! With a write-back cache the kernel asks the server for data and holes without first writing what it has
//! gathered, so a file that is being written would look like one long hole. When it is told to drop a
//! file's content, it writes the content first. Those writes are requests too, and threads must be free to
//! answer them. So the request is put aside: a separate thread waits for the kernel, and continues the
//! request afterwards. The same holds for direct writes that make the kernel's cache stale, since it may
//! be waiting for a read of that range. Their answers are [held](HeldAnswers), but not for long.

use crate::backlog::Backlog;
use crate::held::{HeldAnswers, Ticket};
use crate::wire::{DropContent, ReplyHeader};
use rustix::io::Errno;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::AsFd;
use zerocopy::IntoBytes;

/// `FUSE_NOTIFY_INVAL_INODE`, where an answer has its error.
const DROP_CONTENT: i32 = 2;

/// Continues a request once the file is written, or can't be: `EIO`.
type GoOn<'a> = Box<dyn FnOnce(Result<(), Errno>) + Send + 'a>;

/// Content of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub node: u64,
    pub bytes: Range<u64>,
}

impl Content {
    /// All of it.
    pub fn all(node: u64) -> Content {
        Content { node, bytes: 0..u64::MAX }
    }

    /// Its offset and length as in messages to the kernel: a length of zero means everything after
    /// the offset.
    pub fn offset_and_length(&self) -> (i64, i64) {
        let offset = i64::try_from(self.bytes.start).unwrap_or(i64::MAX);
        (offset, i64::try_from(self.bytes.end - self.bytes.start).unwrap_or(0))
    }
}

/// What to do when content was dropped.
enum Then<'a> {
    GoOn(GoOn<'a>),
    Give(Ticket),
    Nothing,
}

/// Requests that wait until the kernel has written what it holds of a file, and dropped it.
pub(crate) struct WriteBacks<'a> {
    backlog: Backlog<(Content, Then<'a>)>,
    held: HeldAnswers<'a>,
}

impl<'a> WriteBacks<'a> {
    /// For a kernel with at most this many background requests.
    pub fn beside(background_max: u16) -> WriteBacks<'a> {
        let held = HeldAnswers::at_most(usize::from(background_max / 2));
        WriteBacks { backlog: Backlog::new(), held }
    }

    /// Has the kernel write what it holds of `content`, and calls `go_on` then, on another thread.
    pub fn write_back(&self, content: Content, go_on: impl FnOnce(Result<(), Errno>) + Send + 'a) {
        self.backlog.put((content, Then::GoOn(Box::new(go_on))));
    }

    /// Makes the kernel drop `content` and calls `answer` afterwards, or before if that takes long
    /// or too many wait: the kernel may need the answer to go on.
    pub fn answer_after_drop(&self, content: Content, answer: impl FnOnce() + Send + 'a) {
        match self.held.hold(answer) {
            Ok(ticket) => self.backlog.put((content, Then::Give(ticket))),
            Err(answer) => {
                self.drop_soon(content);
                answer();
            }
        }
    }

    /// Has the kernel drop `content`.
    pub fn drop_soon(&self, content: Content) {
        self.backlog.put((content, Then::Nothing));
    }

    /// Does the waiting work until it [ends](WriteBacks::ends). `drop_content` returns when the
    /// kernel has written and dropped the content.
    pub fn run(&self, drop_content: impl Fn(&Content) -> Result<(), Errno>) {
        while let Some((content, then)) = self.backlog.next() {
            let dropped = match drop_content(&content) {
                // The kernel has forgotten the inode, so there was nothing left to write.
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(error) => {
                    tracing::warn!("the kernel doesn't write back {content:?}: {error}");
                    // Why it doesn't has no meaning for a program.
                    Err(Errno::IO)
                }
            };
            match then {
                Then::GoOn(go_on) => go_on(dropped),
                Then::Give(ticket) => self.held.give(ticket),
                Then::Nothing => {}
            }
        }
        self.held.end();
    }

    /// Gives answers that have been held too long, as long as [`run`](WriteBacks::run) runs.
    pub fn watch(&self) {
        self.held.watch();
    }

    /// When what this returns is dropped, [`run`](WriteBacks::run) returns as soon as no request waits.
    pub fn ends(&self) -> impl Sized {
        self.backlog.ends()
    }
}

/// Returns when the kernel has written what it held of some content, and dropped it.
pub(crate) fn drop_content(device: impl AsFd, content: &Content) -> Result<(), Errno> {
    let (offset, length) = content.offset_and_length();
    let message = DropContent { node: content.node, offset, length };
    let message_length = (size_of::<ReplyHeader>() + size_of::<DropContent>()) as u32;
    let header = ReplyHeader { length: message_length, error: DROP_CONTENT, unique: 0 };
    let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(message.as_bytes())];
    rustix::io::writev(device, &parts).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_sync::atomic::{AtomicU64, Ordering};
    use drystone_sync::thread;

    #[test]
    fn all_content_has_no_length() {
        assert_eq!(Content::all(7).offset_and_length(), (0, 0));
        assert_eq!(Content { node: 7, bytes: 4096..5000 }.offset_and_length(), (4096, 904));
    }

    #[test]
    fn requests_go_on_when_the_kernel_has_written() {
        let (done, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        let write_backs = WriteBacks::beside(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                write_backs.run(|content| match content.node {
                    7 => Err(Errno::NOENT),
                    8 => Err(Errno::BUSY),
                    _ => Ok(()),
                });
            });
            let _ends = write_backs.ends();
            for node in 1..=10 {
                let (done, failed) = (&done, &failed);
                write_backs.write_back(Content::all(node), move |written| match written {
                    Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => {
                        assert_eq!((node, error), (8, Errno::IO));
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let counts = (done.load(Ordering::Relaxed), failed.load(Ordering::Relaxed));
        assert_eq!(counts, (9, 1));
    }
}
