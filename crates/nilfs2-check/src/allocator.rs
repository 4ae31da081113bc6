//! Files of numbered entries: free counts, bitmaps, and that each entry in use has its block.

use crate::image::Image;
use crate::issue::{AllocatorIssue, Nilfs2Issue};
use crate::maps::FileBlocks;
use crate::report::Reporter;
use drystone_blockdev::DeviceError;
use drystone_nilfs2_format::InodeNumber;
use drystone_nilfs2_format::allocator::{DESCRIPTOR_BYTES, EntryBlock, EntryLayout};
use drystone_ondisk::bitmap;

/// What is done with each entry in use: its number and its bytes.
pub(crate) type EntryVisitor<'a> =
    dyn FnMut(u64, &[u8], &mut Reporter) -> Result<(), DeviceError> + 'a;

/// Checks a file of numbered entries of which the first `reserved` are always in use.
pub(crate) fn check(
    image: &Image<'_>,
    file: InodeNumber,
    layout: &EntryLayout,
    blocks: &FileBlocks,
    reserved: u64,
    reporter: &mut Reporter,
    visit: &mut EntryVisitor<'_>,
) -> Result<(), DeviceError> {
    let wrong = |group, issue| Nilfs2Issue::Allocator { file, group, issue };
    if blocks.get(layout.bitmap(0)).is_none() {
        reporter.report(wrong(0, AllocatorIssue::ReservedFree { entry: 0 }));
    }
    for (key, place) in blocks.iter() {
        match layout.role_of(key) {
            EntryBlock::Descriptors { first_group } => {
                let counts = image.read_block(place)?;
                for group in first_group..first_group + layout.groups_per_descriptor_block() {
                    let bytes = bitmap_of(image, layout, blocks, group)?;
                    let counted = bytes.map_or(layout.entries_per_group(), |bytes| {
                        bitmap::count_zeros(&bytes, 0..bytes.len() * 8) as u64
                    });
                    let (_, at) = layout.descriptor(group);
                    let mut stored = [0; DESCRIPTOR_BYTES];
                    stored.copy_from_slice(&counts[at..at + DESCRIPTOR_BYTES]);
                    let stored = u32::from_le_bytes(stored);
                    if u64::from(stored) != counted {
                        reporter
                            .report(wrong(group, AllocatorIssue::FreeCount { stored, counted }));
                    }
                }
            }
            EntryBlock::Bitmap { group } => {
                let bits = image.read_block(place)?;
                let reserved = reserved.min(layout.entries_per_group());
                let free = (0..reserved).find(|entry| !bitmap::test(&bits, *entry as usize));
                if let Some(entry) = free.filter(|_| group == 0) {
                    reporter.report(wrong(group, AllocatorIssue::ReservedFree { entry }));
                }
                let (descriptor, _) = layout.descriptor(group);
                if blocks.get(descriptor).is_none() {
                    let counted = bitmap::count_zeros(&bits, 0..bits.len() * 8) as u64;
                    // Without counts, all is free.
                    let stored = layout.entries_per_group() as u32;
                    reporter.report(wrong(group, AllocatorIssue::FreeCount { stored, counted }));
                }
                if let Some(entry) =
                    visit_group(image, layout, blocks, group, &bits, reporter, visit)?
                {
                    reporter.report(wrong(group, AllocatorIssue::Missing { entry }));
                }
            }
            EntryBlock::Entries { .. } => {}
        }
    }
    Ok(())
}

fn bitmap_of(
    image: &Image<'_>,
    layout: &EntryLayout,
    blocks: &FileBlocks,
    group: u64,
) -> Result<Option<Vec<u8>>, DeviceError> {
    blocks.get(layout.bitmap(group)).map(|place| image.read_block(place)).transpose()
}

/// Visits the entries of a group; the first whose block is missing.
fn visit_group(
    image: &Image<'_>,
    layout: &EntryLayout,
    blocks: &FileBlocks,
    group: u64,
    bits: &[u8],
    reporter: &mut Reporter,
    visit: &mut EntryVisitor<'_>,
) -> Result<Option<u64>, DeviceError> {
    let mut missing = None;
    let mut held = None;
    for bit in (0..bits.len() * 8).filter(|bit| bitmap::test(bits, *bit)) {
        let first = group.saturating_mul(layout.entries_per_group());
        let entry = first.saturating_add(bit as u64);
        let (key, at) = layout.entry(entry);
        if held.as_ref().is_none_or(|(held, _)| *held != key) {
            let bytes = blocks.get(key).map(|place| image.read_block(place)).transpose()?;
            held = Some((key, bytes));
        }
        match &held {
            Some((_, Some(bytes))) => visit(entry, &bytes[at..], reporter)?,
            _ => missing = missing.or(Some(entry)),
        }
    }
    Ok(missing)
}
