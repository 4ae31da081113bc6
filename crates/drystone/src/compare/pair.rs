//! Compares two inodes.

use super::{Aspects, DifferenceKind};
use crate::transfer::ends::{CopySource, EndResult};
use crate::transfer::facts::{InodeFacts, Xattrs};
use crate::transfer::{Cause, CopyMonitor, Side};
use drystone_vfs::FileType;

/// Content that is read at a time.
pub(super) const BUFFER_BYTES: usize = 1 << 18;

/// What a side could not do: which side, what, and why.
pub(super) type PairFailure = (Side, &'static str, Cause);

/// What came out of comparing two inodes.
#[derive(Default)]
pub(super) struct PairOutcome {
    pub kinds: Vec<DifferenceKind>,
    pub failures: Vec<PairFailure>,
    /// Content that was read.
    pub bytes: u64,
}

/// Compares what inodes say of themselves; false if they are too different for anything else.
pub(super) fn attributes(
    first: &InodeFacts,
    second: &InodeFacts,
    aspects: &Aspects,
    kinds: &mut Vec<DifferenceKind>,
) -> bool {
    if first.file_type != second.file_type {
        kinds.push(DifferenceKind::Type(first.file_type, second.file_type));
        return false;
    }
    let is_link = first.file_type == FileType::Symlink;
    // The permissions of a link mean nothing, and not everybody can set them.
    if aspects.mode && first.permissions != second.permissions && !is_link {
        kinds.push(DifferenceKind::Mode(first.permissions, second.permissions));
    }
    let owners = [first, second].map(|facts| (facts.user, facts.group));
    if aspects.owner && owners[0] != owners[1] {
        kinds.push(DifferenceKind::Owner(owners[0], owners[1]));
    }
    if first.is_regular() && aspects.content && first.size != second.size {
        kinds.push(DifferenceKind::Size(first.size, second.size));
    }
    if is_link && first.target != second.target {
        kinds.push(DifferenceKind::Target(first.target.clone(), second.target.clone()));
    }
    let is_device = matches!(first.file_type, FileType::CharacterDevice | FileType::BlockDevice);
    if is_device && first.device != second.device {
        kinds.push(DifferenceKind::Device(first.device, second.device));
    }
    if aspects.times && first.modified != second.modified {
        kinds.push(DifferenceKind::Modified(first.modified, second.modified));
    }
    true
}

/// Compares extended attributes.
pub(super) fn xattrs<A: CopySource, B: CopySource>(
    sources: (&A, &B),
    nodes: (&A::Node, &B::Node),
    outcome: &mut PairOutcome,
) {
    let action = "read the extended attributes of";
    let (first, second) = match (sources.0.xattrs(nodes.0), sources.1.xattrs(nodes.1)) {
        (Ok(first), Ok(second)) => (sorted(first), sorted(second)),
        (first, second) => {
            let first = first.err().map(|cause| (Side::Source, action, cause));
            let second = second.err().map(|cause| (Side::Target, action, cause));
            return outcome.failures.extend(first.into_iter().chain(second));
        }
    };
    let (mut first, mut second) = (first.into_iter().peekable(), second.into_iter().peekable());
    loop {
        let order = match (first.peek(), second.peek()) {
            (None, None) => return,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let a = if order.is_le() { first.next() } else { None };
        let b = if order.is_ge() { second.next() } else { None };
        let name = a.as_ref().or(b.as_ref()).map(|(name, _)| name.clone()).unwrap_or_default();
        let (a, b) = (a.map(|(_, value)| value), b.map(|(_, value)| value));
        if a != b {
            outcome.kinds.push(DifferenceKind::Xattr(name, a, b));
        }
    }
}

fn sorted(mut xattrs: Xattrs) -> Xattrs {
    xattrs.sort_unstable();
    xattrs
}

/// Two regular files that are open, and room for their content.
pub(super) struct FilePair<'f, A: CopySource, B: CopySource> {
    pub sources: (&'f A, &'f B),
    pub nodes: (&'f A::Node, &'f B::Node),
    pub facts: (&'f InodeFacts, &'f InodeFacts),
    pub buffers: &'f mut [Vec<u8>; 2],
    pub monitor: &'f dyn CopyMonitor,
}

impl<A: CopySource, B: CopySource> FilePair<'_, A, B> {
    /// Compares contents up to the end of the shorter one, and holes.
    pub fn compare(&mut self, aspects: &Aspects, outcome: &mut PairOutcome) {
        if let Err(failure) = self.try_compare(aspects, outcome) {
            outcome.failures.push(failure);
        }
    }

    fn try_compare(
        &mut self,
        aspects: &Aspects,
        outcome: &mut PairOutcome,
    ) -> Result<(), PairFailure> {
        let size = self.facts.0.size.min(self.facts.1.size);
        let is_sparse = self.facts.0.is_sparse || self.facts.1.is_sparse;
        let mut ranges = vec![(0, size)];
        if is_sparse {
            let unmapped = |side| move |cause| (side, "read the map of", cause);
            let first = self.sources.0.data_ranges(self.nodes.0, self.facts.0.size);
            let second = self.sources.1.data_ranges(self.nodes.1, self.facts.1.size);
            let first = first.map_err(unmapped(Side::Source))?;
            let second = second.map_err(unmapped(Side::Target))?;
            if aspects.holes
                && let Some(offset) = first_unlike(&first, &second).filter(|&offset| offset < size)
            {
                outcome.kinds.push(DifferenceKind::Holes(offset));
            }
            ranges = union(&first, &second, size);
        }
        if !aspects.content {
            return Ok(());
        }
        for (start, end) in ranges {
            if let Some(offset) = self.range(start, end, &mut outcome.bytes)? {
                outcome.kinds.push(DifferenceKind::Content(offset));
                break;
            }
        }
        Ok(())
    }

    /// The first byte in a range that differs.
    fn range(&mut self, start: u64, end: u64, bytes: &mut u64) -> Result<Option<u64>, PairFailure> {
        let mut offset = start;
        while offset < end && !self.monitor.is_cancelled() {
            let room = usize::try_from(end - offset).unwrap_or(usize::MAX).min(BUFFER_BYTES);
            let [first, second] = &mut *self.buffers;
            let (first, second) = (&mut first[..room], &mut second[..room]);
            let unreadable = |side| move |cause| (side, "read", cause);
            let lengths = [
                fill(self.sources.0, self.nodes.0, offset, first)
                    .map_err(unreadable(Side::Source))?,
                fill(self.sources.1, self.nodes.1, offset, second)
                    .map_err(unreadable(Side::Target))?,
            ];
            *bytes += (lengths[0] + lengths[1]) as u64;
            self.monitor.bytes((lengths[0] + lengths[1]) as u64);
            let (first, second) = (&first[..lengths[0]], &second[..lengths[1]]);
            if first != second {
                let equal = first.iter().zip(second).take_while(|(a, b)| a == b).count();
                return Ok(Some(offset + equal as u64));
            }
            if lengths[0] < room {
                // Both have become shorter meanwhile.
                break;
            }
            offset += room as u64;
        }
        Ok(None)
    }
}

