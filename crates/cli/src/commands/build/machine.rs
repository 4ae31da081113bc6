//! Detects the machine that the programs in a tree are for.

use drystone_mkfs::tree::{FileTree, NodeKind, TreeNodeId};

/// Where programs are looked for, in this order.
const DIRECTORIES: [&str; 4] = ["usr/bin", "bin", "usr/sbin", "sbin"];
/// How many bytes of a program are read: its header names the machine.
const HEADER_BYTES: usize = 20;
const BITS_32: u8 = 1;
const BITS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;

/// The type of a root partition with these files, by the first program that is found, in the order of names.
/// `None` if there is no program, or its machine isn't known.
pub fn root_type(tree: &FileTree) -> Option<&'static str> {
    let directories = DIRECTORIES.iter().filter_map(|path| {
        path.split('/').try_fold(TreeNodeId::ROOT, |at, name| tree.child(at, name.as_bytes()))
    });
    for directory in directories {
        let mut names: Vec<(&[u8], TreeNodeId)> = tree.children(directory).collect();
        names.sort_unstable_by_key(|&(name, _)| name);
        if let Some(header) = names.iter().find_map(|&(_, node)| program_header(tree, node)) {
            return type_of(&header);
        }
    }
    None
}

/// The start of a file, if it is a program.
fn program_header(tree: &FileTree, node: TreeNodeId) -> Option<[u8; HEADER_BYTES]> {
    let node = tree.node(node);
    let (NodeKind::File { .. }, Some(first)) = (node.kind(), node.segments().next()) else {
        return None;
    };
    let mut header = [0; HEADER_BYTES];
    let is_there = first.logical == 0 && first.length >= HEADER_BYTES as u64;
    // What can't be read fails when it is copied.
    let read = tree.source(first.source).read_at(first.object, first.offset, &mut header);
    (is_there && read.is_ok() && header.starts_with(b"\x7fELF")).then_some(header)
}

/// The type for the machine that the header of a program names: `e_machine`, and the class and byte order.
fn type_of(header: &[u8; HEADER_BYTES]) -> Option<&'static str> {
    let (class, order) = (header[4], header[5]);
    let machine = match order {
        LITTLE_ENDIAN => u16::from_le_bytes([header[18], header[19]]),
        _ => u16::from_be_bytes([header[18], header[19]]),
    };
    match (machine, class, order) {
        (62, BITS_64, _) => Some("root-x86-64"),
        (3, ..) => Some("root-x86"),
        (183, ..) => Some("root-arm64"),
        (40, BITS_32, _) => Some("root-arm"),
        (243, BITS_64, _) => Some("root-riscv64"),
        (21, _, LITTLE_ENDIAN) => Some("root-ppc64-le"),
        (22, BITS_64, _) => Some("root-s390x"),
        (258, BITS_64, _) => Some("root-loongarch64"),
        _ => None,
    }
}
