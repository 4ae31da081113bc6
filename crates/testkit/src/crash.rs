//! What a device may hold after a crash: images made from a recording of its writes.
//!
//! A crash is a cut in the recording. What was written before the last flush in front of the cut is
//! there; of what was written since, any part may be there, in units of sectors. Durable writes
//! that returned before the cut are there, and hide older bytes at their place. A mark before the
//! cut had been reached, so what it promises has to hold.
//!
//! # State
//!
//! Copies of the device at some of the flushes, so that an image takes only the events since.

use drystone_blockdev::{BlockDevice, DeviceResult, Event, EventKind, MemoryDevice, Overlay};
use drystone_sync::Arc;
use std::ops::Range;

/// The unit that a disk writes atomically.
pub const SECTOR_BYTES: usize = 512;
/// Copies of the device that are kept.
const SNAPSHOTS_MAX: usize = 24;

/// The device after a crash.
#[derive(Debug)]
pub struct CrashImage {
    /// What it holds; changes to it stay in memory and touch no other image.
    pub device: Overlay<Arc<MemoryDevice>>,
    /// The last mark before the crash.
    pub last_mark: Option<u64>,
    /// How many events of the recording came before the crash.
    pub events_before: usize,
    /// Which crash this is, for reports.
    pub description: String,
}

/// How much of what wasn't flushed is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// All of it is there.
    Nothing,
    /// None of it is there.
    Everything,
    /// Each write is there or not.
    SomeWrites,
    /// Each sector is there or not.
    SomeSectors,
    /// Writes are there or not, and reached the disk in another order.
    SomeReordered,
    /// The last event was in progress: some of its sectors are there.
    LastTorn,
}

const RANDOM_LOSSES: [Loss; 5] =
    [Loss::Everything, Loss::SomeWrites, Loss::SomeSectors, Loss::SomeReordered, Loss::LastTorn];

/// An endless sequence of crash images: all cuts after flushes and durable writes in a random
/// order, alternating with cuts anywhere that lose a random part.
#[derive(Debug)]
pub struct CrashImages {
    events: Vec<Event>,
    random: fastrand::Rng,
    seed: u64,
    made: u64,
    /// Cuts after flushes and durable writes that are still to be made.
    boundaries: Vec<usize>,
    /// The device when the first so many events had happened and were flushed.
    snapshots: Vec<(usize, Arc<MemoryDevice>)>,
    /// Bytes that a write changes atomically.
    whole: Range<u64>,
}

impl CrashImages {
    /// Crashes during `events`, which began on a device that held `base`.
    ///
    /// # Errors
    ///
    /// An event doesn't fit on the device.
    pub fn new(base: &MemoryDevice, events: Vec<Event>, seed: u64) -> DeviceResult<CrashImages> {
        let mut random = fastrand::Rng::with_seed(seed);
        let durable =
            |kind: &EventKind| matches!(kind, EventKind::Flush | EventKind::WriteDurable { .. });
        let mut boundaries: Vec<usize> =
            (1..=events.len()).filter(|&cut| durable(&events[cut - 1].kind)).collect();
        random.shuffle(&mut boundaries);
        let running = base.snapshot();
        let mut snapshots = vec![(0, Arc::new(base.snapshot()))];
        let apart = events.len() / SNAPSHOTS_MAX + 1;
        for (index, event) in events.iter().enumerate() {
            event.kind.apply(&running)?;
            let last = snapshots.last().map_or(0, |(at, _)| *at);
            if event.kind == EventKind::Flush && index + 1 - last >= apart {
                snapshots.push((index + 1, Arc::new(running.snapshot())));
            }
        }
        Ok(CrashImages { events, random, seed, made: 0, boundaries, snapshots, whole: 0..0 })
    }

    /// Never tears a write inside this range, whose size real disks write atomically although they
    /// don't promise it.
    #[must_use]
    pub fn keeping_whole(mut self, range: Range<u64>) -> CrashImages {
        self.whole = range;
        self
    }