/// Reads until the buffer is full or the file ends.
fn fill<S: CopySource>(
    source: &S,
    file: &S::Node,
    offset: u64,
    buffer: &mut [u8],
) -> EndResult<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match source.read(file, offset + length as u64, &mut buffer[length..])? {
            0 => break,
            read => length += read,
        }
    }
    Ok(length)
}

/// Where two lists of ranges stop being the same.
fn first_unlike(first: &[(u64, u64)], second: &[(u64, u64)]) -> Option<u64> {
    let mut pairs = first.iter().zip(second);
    if let Some((a, b)) = pairs.find(|(a, b)| a != b) {
        return Some(if a.0 == b.0 { a.1.min(b.1) } else { a.0.min(b.0) });
    }
    let common = first.len().min(second.len());
    first.get(common).or(second.get(common)).map(|&(start, _)| start)
}

/// All that is in one of two lists of ranges, up to `size`.
fn union(first: &[(u64, u64)], second: &[(u64, u64)], size: u64) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = first.iter().chain(second).copied().collect();
    all.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in all {
        let end = end.min(size);
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ if start < end => merged.push((start, end)),
            _ => {}
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let (a, b) = ([(0, 4), (8, 12)], [(0, 4), (10, 16), (20, 24)]);
        assert_eq!(union(&a, &b, 30), [(0, 4), (8, 16), (20, 24)]);
        assert_eq!(union(&a, &b, 9), [(0, 4), (8, 9)]);
        assert_eq!(first_unlike(&a, &b), Some(8));
        assert_eq!(first_unlike(&a, &a), None);
        assert_eq!(first_unlike(&a, &a[..1]), Some(8));
        assert_eq!(first_unlike(&[(0, 4)], &[(0, 6)]), Some(4));
    }
}
