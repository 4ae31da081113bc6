//! Takes blocks that somebody names, rather than any: those of files that a fast commit speaks of.

use super::super::{Allocator, Reach};
use crate::error::{Error, Result};
use drystone_ext4_format::PhysicalBlock;
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;

impl Allocator {
    /// Marks the clusters that `count` blocks from `start` touch as used. Returns a block that is
    /// used already, if there is one; nothing has changed then.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a block holds fixed metadata or does not exist; `NoSpace` if the image
    /// counts fewer free ones.
    pub fn claim_blocks(
        &self,
        handle: &mut Handle<'_>,
        start: PhysicalBlock,
        count: u64,
    ) -> Result<Option<PhysicalBlock>> {
        let pieces = self.pieces(start, count)?;
        for (number, run) in &pieces {
            let mut state = self.groups[number.index()].state.lock();
            let loaded = state.load(&self.volume, *number)?;
            loaded.load_map(&self.volume, *number, &self.metadata)?;
            let Some(map) = &loaded.map else { unreachable!("the map was loaded") };
            let bits = run.start as usize..run.end as usize;
            if let Some(bit) = bitmap::find_one(map.taken(), bits) {
                return Ok(Some(self.volume.layout.block_of_bit(*number, bit as u32)));
            }
        }
        for (number, run) in pieces {
            let group = &self.groups[number.index()];
            let mut state = group.state.lock();
            let loaded = state.load(&self.volume, number)?;
            let clusters = run.len() as u32;
            let granted = self.free_space.claim(clusters, Reach::All);
            if granted < clusters {
                self.free_space.release(granted);
                return Err(Error::NoSpace);
            }
            self.change(number, loaded).mark_clusters(handle, run.clone(), true)?;
            let Some(map) = &mut loaded.map else { unreachable!("the map was loaded") };
            map.take(run);
            self.note_map(group, map);
        }
        Ok(None)
    }
}
