//! What images are built from: tar archives and manifests.

use drystone_mkfs::tree::FileTree;
use drystone_sources::tar::{EntryKind, TarReader};
use drystone_sources::{Manifest, Source};
use std::path::Path;

/// An archive; headers get the checksum that they need, or nothing behind it would be found.
pub fn tar(data: &[u8]) {
    let mut bytes = data.to_vec();
    for block in bytes.as_chunks_mut::<512>().0 {
        if &block[257..262] == b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    let length = bytes.len() as u64;
    let mut reader = TarReader::new("fuzz", &bytes);
    while let Ok(Some(entry)) = reader.next_entry() {
        if let EntryKind::File { size, runs } = entry.kind {
            let mut end = 0;
            for run in runs {
                assert!(run.offset >= end && run.length > 0);
                end = run.offset + run.length;
                assert!(run.position + run.length <= length);
            }
            assert!(end <= size);
        }
    }
}

/// A manifest, applied to a tree without anything, and the same text as a list of sources.
pub fn manifest(data: &[u8]) {
    let directory = Path::new("/nonexistent");
    if let Ok(manifest) = Manifest::parse("fuzz", directory, data) {
        let _ = manifest.apply(&mut FileTree::new());
    }
    let _ = Source::parse_list("fuzz", directory, data);
}
