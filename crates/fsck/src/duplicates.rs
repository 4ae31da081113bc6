//! Blocks with more than one owner: who they are.
//!
//! The scan of inodes remembers only which clusters were claimed twice. If there are any, all
//! maps are walked again, and whoever has such a cluster is named.

use crate::checker::Checker;
use crate::claims::InodeClaims;
use crate::image::Error;
use crate::issue::{BlockIssue, Issue, Owner};
use crate::mapping::{self, MapEvent};
use crate::report::Pass;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::features::ReadOnlyCompat;
use std::collections::BTreeMap;
use std::ops::Range;

/// First owners that are remembered; further runs are told with what is known.
const OWNERS_MAX: usize = 1 << 20;

/// The first owner of each run that has several.
#[derive(Default)]
struct FirstOwners(BTreeMap<u64, (u64, Owner)>);

impl FirstOwners {
    /// The owner before, if there was one.
    fn add(&mut self, run: &Range<u64>, owner: Owner) -> Option<Owner> {
        let before = self.0.range(..run.end).next_back();
        if let Some((_, (end, first))) = before
            && *end > run.start
        {
            return Some(*first);
        }
        if self.0.len() < OWNERS_MAX {
            self.0.insert(run.start, (run.end, owner));
        }
        None
    }
}

/// Names the owners of all clusters that were claimed twice.
pub(crate) fn name_owners(checker: &mut Checker<'_>) -> Result<(), Error> {
    if checker.claims.twice.is_empty() {
        return Ok(());
    }
    checker.start_visits();
    let mut owners = FirstOwners::default();
    for range in &checker.claims.fixed {
        let clusters = checker.claims.clusters(range.start, range.end);
        for run in checker.claims.twice.runs(clusters) {
            owners.add(&run, Owner::Fixed(range.part));
        }
    }
    let layout = checker.image.layout;
    let may_share_data = layout.features().read_only_compat.contains(ReadOnlyCompat::SHARED_BLOCKS);
    // Blocks of attributes have one claim, whoever shares them.
    let mut shared = crate::block_set::BlockSet::new(layout.blocks_count());
    for group in layout.groups() {
        let inodes: Vec<InodeNumber> = checker.states.used_in(group).collect();
        for number in inodes {
            let Some((inode, _)) = checker.inode(number)? else { continue };
            let mut runs = Vec::new();
            let mut own = InodeClaims::default();
            let Checker { image, claims, visited, .. } = &mut *checker;
            if inode.has_block_mapping() && number != InodeNumber::RESIZE {
                mapping::walk(image, &inode, visited, &mut |event| match event {
                    MapEvent::Extent(_) if may_share_data => {}
                    MapEvent::Extent(extent) => {
                        runs.extend(claims.twice.runs(own.next(claims, &extent)));
                    }
                    MapEvent::Node(block) => {
                        let cluster = claims.cluster(block.get());
                        runs.extend(claims.twice.runs(cluster..cluster + 1));
                    }
                    MapEvent::Issue(_) => {}
                })?;
            }
            if let Some(block) = inode.attribute_block.filter(|block| shared.insert(block.get())) {
                let cluster = claims.cluster(block.get());
                runs.extend(claims.twice.runs(cluster..cluster + 1));
            }
            let second = Owner::Inode(number);
            for run in runs {
                if let Some(first) = owners.add(&run, second) {
                    let block = checker.claims.block(run.start);
                    let count = (run.end - run.start) << layout.log_cluster_ratio();
                    let issue = BlockIssue::ClaimedTwice { first, second };
                    checker.reporter.report(Issue::Blocks { block, count, issue });
                }
            }
        }
        checker.reporter.step(Pass::Duplicates, u64::from(group.get()) + 1, checker.group_count());
    }
    Ok(())
}
