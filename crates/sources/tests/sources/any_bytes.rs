//! Arbitrary bytes give an error or a tree, never a panic, and take no more memory than they
//! justify.

use crate::made::{Made, seal};
use drystone_mkfs::tree::FileTree;
use drystone_sources::Manifest;
use drystone_sources::tar::TarReader;
use proptest::prelude::*;
use std::path::Path;

fn read(bytes: &Vec<u8>) {
    let mut reader = TarReader::new("any", bytes);
    let mut entries = 0;
    while let Ok(Some(entry)) = reader.next_entry() {
        entries += 1;
        assert!(entry.offset <= bytes.len() as u64);
    }
    assert!(entries * 512 <= bytes.len());
}

/// Archives that are damaged in a few places, with corrected header checksums.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let change = (0..6000_usize, any::<u8>());
    (prop::collection::vec(change, 0..12), any::<bool>()).prop_map(|(changes, seals)| {
        let mut bytes = Made::default()
            .file("a", "text")
            .pax(&[("path", b"b"), ("GNU.sparse.size", b"4"), ("GNU.sparse.map", b"0,4")])
            .file("b", "text")
            .entry("c", b'S', "", b"")
            .entry("L", b'L', "", b"long name")
            .entry("d", b'1', "a", b"")
            .pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.realsize", b"9")])
            .file("e", "1\n0\n9\n")
            .end();
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        if seals {
            for block in bytes.as_chunks_mut::<512>().0 {
                if &block[257..262] == b"ustar" {
                    seal(block);
                }
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        read(&bytes);
    }

    #[test]
    fn damaged_archives_are_read(bytes in damaged()) {
        read(&bytes);
    }

    #[test]
    fn any_manifest_is_read(text in "(?s).{0,200}|(/?[a-c./]{0,5} (type|mode|uid|mtime|device|target|xattr.user.a)(=[a-z0-9:.\\\\]{0,6})?\n){0,8}") {
        if let Ok(manifest) = Manifest::parse("any", Path::new("/nonexistent"), text.as_bytes()) {
            let _ = manifest.apply(&mut FileTree::new());
        }
    }
}
