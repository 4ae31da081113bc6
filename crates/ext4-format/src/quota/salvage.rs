//! The entries of a damaged quota file.
//!
//! Without a head, the root is still block 1. If the blocks that lead to entries are lost, those of entries are known by
//! two signs. Their headers count what they hold. And each entry has a reference in a block of the tree, at the index
//! that is the last byte of its id, while a block of the tree has only one reference to itself. So a block with several
//! entries is one if two of them have their references. (A block of the tree can't be taken for one with a single entry:
//! it would refer to the root.)
//!
//! # Reference
//! As for [the format](super).

use super::file::{ENTRIES_PER_BLOCK, QuotaFile, REFERENCES, ROOT, entry_at, is_unused, split};
use super::raw::{RawDataBlockHeader, RawQuotaEntry};
use super::{QuotaBlock, QuotaBlocks, QuotaEntry};
use std::collections::{BTreeMap, BTreeSet};

/// References that show that a block has several entries.
const REFERENCES_MIN: usize = 2;

impl<B: QuotaBlocks> QuotaFile<B> {
    /// The entries that can be read, in the order of ids, and how many can't: references that lead to none, and what
    /// looks like entries, but may be none. If something is wrong with the tree, they include entries that it doesn't
    /// lead to.
    ///
    /// # Errors
    /// What the storage reports.
    pub fn readable_entries(&mut self) -> Result<(Vec<QuotaEntry>, u64), B::Error> {
        let (mut entries, mut lost) = (BTreeMap::new(), 0_u64);
        self.for_each_entry(|entry| {
            match entry {
                Ok(entry) => drop(entries.insert(entry.id, entry)),
                Err(_) => lost += 1,
            }
            Ok(())
        })?;
        // A sound tree leads to all.
        if lost > 0 || entries.is_empty() {
            let before = entries.len();
            let doubtful = self.add_stranded(&mut entries)?;
            // Each found entry is what a reference led to, directly or not.
            lost = lost.saturating_sub((entries.len() - before) as u64) + doubtful;
        }
        Ok((entries.into_values().collect(), lost))
    }

    /// Adds entries that the tree doesn't lead to. Returns how many others there may be.
    fn add_stranded(&mut self, entries: &mut BTreeMap<u32, QuotaEntry>) -> Result<u64, B::Error> {
        // The last bytes of the ids whose references haven't been met.
        let mut possible: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for block in ROOT + 1..self.info.blocks {
            if let Some(found) = entries_in(&self.blocks.read(block)?) {
                possible.insert(block, found.iter().map(|raw| raw.id.get() as u8).collect());
            }
        }
        for block in ROOT + 1..self.info.blocks {
            let bytes = self.blocks.read(block)?;
            for index in 0..REFERENCES {
                let Ok(Some(target)) = self.reference(block, &bytes, index) else { continue };
                let Some(wanted) = possible.get_mut(&target) else { continue };
                if let Some(met) = wanted.iter().position(|&byte| usize::from(byte) == index) {
                    wanted.swap_remove(met);
                }
            }
        }
        let mut doubtful = 0;
        for (block, wanted) in possible {
            let found = entries_in(&self.blocks.read(block)?).unwrap_or_default();
            let is_sure = found.len() - wanted.len() >= REFERENCES_MIN.min(found.len());
            for raw in found {
                let id = raw.id.get();
                if is_sure {
                    entries.entry(id).or_insert_with(|| QuotaEntry::from(&raw));
                } else if !entries.contains_key(&id) {
                    doubtful += 1;
                }
            }
        }
        Ok(doubtful)
    }
}

/// The entries of a block that may be one of entries.
fn entries_in(bytes: &QuotaBlock) -> Option<Vec<RawQuotaEntry>> {
    let header = split::<RawDataBlockHeader>(bytes).0;
    let used = (0..usize::from(ENTRIES_PER_BLOCK)).filter(|&slot| !is_unused(bytes, slot));
    let found: Vec<RawQuotaEntry> = used.map(|slot| entry_at(bytes, slot)).collect();
    let ids: BTreeSet<u32> = found.iter().map(|raw| raw.id.get()).collect();
    let is_one = !found.is_empty()
        && found.len() == usize::from(header.entries.get())
        && ids.len() == found.len()
        && (header.padding.get(), header.padding2.get()) == (0, 0)
        && found.iter().all(|raw| raw.padding.get() == 0);
    is_one.then_some(found)
}
