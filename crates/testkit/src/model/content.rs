//! The content of a regular file: which blocks are stored, reserved or holes.

use std::collections::BTreeMap;

use drystone_vfs::{Errno, ExtentFlags, FileExtent, Result};

/// Content in blocks; what isn't in the map is a hole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SparseContent {
    block_size: u64,
    size: u64,
    /// `None`: has space but was not written.
    blocks: BTreeMap<u64, Option<Box<[u8]>>>,
}

impl SparseContent {
    pub(super) fn new(block_size: u32) -> SparseContent {
        SparseContent { block_size: u64::from(block_size), size: 0, blocks: BTreeMap::new() }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Blocks that have space.
    pub(super) fn blocks_used(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// The end of the last block that has space.
    pub(super) fn space_end(&self) -> u64 {
        self.blocks.last_key_value().map_or(0, |(last, _)| (last + 1) * self.block_size)
    }

    /// How many blocks of `offset..end` have no space yet.
    pub(super) fn blocks_missing(&self, offset: u64, end: u64) -> u64 {
        let (first, behind) = (offset / self.block_size, end.div_ceil(self.block_size));
        (behind - first) - self.blocks.range(first..behind).count() as u64
    }

    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let length = (self.size.saturating_sub(offset)).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..length];
        buffer.fill(0);
        let end = offset + length as u64;
        for (&block, bytes) in self.blocks_touching(offset, end) {
            let Some(bytes) = bytes else { continue };
            let start = block * self.block_size;
            let (from, to) = (offset.max(start), end.min(start + self.block_size));
            buffer[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
        }
        length
    }

    fn blocks_touching(
        &self,
        offset: u64,
        end: u64,
    ) -> impl Iterator<Item = (&u64, &Option<Box<[u8]>>)> {
        self.blocks.range(
            offset / self.block_size..end.div_ceil(self.block_size).max(offset / self.block_size),
        )
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let inside = at % self.block_size;
            let count = rest.len().min((self.block_size - inside) as usize);
            let (now, later) = rest.split_at(count);
            let block_size = self.block_size as usize;
            let bytes = self
                .blocks
                .entry(at / self.block_size)
                .or_default()
                .get_or_insert_with(|| vec![0; block_size].into_boxed_slice());
            bytes[inside as usize..inside as usize + count].copy_from_slice(now);
            at += count as u64;
            rest = later;
        }
        self.size = self.size.max(at);
    }

    /// Sets the size; what is cut off reads as zeros when the size grows again.
    pub(super) fn resize(&mut self, size: u64) {
        if size < self.size {
            let end = size.next_multiple_of(self.block_size);
            self.zero_stored(size, end);
        }
        if size <= self.size {
            drop(self.blocks.split_off(&size.div_ceil(self.block_size)));
        }
        self.size = size;
    }

    /// Zeroes bytes of stored blocks; holes and reserved blocks are zero already.
    fn zero_stored(&mut self, offset: u64, end: u64) {
        let block_size = self.block_size;
        if offset >= end {
            return;
        }
        for (&block, bytes) in self.blocks.range_mut(offset / block_size..end.div_ceil(block_size))
        {
            let Some(bytes) = bytes else { continue };
            let start = block * block_size;
            let (from, to) = (offset.max(start), end.min(start + block_size));
            bytes[(from - start) as usize..(to - start) as usize].fill(0);
        }
    }

    /// Gives every block of the range space.
    pub(super) fn allocate(&mut self, offset: u64, length: u64, keep_size: bool) {
        let end = offset + length;
        for block in offset / self.block_size..end.div_ceil(self.block_size) {
            self.blocks.entry(block).or_insert(None);
        }
        if !keep_size {
            self.size = self.size.max(end);
        }
    }

    /// Makes whole blocks of the range holes and zeroes the rest of it. A range that reaches beyond
    /// the end includes the whole last block, but not blocks reserved beyond it.
    pub(super) fn punch(&mut self, offset: u64, length: u64) {
        let mut end = offset + length;
        if end > self.size {
            end = self.size.next_multiple_of(self.block_size);
        }
        if offset >= end {
            return;
        }
        self.zero_stored(offset, end);
        let whole = offset.div_ceil(self.block_size)..end / self.block_size;
        self.blocks.retain(|block, _| !whole.contains(block));
    }

    /// Makes whole blocks of the range reserved and zeroes the rest of it.
    pub(super) fn zero(&mut self, offset: u64, length: u64, keep_size: bool) {
        let end = offset + length;
        self.allocate(offset, length, keep_size);
        self.zero_stored(offset, end);
        for block in offset.div_ceil(self.block_size)..end / self.block_size {
            self.blocks.insert(block, None);
        }
    }

    /// Takes out a range of whole blocks before the end of the file.
    pub(super) fn collapse(&mut self, offset: u64, length: u64) {
        let (first, count) = (offset / self.block_size, length / self.block_size);
        let behind = self.blocks.split_off(&(first + count));
        drop(self.blocks.split_off(&first));
        self.blocks.extend(behind.into_iter().map(|(block, bytes)| (block - count, bytes)));
        self.size -= length;
    }

