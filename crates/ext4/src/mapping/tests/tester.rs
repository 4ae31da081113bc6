//! Changes the mapping of one file, and a model in the same way.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// The physical block of each mapped block of the file, and whether it is unwritten.
pub(super) type Model = BTreeMap<u32, (u64, bool)>;

pub(super) struct Tester {
    pub fs: Ext4,
    pub inode: Arc<Inode>,
    pub model: Model,
    pub random: fastrand::Rng,
    pub context: RequestContext,
}

impl Tester {
    pub fn new(image: &ImageFile, seed: u64) -> Tester {
        Tester::on(image, image.open(), seed)
    }

    /// A tester on a mount of the image, or of a copy of it.
    pub fn on(image: &ImageFile, fs: Ext4, seed: u64) -> Tester {
        let inode = inode_of(image, &fs, "f");
        let mut handle = fs.volume.start(credits::WRITE_RECORD).expect("a handle");
        // With this size the file may have blocks anywhere in the tested range.
        let size_bytes = u64::from(4 * SPAN) * fs.volume.block_size() as u64;
        let resized = inode.update(&fs, &mut handle, |fields| {
            fields.disk.size_bytes = size_bytes;
            Ok(())
        });
        fs.settle(handle, resized).expect("a change of an inode");
        Tester {
            fs,
            inode,
            model: Model::new(),
            random: fastrand::Rng::with_seed(seed),
            context: RequestContext::superuser(),
        }
    }

    pub fn ratio(&self) -> u32 {
        self.fs.volume.layout().blocks_per_cluster()
    }

    /// Maps up to `length` blocks; false if there is no space.
    pub fn insert(&mut self, logical: u32, length: u32) -> bool {
        if self.model.contains_key(&logical) {
            return true;
        }
        let Tester { fs, inode, context, .. } = self;
        let unwritten = has_extents(inode) && self.random.bool();
        let first = LogicalBlock::new(logical);
        let mapped = with_space_retry(&fs.volume, || {
            let _content = inode.content().write();
            let mut handle = fs.volume.start(credits::WRITE)?;
            let done = allocate(fs, &mut handle, context, inode, first, length).and_then(|run| {
                let (physical, length) = (run.physical, run.length);
                let extent = Extent { logical: first, physical, length, unwritten };
                match insert(fs, &mut handle, inode, extent) {
                    Ok(()) => Ok(run),
                    Err(error) => {
                        release_unmapped(fs, &mut handle, inode, &run)?;
                        Err(error)
                    }
                }
            });
            fs.settle(handle, done)
        });
        let run = match mapped {
            Ok(run) => run,
            Err(Error::NoSpace) => return false,
            Err(error) => panic!("{error}"),
        };
        assert!((1..=length).contains(&run.length));
        for skip in 0..run.length {
            let value = (run.physical.get() + u64::from(skip), unwritten);
            assert_eq!(self.model.insert(logical + skip, value), None);
        }
        true
    }

    pub fn remove(&mut self, from: u32, to: u64) {
        let Tester { fs, inode, .. } = self;
        let _content = inode.content().write();
        let mut end = to;
        loop {
            let step = with_space_retry(&fs.volume, || {
                let mut handle = fs.volume.start(credits::CUT)?;
                let step = remove(fs, &mut handle, inode, LogicalBlock::new(from), end);
                fs.settle(handle, step)
            });
            match step.expect("a removal") {
                StepProgress::Done => break,
                StepProgress::More { next } => end = next,
            }
        }
        self.model.retain(|block, _| *block < from || u64::from(*block) >= to);
    }

    pub fn convert(&mut self, logical: u32, length: u32, to_unwritten: bool) {
        let Tester { fs, inode, .. } = self;
        let _content = inode.content().write();
        let first = LogicalBlock::new(logical);
        let mapped = map(fs, inode, first, length).expect("a sound mapping");
        if mapped.physical.is_none() {
            return;
        }
        let mut done = 0;
        while done < mapped.length {
            let first = LogicalBlock::new(logical + done);
            let step = with_space_retry(&fs.volume, || {
                let mut handle = fs.volume.start(credits::WRITE)?;
                let left = mapped.length - done;
                let step = convert(fs, &mut handle, inode, first, left, to_unwritten);
                fs.settle(handle, step)
            });
            done += step.expect("a conversion");
        }
        for (_, (_, unwritten)) in self.model.range_mut(logical..logical + mapped.length) {
            *unwritten = to_unwritten;
        }
    }

    pub fn shift(&mut self, from: u32, length: u32, up: bool) {
        let (ratio, length) = (self.ratio(), length.next_multiple_of(self.ratio()));
        let from = from / ratio * ratio + length;
        if self.model.last_key_value().is_some_and(|(last, _)| last + length >= 4 * SPAN) {
            return;
        }
        let delta = if up { i64::from(length) } else { -i64::from(length) };
        if !up {
            self.remove(from - length, u64::from(from));
        }
        let Tester { fs, inode, .. } = self;
        let _content = inode.content().write();
        let first = LogicalBlock::new(from);
        if up {
            split_at(fs, inode, first).expect("a cut");
        }
        shift(fs, inode, first, delta).expect("a move");
        let moved = self.model.split_off(&from);
        self.model.extend(
            moved.into_iter().map(|(block, value)| ((i64::from(block) + delta) as u32, value)),
        );
    }

    pub fn step(&mut self) {
        let from = self.random.u32(..SPAN);
        let length = self.random.u32(1..30);
        match self.random.u32(..100) {
            0..60 => assert!(self.insert(from, length / 4 + 1)),
            60..85 => self.remove(from, u64::from(from + length)),
            85..95 if has_extents(&self.inode) => {
                self.convert(from, length, from.is_multiple_of(2))
            }
            95..98 if has_extents(&self.inode) => self.shift(from, length, from.is_multiple_of(2)),
            98 => self.remove(from.max(SPAN / 2), END),
            _ => {}
        }
    }

    /// Compares the mapping with the model.
    pub fn check(&mut self) {
        let Tester { fs, inode, .. } = self;
        let mut found = Model::new();
        let mut blocks = BTreeSet::new();
        let mut next = LogicalBlock::FIRST;
        while let Some(extent) = next_extent(fs, inode, next).expect("a sound mapping") {
            for skip in 0..extent.length {
                let physical = extent.physical.get() + u64::from(skip);
                assert!(blocks.insert(physical), "block {physical} is mapped twice");
                found.insert(extent.logical.get() + skip, (physical, extent.unwritten));
            }
            next = LogicalBlock::new(extent.logical_end() as u32);
        }
        assert_eq!(found, self.model);
    }
}