    /// A crash right after the first such mark that leaves only what must be there.
    pub fn behind_mark(&mut self, mark: u64) -> Option<DeviceResult<CrashImage>> {
        let kind = EventKind::Mark(mark);
        let place = self.events.iter().position(|event| event.kind == kind)?;
        Some(self.image(place + 1, Loss::Everything))
    }

    fn image(&mut self, cut: usize, loss: Loss) -> DeviceResult<CrashImage> {
        let before = &self.events[..cut];
        let flushed = before
            .iter()
            .rposition(|event| event.kind == EventKind::Flush)
            .map_or(0, |flush| flush + 1);
        let at = self.snapshots.partition_point(|(at, _)| *at <= flushed) - 1;
        let (start, snapshot) = &self.snapshots[at];
        let device = Overlay::new(Arc::clone(snapshot));
        for event in &before[*start..flushed] {
            event.kind.apply(&device)?;
        }
        let volatile: Vec<&EventKind> = before[flushed..].iter().map(|event| &event.kind).collect();
        apply_lossy(&device, &volatile, loss, &self.whole, &mut self.random)?;
        let last_mark = before.iter().rev().find_map(|event| match event.kind {
            EventKind::Mark(mark) => Some(mark),
            _ => None,
        });
        let description = format!(
            "crash image {} of seed {}: cut after {cut} of {} events, {} since the last flush, {loss:?}",
            self.made,
            self.seed,
            self.events.len(),
            cut - flushed,
        );
        Ok(CrashImage { device, last_mark, events_before: cut, description })
    }
}

impl Iterator for CrashImages {
    type Item = DeviceResult<CrashImage>;

    fn next(&mut self) -> Option<DeviceResult<CrashImage>> {
        let boundary = if self.made.is_multiple_of(2) { self.boundaries.pop() } else { None };
        let (cut, loss) = match boundary {
            Some(cut) => (cut, Loss::Nothing),
            None => {
                let cut = self.random.usize(..=self.events.len());
                (cut, RANDOM_LOSSES[self.random.usize(..RANDOM_LOSSES.len())])
            }
        };
        let image = self.image(cut, loss);
        self.made += 1;
        Some(image)
    }
}

/// Applies durable writes, and of the others what `loss` says, in order.
fn apply_lossy(
    device: &impl BlockDevice,
    events: &[&EventKind],
    loss: Loss,
    whole: &Range<u64>,
    random: &mut fastrand::Rng,
) -> DeviceResult {
    if loss == Loss::LastTorn {
        let Some((last, others)) = events.split_last() else { return Ok(()) };
        apply_lossy(device, others, Loss::Nothing, whole, random)?;
        return apply_torn(device, last, whole, random);
    }
    let is_durable = |event: &EventKind| matches!(event, EventKind::WriteDurable { .. });
    // Writes aren't reordered across a durable write, which had returned before later writes began.
    for run in events.split_inclusive(|event| is_durable(event)) {
        let (durable, volatile) = match run.split_last() {
            Some((last, others)) if is_durable(last) => (Some(last), others),
            _ => (None, run),
        };
        let mut volatile = volatile.to_vec();
        if loss == Loss::SomeReordered {
            random.shuffle(&mut volatile);
        }
        for event in volatile {
            match loss {
                Loss::Nothing | Loss::LastTorn => event.apply(device)?,
                Loss::Everything => {}
                Loss::SomeWrites | Loss::SomeReordered if random.bool() => event.apply(device)?,
                Loss::SomeWrites | Loss::SomeReordered => {}
                Loss::SomeSectors => apply_torn(device, event, whole, random)?,
            }
        }
        if let Some(durable) = durable {
            durable.apply(device)?;
        }
    }
    Ok(())
}

