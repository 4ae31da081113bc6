//! The state of a check, and the order of its passes.

use crate::block_set::BlockSet;
use crate::claims::Claims;
use crate::directories::Directories;
use crate::image::{Error, Image};
use crate::inode_states::InodeStates;
use crate::orphans::Orphans;
use crate::quota::Usage;
use crate::report::{Options, Pass, Progress, Report, Reporter};
use crate::xattrs::AttributeUse;
use crate::{
    bitmaps, directories, duplicates, groups, inodes, links, orphans, paths, quota, replay,
    special, superblock, xattrs,
};
use drystone_blockdev::{BlockDevice, Overlay};
use drystone_ext4_format::group::{GroupDescriptor, GroupFlags};
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::superblock::StateFlags;
use drystone_ext4_format::{GroupNumber, InodeNumber};

/// One group: its descriptor, and what of it can be used.
#[derive(Debug)]
pub(crate) struct GroupState {
    pub descriptor: GroupDescriptor,
    /// The flags that mean something in this image.
    pub flags: GroupFlags,
    pub has_block_bitmap: bool,
    pub has_inode_bitmap: bool,
    pub has_inode_table: bool,
    /// Directories found in the group.
    pub directories: u32,
}

/// Everything that passes hand on.
pub(crate) struct Checker<'a> {
    pub image: Image<'a>,
    pub reporter: Reporter<'a>,
    pub groups: Vec<GroupState>,
    pub claims: Claims,
    pub states: InodeStates,
    /// Nodes of maps and blocks of attributes that the current pass has read.
    pub visited: BlockSet,
    pub directories: Directories,
    pub orphans: Orphans,
    pub attributes: AttributeUse,
    pub usage: Usage,
    /// Whether a regular file is of 2 GiB or more.
    pub has_large_file: bool,
    /// Whether the superblock's counters must be right: an image in use has them elsewhere.
    pub counts_settled: bool,
}

impl Checker<'_> {
    /// The bytes of an inode, if its table can be read.
    pub fn inode_bytes(&self, inode: InodeNumber) -> Result<Option<Vec<u8>>, Error> {
        let Ok(group) = self.image.layout.group_of_inode(inode) else { return Ok(None) };
        let state = &self.groups[group.index()];
        if !state.has_inode_table {
            return Ok(None);
        }
        Ok(self.image.read_inode_bytes(inode, state.descriptor.inode_table)?)
    }

    /// Reads an inode, whether it is in use or not.
    pub fn inode(&self, number: InodeNumber) -> Result<Option<(Inode, Vec<u8>)>, Error> {
        let Some(bytes) = self.inode_bytes(number)? else { return Ok(None) };
        let inode = self.image.parse_inode(&bytes, number).ok();
        Ok(inode.map(|inode| (inode, bytes)))
    }

    /// Forgets which blocks were read, for a pass that reads them again.
    pub fn start_visits(&mut self) {
        self.visited = BlockSet::new(self.image.layout.blocks_count());
    }

    pub fn group_count(&self) -> u64 {
        u64::from(self.image.layout.group_count())
    }
}

/// Checks the image on a device. Nothing is written.
///
/// # Errors
/// The device fails, or it holds nothing that could be checked. Whatever is wrong with the image
/// is in the report.
pub fn check(
    device: &dyn BlockDevice,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Report, Error> {
    let mut reporter = Reporter::new(options, progress);
    reporter.step(Pass::Groups, 0, 1);
    let Some(found) = superblock::find(device, &mut reporter)? else { return Ok(reporter.report) };
    let needs_recovery =
        found.features().incompat.contains(drystone_ext4_format::features::Incompat::RECOVER);
    let image = Image::new(device, found);
    if !superblock::check_size(&image, &mut reporter) {
        return Ok(reporter.report);
    }
    let overlay = Overlay::new(device);
    let replayed = replay::run(&image, &overlay, options.replay, &mut reporter)?;
    let image = if replayed {
        let Some(found) = superblock::find(&overlay, &mut reporter)? else {
            return Ok(reporter.report);
        };
        let image = Image::new(&overlay, found);
        if !superblock::check_size(&image, &mut reporter) {
            return Ok(reporter.report);
        }
        image
    } else {
        image
    };
    let is_clean = image.superblock.state().contains(StateFlags::CLEAN);
    let Some(groups) = groups::load(&image, &mut reporter)? else { return Ok(reporter.report) };
    let layout = image.layout;
    let mut checker = Checker {
        image,
        reporter,
        groups,
        claims: Claims::new(&layout),
        states: InodeStates::new(&layout),
        visited: BlockSet::new(layout.blocks_count()),
        directories: Directories::default(),
        orphans: Orphans::default(),
        attributes: AttributeUse::default(),
        usage: Usage::default(),
        has_large_file: false,
        counts_settled: is_clean && !needs_recovery,
    };
    run(&mut checker)?;
    Ok(checker.reporter.report)
}

fn run(checker: &mut Checker<'_>) -> Result<(), Error> {
    superblock::check(checker);
    superblock::check_backups(checker)?;
    groups::claim(checker)?;
    orphans::load(checker)?;
    checker.reporter.step(Pass::Groups, 1, 1);
    inodes::scan(checker)?;
    special::check(checker)?;
    superblock::check_large_files(checker);
    orphans::check(checker);
    xattrs::check_references(checker)?;
    duplicates::name_owners(checker)?;
    checker.start_visits();
    directories::check(checker)?;
    links::check(checker)?;
    bitmaps::check(checker)?;
    quota::check(checker)?;
    summarize(checker);
    paths::resolve(checker)
}

fn summarize(checker: &mut Checker<'_>) {
    let layout = checker.image.layout;
    let label = checker.image.superblock.volume_name();
    let label = String::from_utf8_lossy(label).into_owned();
    let summary = &mut checker.reporter.report.summary;
    summary.label = label;
    summary.inodes_total = u64::from(layout.inodes_count());
    summary.blocks_total = layout.blocks_count();
    summary.inodes_used = layout
        .groups()
        .map(|group: GroupNumber| checker.states.used_in(group).count() as u64)
        .sum();
}