    /// Puts in a hole of whole blocks before the end of the file.
    pub(super) fn insert(&mut self, offset: u64, length: u64) {
        let behind = self.blocks.split_off(&(offset / self.block_size));
        let count = length / self.block_size;
        self.blocks.extend(behind.into_iter().map(|(block, bytes)| (block + count, bytes)));
        self.size += length;
    }

    /// The first stored byte at or after `offset`.
    pub(super) fn seek_data(&self, offset: u64) -> Result<u64> {
        if offset >= self.size {
            return Err(Errno::ENXIO.into());
        }
        self.blocks
            .range(offset / self.block_size..)
            .find(|(_, bytes)| bytes.is_some())
            .map(|(block, _)| offset.max(block * self.block_size))
            .filter(|&at| at < self.size)
            .ok_or(Errno::ENXIO.into())
    }

    /// The first byte at or after `offset` that isn't stored, or the end.
    pub(super) fn seek_hole(&self, offset: u64) -> Result<u64> {
        if offset >= self.size {
            return Err(Errno::ENXIO.into());
        }
        let mut block = offset / self.block_size;
        while let Some(Some(_)) = self.blocks.get(&block) {
            block += 1;
        }
        Ok(self.size.min(offset.max(block * self.block_size)))
    }

    /// The ranges with space that touch `offset..offset + length`; places are unknown.
    pub(super) fn extents(&self, offset: u64, length: u64, extents_max: usize) -> Vec<FileExtent> {
        let mut all: Vec<FileExtent> = Vec::new();
        for (&block, bytes) in &self.blocks {
            let unwritten =
                if bytes.is_none() { ExtentFlags::UNWRITTEN } else { ExtentFlags::empty() };
            let flags = ExtentFlags::UNKNOWN | unwritten;
            let logical = block * self.block_size;
            match all.last_mut() {
                Some(last) if last.logical + last.length == logical && last.flags == flags => {
                    last.length += self.block_size;
                }
                _ => all.push(FileExtent { logical, physical: 0, length: self.block_size, flags }),
            }
        }
        if let Some(last) = all.last_mut() {
            last.flags |= ExtentFlags::LAST;
        }
        let end = offset.saturating_add(length);
        all.retain(|extent| extent.logical < end && extent.logical + extent.length > offset);
        all.truncate(extents_max);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(content: &SparseContent) -> Vec<u8> {
        let mut buffer = vec![1; content.size() as usize + 10];
        let length = content.read(0, &mut buffer);
        assert_eq!(length as u64, content.size());
        buffer.truncate(length);
        buffer
    }

    /// Every change against a plain vector of bytes.
    #[test]
    fn equals_a_plain_vector() {
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut content = SparseContent::new(16);
            let mut plain: Vec<u8> = Vec::new();
            for _ in 0..60 {
                let offset = random.usize(0..200);
                let length = random.usize(1..70);
                let end = offset + length;
                match random.u32(0..7) {
                    0 | 1 => {
                        let data: Vec<u8> = (0..length).map(|_| random.u8(1..)).collect();
                        content.write(offset as u64, &data);
                        plain.resize(plain.len().max(end), 0);
                        plain[offset..end].copy_from_slice(&data);
                    }
                    2 => {
                        content.resize(offset as u64);
                        plain.resize(offset, 0);
                    }
                    3 => {
                        content.punch(offset as u64, length as u64);
                        let behind = end.min(plain.len());
                        plain[offset.min(behind)..behind].fill(0);
                    }
                    4 => {
                        content.zero(offset as u64, length as u64, false);
                        plain.resize(plain.len().max(end), 0);
                        plain[offset..end].fill(0);
                    }
                    5 if plain.len() > 64 => {
                        content.collapse(16, 32);
                        plain.drain(16..48);
                    }
                    6 if plain.len() > 64 => {
                        content.insert(32, 16);
                        plain.splice(32..32, [0; 16]);
                    }
                    _ => content.allocate(offset as u64, length as u64, true),
                }
                assert_eq!(bytes(&content), plain, "seed {seed}");
            }
        }
    }

    #[test]
    fn hole_behind_the_end_takes_the_last_block() {
        let mut content = SparseContent::new(1024);
        content.write(0, &[1; 1500]);
        content.punch(0, 1500);
        assert_eq!(content.seek_data(0).unwrap(), 1024);
        content.punch(1400, 200);
        assert_eq!(content.blocks_used(), 1, "the hole starts within the block");
        content.punch(1024, 1000);
        assert_eq!(content.blocks_used(), 0);
        assert_eq!(content.size(), 1500);
    }

    #[test]
    fn reserved_counts_as_hole() {
        let mut content = SparseContent::new(1024);
        content.allocate(0, 4096, false);
        content.write(1500, b"x");
        assert_eq!(content.seek_data(0).unwrap(), 1024);
        assert_eq!(content.seek_hole(1500).unwrap(), 2048);
        assert_eq!(content.seek_data(2048).unwrap_err().errno, Errno::ENXIO);
        assert_eq!(content.seek_hole(4096).unwrap_err().errno, Errno::ENXIO);
        let flags: Vec<_> =
            content.extents(0, u64::MAX, 9).iter().map(|e| (e.logical, e.length)).collect();
        assert_eq!(flags, [(0, 1024), (1024, 1024), (2048, 2048)]);
    }
}
