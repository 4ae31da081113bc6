//! Inodes with a purpose: the journal, the blocks reserved for growth, quota, the orphan file.

use crate::checker::{Checker, InodePass};
use crate::claims::InodeClaims;
use crate::image::{Error, Image};
use crate::issue::{InodeIssue, Issue, SuperblockIssue};
use drystone_ext4_format::block_map;
use drystone_ext4_format::features::{Compat, ReadOnlyCompat};
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};

/// The pointer of an inode that leads to two levels of pointers.
pub(crate) const GROWTH_POINTER: u32 = 13;

/// Blocks of a file that direct pointers lead to. Those of one level of pointers follow, and then those
/// below [`GROWTH_POINTER`].
const FIRST_BELOW_GROWTH_POINTER: u64 = 12;

/// The first inode of all images that the tools make: `lost+found`.
const USUAL_FIRST_INODE: InodeNumber = InodeNumber::new(11);

pub(crate) fn has_resize_inode(image: &Image<'_>) -> bool {
    image.layout.features().compat.contains(Compat::RESIZE_INODE)
}

/// Checks that the resize inode maps exactly the blocks reserved for growth.
///
/// It has one block of its own, of two levels of pointers. The first level's blocks are the
/// reserved blocks of the first group; each points to its copies in the groups with backups.
pub(crate) fn check_resize_inode(
    pass: &mut InodePass<'_, '_>,
    inode: &Inode,
    claims: &mut InodeClaims,
) -> Result<(), Error> {
    let layout = pass.image.layout;
    let number = inode.number;
    let purpose = InodeIssue::Purpose { purpose: "resize inode" };
    let reserved = u64::from(layout.reserved_descriptor_blocks());
    let area = &inode.block_area;
    // A reader that goes by the flags would not find the pointers.
    let mapped_otherwise = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
    let is_plain =
        inode.is_regular() && inode.links_count > 0 && !inode.flags.intersects(mapped_otherwise);
    let has_others = (0..15)
        .filter(|index| *index != GROWTH_POINTER)
        .any(|index| block_map::pointer(area, index, number, None, &layout) != Ok(None));
    let pointer = match block_map::pointer(area, GROWTH_POINTER, number, None, &layout) {
        Ok(Some(block)) if is_plain && !has_others => block,
        Ok(_) => {
            pass.reporter.report(Issue::Inode { inode: number, issue: purpose });
            return Ok(());
        }
        Err(corrupt) => {
            pass.reporter.report(corrupt);
            return Ok(());
        }
    };
    pass.found.claims.claim_block(pointer);
    claims.count += 1;
    let base = layout.group_base(GroupNumber::FIRST);
    let Some(table) = base.descriptors else { return Ok(()) };
    let first = table.get() + u64::from(base.descriptor_blocks);
    let pointers = u64::from(block_map::pointers_per_block(&layout));
    let top = pass.image.read_block(pointer)?;
    let mut blocks = 0;
    // The last block of the file that is mapped.
    let mut end = 0;
    for index in 0..pointers {
        // A reserved block's place is its number among descriptor blocks, modulo the pointers.
        let candidate = table.get() + index;
        let expected = [candidate, candidate + pointers]
            .into_iter()
            .find(|block| (first..first + reserved).contains(block));
        let found = stored(&top, index);
        blocks += u64::from(found != 0);
        if found != expected.unwrap_or(0) {
            report_reserved(pass, number, found, expected.unwrap_or(0));
            continue;
        }
        let Some(block) = expected else { continue };
        if !layout.contains_blocks(PhysicalBlock::new(block), 1) {
            continue;
        }
        let below = pass.image.read_block(PhysicalBlock::new(block))?;
        let copies = check_copies(pass, number, block, &below);
        blocks += copies;
        if let Some(last) = copies.checked_sub(1) {
            end = end.max(FIRST_BELOW_GROWTH_POINTER + (index + 1) * pointers + last);
        }
    }
    claims.count += blocks;
    let (stored, expected) = (inode.size_bytes, (end + 1) * layout.block_size() as u64);
    if end > 0 && stored < end * layout.block_size() as u64 {
        let issue = InodeIssue::Size { stored, expected };
        pass.reporter.report(Issue::Inode { inode: number, issue });
    }
    Ok(())
}

