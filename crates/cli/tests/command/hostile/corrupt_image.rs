//! Images whose bytes are changed.

use crate::support::Fixture;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// An image without checksums, whose bytes are changed.
pub struct CorruptImage {
    pub fixture: Fixture,
    pub file: File,
}

impl CorruptImage {
    /// An image with a file `a` and a directory `d`, and these.
    pub fn new(names: &[&str]) -> CorruptImage {
        let features = "^metadata_csum,^metadata_csum_seed,^dir_index,^64bit,^inline_data";
        let fixture = Fixture::with(&["--size", "16M", "-b", "1K", "-O", features]);
        fixture.fill(&[names, &["a", "d/b", "d/c"]].concat());
        std::fs::remove_dir_all(fixture.path("source")).unwrap();
        let file = File::options().read(true).write(true).open(fixture.path("disk.img")).unwrap();
        CorruptImage { fixture, file }
    }

    pub fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    pub fn word(&self, offset: u64) -> u64 {
        u64::from(u32::from_le_bytes(self.bytes(offset, 4).try_into().unwrap()))
    }

    pub fn put(&self, offset: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, offset).unwrap();
    }

    pub fn put_word(&self, offset: u64, word: u64) {
        self.put(offset, &u32::try_from(word).unwrap().to_le_bytes());
    }

    pub fn block_size(&self) -> u64 {
        1024 << self.word(1024 + 24)
    }

    /// Where the descriptor of a group is.
    pub fn descriptor(&self, group: u64) -> u64 {
        (self.word(1024 + 20) + 1) * self.block_size() + group * 32
    }

    /// Where an inode is.
    pub fn inode(&self, number: u64) -> u64 {
        let per_group = self.word(1024 + 40);
        let size = self.word(1024 + 88) & 0xffff;
        let table = self.word(self.descriptor((number - 1) / per_group) + 8);
        table * self.block_size() + (number - 1) % per_group * size
    }

    pub fn number(&self, path: &str) -> u64 {
        let stat = self.fixture.line(&format!("stat --json disk.img:{path}")).json();
        stat["inode"].as_u64().unwrap()
    }

    /// Where the first extent of an inode starts.
    pub fn first_block(&self, number: u64) -> u64 {
        self.word(self.inode(number) + 40 + 12 + 8)
    }

    /// The last free blocks of the image, `count` in a row, by the bitmap of its last group.
    pub fn free_blocks(&self, count: u64) -> u64 {
        let (blocks, per_group) = (self.word(1024 + 4), self.word(1024 + 32));
        let first = self.word(1024 + 20);
        let group = (blocks - 1 - first) / per_group;
        let bitmap = self.word(self.descriptor(group)) * self.block_size();
        let bytes = self.bytes(bitmap, self.block_size() as usize);
        let start = first + group * per_group;
        let is_free =
            |block: &u64| bytes[(block - start) as usize / 8] >> ((block - start) % 8) & 1 == 0;
        let mut run = 0;
        let found = (start..blocks).rev().find(|block| {
            run = if is_free(block) { run + 1 } else { 0 };
            run == count
        });
        found.unwrap()
    }

    /// Where the record of a name is, in the first block of its directory.
    pub fn record(&self, directory: u64, name: &[u8]) -> u64 {
        let start = self.first_block(directory) * self.block_size();
        let bytes = self.bytes(start, self.block_size() as usize);
        let is_it =
            |at: &usize| bytes[*at..].starts_with(name) && usize::from(bytes[at - 2]) == name.len();
        let at = (8..bytes.len() - name.len()).find(is_it).unwrap();
        start + at as u64 - 8
    }

    /// Lets a name stand for another inode of a type: 1 for files, 2 for directories.
    pub fn point(&self, directory: u64, name: &[u8], number: u64, file_type: u8) {
        let record = self.record(directory, name);
        self.put_word(record, number);
        self.put(record + 7, &[file_type]);
    }
}
