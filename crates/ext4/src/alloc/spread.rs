//! Which group a new inode goes to.
//!
//! Directories are spread so that each has room for its files; files stay with their directory. A
//! top-level directory goes to the region with the fewest directories among those with at least the
//! average of free inodes and free clusters. Another directory goes near its parent, to the first
//! region that isn't crowded. A file goes to its parent's group; when that is full, to another
//! group of the region, and then to groups at doubling distances from a start that depends on the
//! directory.
//!
//! # State
//! None. The choice is made from counts that other threads change meanwhile; a stale count may lead
//! to a worse group, but never to an inode in use, because the caller claims the inode under the
//! group's lock.
//!
//! # Reference
//! The Orlov allocator as described for BSD and ext2/3, over flexible groups ("Inode and block
//! allocation policy" in the kernel's ext4 pages).

use drystone_ext4_format::GroupNumber;

/// The counts of a group that a choice depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupCounts {
    pub free_inodes: u32,
    pub free_clusters: u32,
    pub directories: u32,
}

/// The groups of an image, as a choice needs them.
#[derive(Debug)]
pub(super) struct Spread<F> {
    /// Groups of the image.
    pub groups: u32,
    /// Groups in a region, which is a flexible group, or else one group.
    pub groups_per_region: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Clusters of a group.
    pub clusters_per_group: u32,
    /// The sums over all groups. The caller passes them, because summing costs too much.
    pub image: Totals,
    /// The counts of a group.
    pub counts: F,
}

/// Sums over a region, or over the image.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub free_inodes: u64,
    pub free_clusters: u64,
    pub directories: u64,
}

impl<F: Fn(GroupNumber) -> GroupCounts> Spread<F> {
    /// The group for a top-level directory; `turn` differs from call to call, so that equal regions
    /// take turns.
    pub fn top_directory(&self, turn: u32) -> Option<GroupNumber> {
        let regions = self.regions();
        let average = self.average();
        let mut best = None;
        for region in (0..regions).map(|step| (turn % regions + step) % regions) {
            let totals = self.region(region);
            let suits = totals.free_inodes > 0
                && totals.free_inodes >= average.free_inodes
                && totals.free_clusters >= average.free_clusters;
            if suits && best.is_none_or(|(_, fewest)| totals.directories < fewest) {
                best = Some((region, totals.directories));
                if totals.directories == 0 {
                    break;
                }
            }
        }
        match best {
            Some((region, _)) => self.first_with_inodes(region),
            None => self.any_directory(turn % regions, &average),
        }
    }

    /// The group for a directory whose parent directory is in group `parent`.
    pub fn directory(&self, parent: GroupNumber) -> Option<GroupNumber> {
        let regions = self.regions();
        let average = self.average();
        let per_region = u64::from(self.groups_per_region.min(self.groups));
        let inodes_per_region = per_region * u64::from(self.inodes_per_group);
        let clusters_per_region = per_region * u64::from(self.clusters_per_group);
        let directories_max = average.directories + inodes_per_region / 16;
        let inodes_min = average.free_inodes.saturating_sub(inodes_per_region / 4).max(1);
        let clusters_min = average.free_clusters.saturating_sub(clusters_per_region / 4);
        let own = parent.get() / self.groups_per_region;
        (0..regions)
            .map(|step| (own + step) % regions)
            .find(|&region| {
                let totals = self.region(region);
                totals.directories < directories_max
                    && totals.free_inodes >= inodes_min
                    && totals.free_clusters >= clusters_min
            })
            .and_then(|region| self.first_with_inodes(region))
            .or_else(|| self.any_directory(own, &average))
    }

    /// The group for a file whose directory has inode number `inode` and lies in group `parent`.
    pub fn file(&self, parent: GroupNumber, inode: u32) -> Option<GroupNumber> {
        let suits = |group: &GroupNumber| {
            let counts = (self.counts)(*group);
            counts.free_inodes > 0 && counts.free_clusters > 0
        };
        if suits(&parent) {
            return Some(parent);
        }
        let region = parent.get() / self.groups_per_region;
        if let Some(group) = self.groups_of(region).find(suits) {
            return Some(group);
        }
        // The start depends on the directory, so that directories that share a full group don't
        // fill the next one together.
        let mut place = u64::from(parent.get()) + u64::from(inode);
        let mut step = 1;
        while step < u64::from(self.groups) {
            place += step;
            let group = self.wrapped(place);
            if suits(&group) {
                return Some(group);
            }
            step *= 2;
        }
        (0..self.groups)
            .map(|step| self.wrapped(u64::from(parent.get()) + u64::from(step)))
            .find(|&group| (self.counts)(group).free_inodes > 0)
    }

