//! Changes that the server may still lose.

use drystone_sync::Arc;
use std::collections::BTreeMap;
use std::ops::Range;

/// Memory for changes that aren't flushed yet. With more, the device flushes by itself, or forgets the oldest if the
/// server has no flush.
const LOG_BYTES_MAX: usize = 64 << 20;
/// The same for bytes that are zeroed: a server that writes them must be able to flush in time.
pub(super) const ZEROED_BYTES_MAX: u64 = 1 << 30;

/// A change of a range.
#[derive(Clone, Debug)]
pub(super) enum NbdChange {
    Write(Arc<[u8]>),
    Zero(u64),
}

/// All changes since the last flush, in the order in which they were begun.
///
/// A change that begins after another one was answered comes later. So they can be made again in this order,
/// also those whose answers are still awaited: changes under way at once have no order among them.
#[derive(Debug, Default)]
pub(super) struct UnflushedLog {
    changes: BTreeMap<u64, LoggedChange>,
    next: u64,
    memory_bytes: usize,
    zeroed_bytes: u64,
}

#[derive(Debug)]
struct LoggedChange {
    offset: u64,
    change: NbdChange,
    is_answered: bool,
}

impl UnflushedLog {
    pub fn begin(&mut self, offset: u64, change: NbdChange) -> u64 {
        let number = self.next;
        self.next += 1;
        self.memory_bytes += change.memory_bytes();
        self.zeroed_bytes += change.zeroed_bytes();
        self.changes.insert(number, LoggedChange { offset, change, is_answered: false });
        number
    }

    pub fn answered(&mut self, number: u64) {
        if let Some(logged) = self.changes.get_mut(&number) {
            logged.is_answered = true;
        }
    }

    pub fn remove(&mut self, number: u64) {
        if let Some(logged) = self.changes.remove(&number) {
            self.memory_bytes -= logged.change.memory_bytes();
            self.zeroed_bytes -= logged.change.zeroed_bytes();
        }
    }

    /// What a flush that begins now makes durable.
    pub fn answered_numbers(&self) -> Vec<u64> {
        let answered = self.changes.iter().filter(|(_, logged)| logged.is_answered);
        answered.map(|(number, _)| *number).collect()
    }

    /// What is to be made again: of each byte only the last change that was answered, and those under way.
    /// Older ones would, for a moment, take back what a later write has made durable.
    pub fn all(&self) -> Vec<(u64, NbdChange)> {
        let mut replaced = BTreeMap::new();
        let mut all = Vec::new();
        for LoggedChange { offset, change, is_answered } in self.changes.values().rev() {
            let range = *offset..*offset + change.length();
            for gap in gaps(&replaced, &range) {
                let part = (gap.start - offset) as usize..(gap.end - offset) as usize;
                all.push((gap.start, change.part(part)));
            }
            if *is_answered {
                add(&mut replaced, range);
            }
        }
        all.reverse();
        all
    }

    /// Makes room, from the first change on.
    pub fn forget_oldest(&mut self) {
        while self.is_full()
            && let Some((&number, LoggedChange { is_answered: true, .. })) =
                self.changes.first_key_value()
        {
            self.remove(number);
        }
    }

    /// Whether a flush is due.
    pub fn is_full(&self) -> bool {
        self.memory_bytes > LOG_BYTES_MAX || self.zeroed_bytes >= ZEROED_BYTES_MAX
    }
}

/// The parts of a range that aren't in these, which are ends by starts.
fn gaps(ranges: &BTreeMap<u64, u64>, range: &Range<u64>) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let before = ranges.range(..range.start).next_back().map_or(0, |(_, end)| *end);
    let mut at = range.start.max(before);
    for (&start, &end) in ranges.range(range.clone()) {
        if at < start {
            gaps.push(at..start);
        }
        at = at.max(end);
    }
    if at < range.end {
        gaps.push(at..range.end);
    }
    gaps
}

/// Adds a range to others, joined with those that it meets.
fn add(ranges: &mut BTreeMap<u64, u64>, mut range: Range<u64>) {
    while let Some((&start, &end)) = ranges.range(..=range.end).next_back()
        && end >= range.start
    {
        ranges.remove(&start);
        range = range.start.min(start)..range.end.max(end);
    }
    ranges.insert(range.start, range.end);
}

impl NbdChange {
    fn length(&self) -> u64 {
        match self {
            Self::Write(data) => data.len() as u64,
            Self::Zero(length) => *length,
        }
    }

    fn part(&self, part: Range<usize>) -> NbdChange {
        match self {
            Self::Write(data) if part.len() == data.len() => Self::Write(Arc::clone(data)),
            Self::Write(data) => Self::Write(Arc::from(&data[part])),
            Self::Zero(_) => Self::Zero(part.len() as u64),
        }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<LoggedChange>()
            + match self {
                Self::Write(data) => data.len(),
                Self::Zero(_) => 0,
            }
    }

    fn zeroed_bytes(&self) -> u64 {
        match self {
            Self::Write(_) => 0,
            Self::Zero(length) => *length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log of changes at these places, with a number each; those that are under way say so.
    fn logged(changes: &[(Range<u64>, u8, bool)]) -> Vec<(u64, Vec<u8>)> {
        let mut log = UnflushedLog::default();
        for (range, byte, is_answered) in changes {
            let data = vec![*byte; (range.end - range.start) as usize];
            let number = log.begin(range.start, NbdChange::Write(data.into()));
            if *is_answered {
                log.answered(number);
            }
        }
        let all = log.all().into_iter().map(|(offset, change)| match change {
            NbdChange::Write(data) => (offset, data.to_vec()),
            NbdChange::Zero(_) => panic!("a write"),
        });
        all.collect()
    }

    /// Without flushes it would grow without end.
    #[test]
    fn the_oldest_changes_are_forgotten() {
        let mut log = UnflushedLog::default();
        let data: Arc<[u8]> = vec![0; LOG_BYTES_MAX / 4].into();
        for number in 0..20 {
            log.forget_oldest();
            let number = log.begin(number, NbdChange::Write(Arc::clone(&data)));
            log.answered(number);
        }
        let kept: Vec<u64> = log.changes.keys().copied().collect();
        assert_eq!(kept, [16, 17, 18, 19]);
    }

    /// A write with FUA may be the second: the first must not be seen again, whenever the client ends.
    #[test]
    fn what_was_replaced_is_not_made_again() {
        assert_eq!(logged(&[(0..4, 1, true), (0..4, 2, true)]), [(0, vec![2; 4])]);
        assert_eq!(
            logged(&[(0..8, 1, true), (2..4, 2, true), (3..6, 3, true)]),
            [(6, vec![1; 2]), (0, vec![1; 2]), (2, vec![2; 1]), (3, vec![3; 3])]
        );
        // Whether the second was carried out isn't known.
        assert_eq!(
            logged(&[(0..4, 1, true), (0..4, 2, false)]),
            [(0, vec![1; 4]), (0, vec![2; 4])]
        );
        // What is under way beside an answered one has no order.
        assert_eq!(
            logged(&[(0..4, 1, false), (4..8, 2, true)]),
            [(0, vec![1; 4]), (4, vec![2; 4])]
        );
    }
}
