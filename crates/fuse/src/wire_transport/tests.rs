//! What counts as a request that takes long.

use super::*;
use crate::ServingOptions;
use drystone_sync::Arc;
use drystone_testkit::model::MemoryFileSystem;
use drystone_vfs::{FileSystem, NewNode, RequestContext, SetAttributes};
use rustix::fs::OFlags;
use wire::Opcode;

/// A request that takes long waits for a thread of its own, which a short one isn't worth.
#[test]
fn only_changes_of_much_take_long() {
    let file_system = Arc::new(MemoryFileSystem::default());
    let context = RequestContext::superuser();
    let created = file_system.create(&context, file_system.root(), b"f", NewNode::Regular, 0o644);
    let node = created.unwrap().inode;
    let resize = |size| {
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        file_system.set_attributes(&context, node, &changes).unwrap();
    };
    let operations = Operations::new(Arc::clone(&file_system) as _, ServingOptions::default());
    let takes_long = |operation: Opcode, fixed: &[u8]| {
        let header =
            RequestHeader { operation: operation as u32, node: node.0, ..Default::default() };
        operations.takes_long(&header, fixed)
    };
    let cut = |size| SetAttributesIn { valid: set_valid::SIZE, size, ..Default::default() };
    let open = |flags: OFlags| OpenIn { flags: flags.bits(), ..Default::default() };
    let (emptying, reading) = (open(OFlags::WRONLY | OFlags::TRUNC), open(OFlags::RDONLY));
    for (size, is_long) in [(LONG_RANGE_BYTES, false), (LONG_RANGE_BYTES + 1, true)] {
        resize(size);
        assert_eq!(takes_long(Opcode::SetAttributes, cut(0).as_bytes()), is_long);
        assert!(!takes_long(Opcode::SetAttributes, cut(1).as_bytes()));
        assert!(!takes_long(Opcode::SetAttributes, SetAttributesIn::default().as_bytes()));
        assert_eq!(takes_long(Opcode::Open, emptying.as_bytes()), is_long);
        assert!(!takes_long(Opcode::Open, reading.as_bytes()));
        let range = FallocateIn { length: size, ..Default::default() };
        assert_eq!(takes_long(Opcode::Fallocate, range.as_bytes()), is_long);
    }
    let copy = |length| CopyFileRangeIn { length, ..Default::default() };
    assert!(!takes_long(Opcode::CopyFileRange, copy(COPY_CHUNK_BYTES as u64).as_bytes()));
    assert!(takes_long(Opcode::CopyFileRange, copy(COPY_CHUNK_BYTES as u64 + 1).as_bytes()));
    let control = |command| IoControlIn { command, ..Default::default() };
    assert!(takes_long(Opcode::IoControl, control(0x4008_6610).as_bytes()));
    assert!(!takes_long(Opcode::IoControl, control(0x4008_6602).as_bytes()));
    assert!(!takes_long(Opcode::Write, &[]));
}