/// Applies some of the sectors that an event changes: a beginning, an end or any of them.
fn apply_torn(
    device: &impl BlockDevice,
    event: &EventKind,
    whole: &Range<u64>,
    random: &mut fastrand::Rng,
) -> DeviceResult {
    let zeros;
    let (offset, data): (u64, &[u8]) = match event {
        EventKind::Write { offset, data } | EventKind::WriteDurable { offset, data } => {
            (*offset, data)
        }
        EventKind::Zero { offset, length } => {
            zeros = vec![0; *length as usize];
            (*offset, &zeros)
        }
        EventKind::Discard { .. } if random.bool() => return event.apply(device),
        EventKind::Discard { .. } | EventKind::Flush | EventKind::Mark(_) => return Ok(()),
    };
    let count = data.len().div_ceil(SECTOR_BYTES);
    let (way, split) = (random.u32(0..3), random.usize(..=count));
    let mut whole_reached = None;
    for (index, sector) in data.chunks(SECTOR_BYTES).enumerate() {
        let place = offset + (index * SECTOR_BYTES) as u64;
        let mut reached = match way {
            0 => index < split,
            1 => index >= split,
            _ => random.bool(),
        };
        if whole.contains(&place) {
            reached = *whole_reached.get_or_insert(reached);
        }
        if reached {
            device.write_at(place, sector)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_blockdev::Recording;

    const BLOCK: usize = 4096;

    /// A log of numbered blocks: block n is written, flushed and marked, for n from 1.
    fn recording(durable: bool) -> (MemoryDevice, Vec<Event>) {
        let base = MemoryDevice::new(64 * BLOCK as u64);
        let device = Recording::new(base.snapshot());
        for n in 1..50_u8 {
            let offset = u64::from(n) * BLOCK as u64;
            let data = [n; BLOCK];
            if durable {
                device.write_durable_at(offset, &data).unwrap();
            } else {
                device.write_at(offset, &data).unwrap();
                // Unflushed until the next round, so it may be lost.
                device.write_at(0, &data).unwrap();
                device.flush().unwrap();
            }
            device.mark(u64::from(n));
        }
        (base, device.take_events())
    }

    fn block(image: &CrashImage, n: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        image.device.read_at(n * BLOCK as u64, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_was_marked_is_there() {
        for durable in [false, true] {
            let (base, events) = recording(durable);
            let mut torn = 0;
            for image in CrashImages::new(&base, events, 5).unwrap().take(400) {
                let image = image.unwrap();
                let marked = image.last_mark.unwrap_or(0);
                for n in 1..=marked {
                    let complete = block(&image, n).iter().all(|&byte| u64::from(byte) == n);
                    assert!(complete, "block {n}: {}", image.description);
                }
                for n in marked + 2..50 {
                    assert_eq!(block(&image, n), [0; BLOCK], "{}", image.description);
                }
                let next = block(&image, marked + 1);
                torn += usize::from(next.contains(&0) && next.iter().any(|&byte| byte != 0));
            }
            assert!(torn > 5, "{torn}");
        }
    }

    #[test]
    fn what_is_whole_is_not_torn() {
        let (base, events) = recording(false);
        let range = 0..BLOCK as u64;
        for image in CrashImages::new(&base, events, 7).unwrap().keeping_whole(range).take(400) {
            let image = image.unwrap();
            let first = block(&image, 0);
            let is_whole = first.iter().all(|&byte| byte == first[0]);
            assert!(is_whole, "{}", image.description);
        }
    }

    #[test]
    fn images_follow_from_the_seed() {
        let (base, events) = recording(false);
        let describe = |seed| -> Vec<(String, Vec<u8>)> {
            let images = CrashImages::new(&base, events.clone(), seed).unwrap();
            images
                .take(30)
                .map(|image| image.unwrap())
                .map(|image| (image.description.clone(), block(&image, 0)))
                .collect()
        };
        assert_eq!(describe(1), describe(1));
        assert_ne!(describe(1), describe(2));
    }

    #[test]
    fn all_boundaries_are_met() {
        let (base, events) = recording(false);
        let images = CrashImages::new(&base, events, 1).unwrap();
        let exact = images
            .take(98)
            .filter(|image| image.as_ref().unwrap().description.ends_with("Nothing"))
            .count();
        assert_eq!(exact, 49);
    }
}
