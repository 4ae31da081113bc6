//! The entries of the DAT: whether blocks can be where they are said to be, and that no two are in one
//! place.

use crate::allocator;
use crate::dat::{Dat, Places};
use crate::image::Image;
use crate::issue::{Nilfs2Issue, PlaceIssue, VirtualBlockIssue};
use crate::report::Reporter;
use crate::usages::Usages;
use drystone_blockdev::DeviceError;
use drystone_nilfs2_format::dat::DatEntry;
use drystone_nilfs2_format::{CheckpointNumber, InodeNumber, VirtualBlock};

/// Number 0 stands for a hole.
const RESERVED: u64 = 1;

/// Checks all entries in use, and notes where they are.
pub(crate) fn check(
    image: &Image<'_>,
    dat: &Dat,
    newest: CheckpointNumber,
    usages: &Usages,
    places: &mut Places,
    reporter: &mut Reporter,
) -> Result<(), DeviceError> {
    let data = dat.blocks.iter().map(|(_, place)| place);
    for block in data.chain(dat.nodes.keys().copied()) {
        if let Some(issue) = usages.place_issue(image, block) {
            reporter.report(Nilfs2Issue::Block { block, issue });
        }
    }
    let (file, layout, blocks) = (InodeNumber::DAT, &dat.layout, &dat.blocks);
    let mut visit = |number, bytes: &[u8], reporter: &mut Reporter| {
        if number >= RESERVED {
            let number = VirtualBlock(number);
            check_entry(image, number, bytes, newest, usages, places, reporter);
        }
        Ok(())
    };
    allocator::check(image, file, layout, blocks, RESERVED, reporter, &mut visit)
}

fn check_entry(
    image: &Image<'_>,
    number: VirtualBlock,
    bytes: &[u8],
    newest: CheckpointNumber,
    usages: &Usages,
    places: &mut Places,
    reporter: &mut Reporter,
) {
    let DatEntry { block: place, start, end } =
        match DatEntry::check(bytes, number, &image.geometry) {
            Ok(entry) => entry,
            Err(corrupt) => return reporter.report(corrupt),
        };
    let mut wrong = |issue| reporter.report(Nilfs2Issue::VirtualBlock { block: number, issue });
    if place.0 == 0 {
        // Allocated, and never written.
        if (start, end) != (CheckpointNumber(1), CheckpointNumber::MAX) {
            wrong(VirtualBlockIssue::NoPlace { start, end });
        }
        return;
    }
    if start > newest || end > newest && end != CheckpointNumber::MAX {
        wrong(VirtualBlockIssue::Future { start, end, newest });
    }
    if end == CheckpointNumber::MAX {
        places.live.insert(number.0);
    }
    places.count += 1;
    let issue = usages.place_issue(image, place);
    let issue = issue.or_else(|| (!places.taken.insert(place.0)).then_some(PlaceIssue::Twice));
    if let Some(issue) = issue {
        wrong(VirtualBlockIssue::Place { place, issue });
    }
}
