//! What of an inode's fields is read without a lock.
//!
//! # State
//! Copies of what callers see in attributes, in words that are written after each change of the
//! fields, with the fields locked. Single words are read as they are, and all together while they
//! don't change ([`SequenceCount`]); else it takes the lock.

use super::Fields;
use crate::sequence_count::SequenceCount;
use drystone_ext4_format::inode::{InodeFlags, InodeTimestamp};
use drystone_sync::atomic::{AtomicU64, Ordering};

/// Mode, links and flags.
const KIND: usize = 0;
const OWNERS: usize = 1;
/// Generation and project.
const ORIGIN: usize = 2;
const SIZE: usize = 3;
/// Sectors, and whether there are extended attributes, a project, and fine times.
const SPACE: usize = 4;
const ACCESSED: usize = 5;
const CHANGED: usize = 6;
const MODIFIED: usize = 7;
const CREATED: usize = 8;
const WORDS: usize = 9;

/// A count of sectors, which is below 2^56 whatever the image says, leaves these bits free.
const HAS_XATTRS: u64 = 1 << 63;
const HAS_PROJECT: u64 = 1 << 62;
const HAS_FINE_TIMES: u64 = 1 << 61;
const SECTORS: u64 = HAS_FINE_TIMES - 1;
/// No time: its nanoseconds would be more than a second.
const NO_TIME: u64 = u64::MAX;
const NANOSECOND_BITS: u32 = 30;

/// The words.
#[derive(Debug)]
pub(super) struct AttributeWords {
    changes: SequenceCount,
    words: [AtomicU64; WORDS],
}

/// What callers see of an inode, but for what its type and number say; in as few bytes as it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttributeView([u64; WORDS]);

impl AttributeView {
    /// What the fields say, whose times are clamped.
    pub fn of(fields: &Fields) -> AttributeView {
        let disk = &fields.disk;
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let mut words = [0; WORDS];
        let names = u32::from(disk.mode) << 16 | u32::from(disk.links_count);
        words[KIND] = pair(names, disk.flags.bits());
        words[OWNERS] = pair(disk.user, disk.group);
        words[ORIGIN] = pair(disk.generation, disk.project.unwrap_or(0));
        words[SIZE] = disk.size_bytes;
        let has_xattrs = if fields.has_xattrs() { HAS_XATTRS } else { 0 };
        let has_project = if disk.project.is_some() { HAS_PROJECT } else { 0 };
        let has_fine_times = if disk.has_fine_times() { HAS_FINE_TIMES } else { 0 };
        words[SPACE] = disk.sectors & SECTORS | has_xattrs | has_project | has_fine_times;
        words[ACCESSED] = pack_time(disk.access_time);
        words[CHANGED] = pack_time(disk.change_time);
        words[MODIFIED] = pack_time(disk.modification_time);
        words[CREATED] = disk.creation_time.map_or(NO_TIME, pack_time);
        AttributeView(words)
    }

    fn high(&self, word: usize) -> u32 {
        (self.0[word] >> 32) as u32
    }

    fn low(&self, word: usize) -> u32 {
        self.0[word] as u32
    }

    /// Type and permissions.
    pub fn mode(&self) -> u16 {
        (self.high(KIND) >> 16) as u16
    }

    /// The number of names.
    pub fn links(&self) -> u16 {
        self.high(KIND) as u16
    }