/// Checks that the pointers below a reserved block are its copies in the groups with backups; the
/// first that isn't is reported. Returns how many there are.
fn check_copies(
    pass: &mut InodePass<'_, '_>,
    number: InodeNumber,
    block: u64,
    pointers: &[u8],
) -> u64 {
    let layout = pass.image.layout;
    let mut groups = layout.superblock_groups().skip(1);
    let mut is_told = false;
    let mut blocks = 0;
    for place in 0..u64::from(block_map::pointers_per_block(&layout)) {
        let expected = groups.next().map_or(0, |group| {
            let distance = block - u64::from(layout.first_data_block());
            layout.group_first_block(group).get() + distance
        });
        let found = stored(pointers, place);
        blocks += u64::from(found != 0);
        if found != expected && !is_told {
            report_reserved(pass, number, found, expected);
            is_told = true;
        }
    }
    blocks
}

fn stored(bytes: &[u8], index: u64) -> u64 {
    let pointers = bytes.as_chunks::<4>().0;
    pointers.get(index as usize).map_or(0, |raw| u64::from(u32::from_le_bytes(*raw)))
}

fn report_reserved(pass: &mut InodePass<'_, '_>, inode: InodeNumber, found: u64, expected: u64) {
    let (found, expected) = (PhysicalBlock::new(found), PhysicalBlock::new(expected));
    let issue = InodeIssue::ReservedBlock { found, expected };
    pass.reporter.report(Issue::Inode { inode, issue });
}

/// Checks what a reserved inode is: a file with a purpose, the list of bad blocks, or nothing.
pub(crate) fn check_reserved(pass: &mut InodePass<'_, '_>, inode: &Inode) {
    let number = inode.number;
    let superblock = &pass.image.superblock;
    let mut field = |field, value: u64| {
        let issue = InodeIssue::Field { field, value };
        pass.reporter.report(Issue::Inode { inode: number, issue });
    };
    if number == InodeNumber::BAD_BLOCKS {
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            field("i_flags", u64::from(inode.flags.bits()));
        }
        for (name, value) in [
            ("i_mode", u32::from(inode.mode)),
            ("i_uid", inode.user),
            ("i_gid", inode.group),
            ("i_links_count", u32::from(inode.links_count)),
            ("i_file_acl", inode.attribute_block.map_or(0, |block| block.get() as u32)),
        ] {
            if value != 0 {
                field(name, u64::from(value));
            }
        }
        return;
    }
    let quotas = [
        superblock.user_quota_inode(),
        superblock.group_quota_inode(),
        superblock.project_quota_inode(),
    ];
    let files = [InodeNumber::RESIZE, InodeNumber::BOOT_LOADER, InodeNumber::JOURNAL];
    let may_be_file = files.contains(&number) || quotas.contains(&Some(number));
    if inode.mode != 0 && !(inode.is_regular() && may_be_file) {
        field("i_mode", u64::from(inode.mode));
    }
    let is_for_quota = [InodeNumber::USER_QUOTA, InodeNumber::GROUP_QUOTA].contains(&number);
    let has_quota = superblock.features().read_only_compat.contains(ReadOnlyCompat::QUOTA);
    let is_used = has_quota && quotas.contains(&Some(number));
    if inode.mode == 0
        && let Some(block) = inode.attribute_block
    {
        let (field, value) = ("i_file_acl", block.get());
        let issue = InodeIssue::Field { field, value };
        pass.reporter.report(Issue::Inode { inode: number, issue });
    }
    if is_for_quota && !is_used && (inode.links_count > 0 || inode.sectors > 0) {
        let issue = InodeIssue::ReservedInUse;
        pass.reporter.report(Issue::Inode { inode: number, issue });
    }
}

/// Checks that what is said to be reserved isn't a directory that was made: the root's first, as a rule.
fn check_first_inode(checker: &mut Checker<'_>) -> Result<(), Error> {
    let first = checker.image.layout.first_inode();
    if first > USUAL_FIRST_INODE
        && let Some((inode, _)) = checker.image.inode(USUAL_FIRST_INODE)?
        && inode.is_directory()
        && inode.links_count > 0
    {
        let (field, value) = ("s_first_ino", u64::from(first.get()));
        checker.reporter.report(SuperblockIssue::Field { field, value });
    }
    Ok(())
}

