//! Names the owners of blocks that have more than one.
//!
//! The scan of inodes remembers only which clusters were claimed twice. If there are any, all
//! maps are walked again, and every owner of such a cluster is reported.

use crate::block_set::BlockSet;
use crate::checker::{Checker, Findings};
use crate::claims::{Claims, InodeClaims};
use crate::image::Error;
use crate::inode_content;
use crate::issue::{BlockIssue, Issue, Owner};
use crate::mapping::{self, MapEvent};
use crate::report::{Pass, Reporter};
use crate::special::{self, GROWTH_POINTER};
use drystone_ext4_format::features::ReadOnlyCompat;
use drystone_ext4_format::{InodeNumber, block_map};
use std::collections::BTreeMap;
use std::ops::Range;

/// First owners that are remembered; further runs are told with what is known.
const OWNERS_MAX: usize = 1 << 20;

/// The first owner of each run that has several.
#[derive(Default)]
struct FirstOwners(BTreeMap<u64, (u64, Owner)>);

impl FirstOwners {
    fn find(&self, run: &Range<u64>) -> Option<Owner> {
        let (_, (end, first)) = self.0.range(..run.end).next_back()?;
        (*end > run.start).then_some(*first)
    }

    /// The owner before, if there was one.
    fn add(&mut self, run: &Range<u64>, owner: Owner) -> Option<Owner> {
        if let Some(first) = self.find(run) {
            return Some(first);
        }
        if self.0.len() < OWNERS_MAX {
            self.0.insert(run.start, (run.end, owner));
        }
        None
    }
}

/// Names the owners of all clusters that were claimed twice.
pub(crate) fn name_owners(checker: &mut Checker<'_>) -> Result<(), Error> {
    if checker.found.claims.twice.is_empty() {
        return Ok(());
    }
    checker.start_visits();
    let mut owners = FirstOwners::default();
    for range in &*checker.found.claims.fixed {
        let clusters = checker.found.claims.clusters(range.start, range.end);
        for run in checker.found.claims.twice.runs(clusters) {
            owners.add(&run, Owner::Fixed(range.part));
        }
    }
    let layout = checker.image.layout;
    let may_share_data = layout.features().read_only_compat.contains(ReadOnlyCompat::SHARED_BLOCKS);
    // Blocks of attributes have one claim, however many inodes share them.
    let mut shared = BlockSet::within(layout.blocks_count(), &checker.memory);
    let mut told = BlockSet::within(layout.blocks_count(), &checker.memory);
    let has_growth = special::has_resize_inode(&checker.image);
    // What is kept says which inodes have no part in it.
    let without = checker.kept.as_ref().map(|kept| kept.runs_without(&checker.found.claims.twice));
    let without = without.unwrap_or_default();
    for group in layout.groups() {
        let Checker { image, reporter, states, found, .. } = &mut *checker;
        let Findings { claims, visited, .. } = found;
        let inodes = without.rest_of(states.used_in(group));
        image.visit_inodes(inodes, |inode| {
            let number = inode.number;
            let mut runs = Vec::new();
            let mut own = InodeClaims::default();
            let maps_growth = number == InodeNumber::RESIZE && has_growth;
            if maps_growth {
                let found =
                    block_map::pointer(&inode.block_area, GROWTH_POINTER, number, None, &layout);
                if let Ok(Some(block)) = found {
                    let cluster = claims.cluster(block.get());
                    runs.extend(claims.twice.runs(cluster..cluster + 1));
                }
            } else if inode_content::maps_blocks(&inode, &layout) {
                mapping::walk(image, &inode, visited, &mut |event| match event {
                    MapEvent::Extent(_) if may_share_data => {}
                    MapEvent::Extent(extent) => {
                        runs.extend(claims.twice.runs(own.next(claims, &extent)));
                    }
                    MapEvent::Node(block) => {
                        let cluster = claims.cluster(block.get());
                        runs.extend(claims.twice.runs(cluster..cluster + 1));
                    }
                    MapEvent::Issue(_) | MapEvent::Misplaced(_) => {}
                })?;
            }
            if let Some(block) = inode.attribute_block.filter(|block| shared.insert(block.get())) {
                let cluster = claims.cluster(block.get());
                runs.extend(claims.twice.runs(cluster..cluster + 1));
            }
            let second = Owner::Inode(number);
            for run in runs {
                if let Some(first) = owners.add(&run, second) {
                    report(claims, reporter, &run, first, second);
                    told.add_range(run);
                }
            }
            Ok(())
        })?;
        shared.check_memory()?;
        told.check_memory()?;
        checker.found.check_memory()?;
        checker.reporter.step(Pass::Duplicates, u64::from(group.get()) + 1, checker.group_count());
    }
    if !may_share_data {
        report_rest(checker, &told, &owners);
    }
    Ok(())
}

/// Reports what was claimed twice, but not found with two owners again: nothing goes untold.
fn report_rest(checker: &mut Checker<'_>, told: &BlockSet, owners: &FirstOwners) {
    for run in checker.found.claims.twice.all_runs().collect::<Vec<_>>() {
        let mut from = run.start;
        let mut known = told.runs(run.clone()).into_iter();
        while from < run.end {
            let next = known.next();
            let rest = from..next.as_ref().map_or(run.end, |next| next.start);
            from = next.map_or(run.end, |next| next.end);
            if !rest.is_empty() {
                let first = owners.find(&rest).unwrap_or(Owner::Unknown);
                report(&checker.found.claims, &mut checker.reporter, &rest, first, Owner::Unknown);
            }
        }
    }
}

fn report(
    claims: &Claims,
    reporter: &mut Reporter<'_>,
    run: &Range<u64>,
    first: Owner,
    second: Owner,
) {
    let block = claims.block(run.start);
    let count = claims.block(run.end).get() - block.get();
    reporter.report(Issue::Blocks {
        block,
        count,
        issue: BlockIssue::ClaimedTwice { first, second },
    });
}