    /// The flags.
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.low(KIND))
    }

    /// The owner.
    pub fn user(&self) -> u32 {
        self.high(OWNERS)
    }

    /// The owning group.
    pub fn group(&self) -> u32 {
        self.low(OWNERS)
    }

    /// The project, or 0.
    pub fn project(&self) -> u32 {
        self.low(ORIGIN)
    }

    /// The project, where the inode has room for one.
    pub fn project_if_any(&self) -> Option<u32> {
        (self.0[SPACE] & HAS_PROJECT != 0).then(|| self.project())
    }

    /// Whether there may be extended attributes.
    pub fn has_xattrs(&self) -> bool {
        self.0[SPACE] & HAS_XATTRS != 0
    }

    /// What tells inodes of one number apart.
    pub fn generation(&self) -> u32 {
        self.high(ORIGIN)
    }

    /// Bytes of content.
    pub fn size_bytes(&self) -> u64 {
        self.0[SIZE]
    }

    /// Units of 512 bytes in use.
    pub fn sectors(&self) -> u64 {
        self.0[SPACE] & SECTORS
    }

    /// Last access.
    pub fn accessed(&self) -> InodeTimestamp {
        unpack_time(self.0[ACCESSED])
    }

    /// Last change of the inode.
    pub fn changed(&self) -> InodeTimestamp {
        unpack_time(self.0[CHANGED])
    }

    /// Last change of the content.
    pub fn modified(&self) -> InodeTimestamp {
        unpack_time(self.0[MODIFIED])
    }

    /// A time of a change as the inode would hold it.
    pub fn clamped(&self, time: InodeTimestamp) -> InodeTimestamp {
        time.clamp_to_inode(self.0[SPACE] & HAS_FINE_TIMES != 0)
    }

    /// Creation, where it is recorded.
    pub fn created(&self) -> Option<InodeTimestamp> {
        Some(self.0[CREATED]).filter(|word| *word != NO_TIME).map(unpack_time)
    }
}

/// Seconds from the first that an inode can hold fit 34 bits, once the time is clamped.
fn pack_time(time: InodeTimestamp) -> u64 {
    let seconds = (time.seconds - InodeTimestamp::MIN.seconds) as u64;
    seconds << NANOSECOND_BITS | u64::from(time.nanoseconds)
}

fn unpack_time(word: u64) -> InodeTimestamp {
    InodeTimestamp {
        seconds: (word >> NANOSECOND_BITS) as i64 + InodeTimestamp::MIN.seconds,
        nanoseconds: word as u32 & ((1 << NANOSECOND_BITS) - 1),
    }
}

impl AttributeWords {
    /// What the fields say.
    pub fn new(fields: &Fields) -> AttributeWords {
        let words = AttributeView::of(fields).0.map(AtomicU64::new);
        AttributeWords { changes: SequenceCount::default(), words }
    }

    /// Brings the words up to date. The fields are locked exclusively, and their times clamped.
    pub fn write(&self, fields: &Fields) {
        let values = AttributeView::of(fields).0;
        // Only this thread changes them. Words that stay don't make readers fetch their cache line again.
        let is_new = |(word, value): &(&AtomicU64, u64)| word.load(Ordering::Relaxed) != *value;
        let mut changed = self.words.iter().zip(values).filter(is_new).peekable();
        if changed.peek().is_none() {
            return;
        }
        self.changes.begin_change();
        for (word, value) in changed {
            // A reader of a single word sees what was written before it.
            word.store(value, Ordering::Release);
        }
        self.changes.end_change();
    }

    /// All of them, unless they change meanwhile.
    #[inline]
    pub fn read(&self) -> Option<AttributeView> {
        let read = self.changes.read()?;
        let mut values = [0; WORDS];
        for (value, word) in values.iter_mut().zip(&self.words) {
            *value = word.load(Ordering::Relaxed);
        }
        read.holds().then_some(AttributeView(values))
    }

    #[inline]
    fn word(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Acquire)
    }

    /// The flags.
    #[inline]
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.word(KIND) as u32)
    }

    /// The number of names.
    #[inline]
    pub fn links(&self) -> u16 {
        (self.word(KIND) >> 32) as u16
    }

    /// Bytes of content.
    #[inline]
    pub fn size_bytes(&self) -> u64 {
        self.word(SIZE)
    }

    /// Whether there are extended attributes.
    #[inline]
    pub fn has_xattrs(&self) -> bool {
        self.word(SPACE) & HAS_XATTRS != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn times_fit_their_words() {
        let last = InodeTimestamp { nanoseconds: 999_999_999, ..InodeTimestamp::MAX };
        let times = [
            InodeTimestamp::MIN,
            InodeTimestamp::from_seconds(0),
            InodeTimestamp::from_seconds(-1),
            last,
        ];
        for time in times {
            assert_eq!(unpack_time(pack_time(time)), time);
            assert_ne!(pack_time(time), NO_TIME);
        }
    }
}