    /// The first group with a free inode, in the first region from `start` on that has the average
    /// of free inodes, or else any.
    fn any_directory(&self, start: u32, average: &Totals) -> Option<GroupNumber> {
        let regions = self.regions();
        [average.free_inodes.max(1), 1].into_iter().find_map(|least| {
            (0..regions)
                .map(|step| (start + step) % regions)
                .find(|&region| self.region(region).free_inodes >= least)
                .and_then(|region| self.first_with_inodes(region))
        })
    }

    fn wrapped(&self, place: u64) -> GroupNumber {
        // Fits: below the number of groups.
        GroupNumber::new((place % u64::from(self.groups)) as u32)
    }

    fn regions(&self) -> u32 {
        self.groups.div_ceil(self.groups_per_region)
    }

    fn groups_of(&self, region: u32) -> impl Iterator<Item = GroupNumber> + use<F> {
        let first = region * self.groups_per_region;
        let end = first.saturating_add(self.groups_per_region).min(self.groups);
        (first..end).map(GroupNumber::new)
    }

    fn first_with_inodes(&self, region: u32) -> Option<GroupNumber> {
        self.groups_of(region).find(|&group| (self.counts)(group).free_inodes > 0)
    }

    fn region(&self, region: u32) -> Totals {
        self.groups_of(region).map(|group| (self.counts)(group)).fold(
            Totals::default(),
            |totals, counts| Totals {
                free_inodes: totals.free_inodes + u64::from(counts.free_inodes),
                free_clusters: totals.free_clusters + u64::from(counts.free_clusters),
                directories: totals.directories + u64::from(counts.directories),
            },
        )
    }

    /// The average of a region.
    fn average(&self) -> Totals {
        let regions = u64::from(self.regions());
        Totals {
            free_inodes: self.image.free_inodes / regions,
            free_clusters: self.image.free_clusters / regions,
            directories: self.image.directories / regions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: GroupCounts =
        GroupCounts { free_inodes: 100, free_clusters: 1000, directories: 0 };
    const FULL: GroupCounts = GroupCounts { free_inodes: 0, free_clusters: 0, directories: 10 };

    fn spread(
        counts: &[GroupCounts],
        groups_per_region: u32,
    ) -> Spread<impl Fn(GroupNumber) -> GroupCounts + '_> {
        Spread {
            groups: counts.len() as u32,
            groups_per_region,
            inodes_per_group: 100,
            clusters_per_group: 1000,
            image: Totals {
                free_inodes: counts.iter().map(|counts| u64::from(counts.free_inodes)).sum(),
                free_clusters: counts.iter().map(|counts| u64::from(counts.free_clusters)).sum(),
                directories: counts.iter().map(|counts| u64::from(counts.directories)).sum(),
            },
            counts: |group: GroupNumber| counts[group.index()],
        }
    }

    #[test]
    fn top_directories_take_turns() {
        let mut counts = vec![EMPTY; 8];
        for turn in 0..8 {
            let group = spread(&counts, 1).top_directory(turn).unwrap();
            assert_eq!(counts[group.index()].directories, 0);
            counts[group.index()].directories += 1;
        }
        assert!(counts.iter().all(|counts| counts.directories == 1));
    }

    #[test]
    fn directories_stay_near_until_it_is_crowded() {
        let mut counts = vec![EMPTY; 4];
        assert_eq!(spread(&counts, 1).directory(GroupNumber::new(2)), Some(GroupNumber::new(2)));
        counts[2].directories = 30;
        assert_eq!(spread(&counts, 1).directory(GroupNumber::new(2)), Some(GroupNumber::new(3)));
    }

    #[test]
    fn files_stay_with_their_parent() {
        let mut counts = vec![EMPTY; 40];
        let parent = GroupNumber::new(7);
        assert_eq!(spread(&counts, 4).file(parent, 900), Some(parent));
        counts[7] = FULL;
        assert_eq!(spread(&counts, 4).file(parent, 900), Some(GroupNumber::new(4)));
        counts[4..8].fill(FULL);
        let next = spread(&counts, 4).file(parent, 900).unwrap();
        assert_ne!(next, GroupNumber::new(8), "neighbours would meet there");
    }

    #[test]
    fn the_last_inode_is_found() {
        let mut counts = vec![FULL; 50];
        counts[31].free_inodes = 1;
        let last = Some(GroupNumber::new(31));
        for region in [1, 16, 64] {
            let spread = spread(&counts, region);
            assert_eq!(spread.top_directory(3), last);
            assert_eq!(spread.directory(GroupNumber::new(40)), last);
            assert_eq!(spread.file(GroupNumber::new(40), 7), last);
        }
        counts[31].free_inodes = 0;
        assert_eq!(spread(&counts, 16).top_directory(3), None);
        assert_eq!(spread(&counts, 1).file(GroupNumber::new(0), 7), None);
    }
}