/// Checks that inodes with a purpose can serve it.
pub(crate) fn check(checker: &mut Checker<'_>) -> Result<(), Error> {
    check_first_inode(checker)?;
    let superblock = &checker.image.superblock;
    let features = superblock.features();
    let has_journal = features.compat.contains(Compat::HAS_JOURNAL);
    let has_quota = features.read_only_compat.contains(ReadOnlyCompat::QUOTA);
    let mut purposes = Vec::new();
    if has_journal {
        purposes.extend(superblock.journal_inode().map(|inode| (inode, "journal")));
    }
    if has_quota {
        let quota = [
            superblock.user_quota_inode(),
            superblock.group_quota_inode(),
            superblock.project_quota_inode(),
        ];
        purposes.extend(quota.into_iter().flatten().map(|inode| (inode, "quota file")));
    }
    for (number, purpose) in &purposes {
        let found = checker.image.inode(*number)?;
        let fits = found.is_some_and(|(inode, _)| {
            inode.is_regular() && inode.links_count > 0 && inode.has_block_mapping()
        });
        if !fits {
            let issue = InodeIssue::Purpose { purpose };
            checker.reporter.report(Issue::Inode { inode: *number, issue });
        }
    }
    // A journal without its feature would be lost space.
    let is_needed = purposes.iter().any(|(inode, _)| *inode == InodeNumber::JOURNAL);
    if !is_needed
        && let Some((inode, _)) = checker.image.inode(InodeNumber::JOURNAL)?
        && (inode.links_count > 0 || inode.sectors > 0)
    {
        let issue = InodeIssue::ReservedInUse;
        checker.reporter.report(Issue::Inode { inode: InodeNumber::JOURNAL, issue });
    }
    // One of zeros was not looked at.
    if features.compat.contains(Compat::RESIZE_INODE)
        && checker
            .image
            .inode(InodeNumber::RESIZE)?
            .is_some_and(|(_, bytes)| bytes.iter().all(|&b| b == 0))
    {
        let issue = InodeIssue::Purpose { purpose: "resize inode" };
        checker.reporter.report(Issue::Inode { inode: InodeNumber::RESIZE, issue });
    }
    // Blocks that nothing reserves for growth are free.
    if !features.compat.contains(Compat::RESIZE_INODE)
        && let Some((inode, _)) = checker.image.inode(InodeNumber::RESIZE)?
        && inode.block_area.iter().any(|&byte| byte != 0)
    {
        let issue = InodeIssue::ReservedInUse;
        checker.reporter.report(Issue::Inode { inode: InodeNumber::RESIZE, issue });
    }
    let orphan_file = superblock.orphan_file_inode();
    if !features.compat.contains(Compat::ORPHAN_FILE)
        && let Some(number) = orphan_file
        && let Some((inode, _)) = checker.image.inode(number)?
        && (inode.links_count > 0 || inode.sectors > 0)
    {
        // The journal or a quota file has another reason to be in use.
        if number < checker.image.layout.first_inode()
            || purposes.iter().any(|(inode, _)| *inode == number)
        {
            checker.reporter.report(SuperblockIssue::FieldWithoutFeature {
                field: "s_orphan_file_inum",
                value: number.get().into(),
                feature: "orphan_file",
            });
        } else {
            let issue = InodeIssue::ReservedInUse;
            checker.reporter.report(Issue::Inode { inode: number, issue });
        }
    }
    // These are named by the superblock, not by a directory.
    let named = purposes.iter().map(|(inode, _)| *inode);
    let orphan_file = features
        .compat
        .contains(Compat::ORPHAN_FILE)
        .then(|| checker.image.superblock.orphan_file_inode())
        .flatten();
    // A journal that was added to a mounted file system is a file with a name.
    let first = checker.image.layout.first_inode();
    let file_journal = checker.image.superblock.journal_inode().filter(|inode| *inode >= first);
    for inode in named.chain(orphan_file) {
        if checker.states.is_used(inode) && file_journal != Some(inode) {
            checker.states.add_name(inode);
        }
    }
    Ok(())
}
