//! The five criteria by which groups are tried, from strict to loose, and one more that
//! `block-goal=own-group` puts before them.

use super::super::group::BlockGroup;
use super::super::statistics::Count;
use crate::alloc::group_index::IndexedSize;
use drystone_ext4_format::InodeNumber;
use drystone_sync::atomic::Ordering;

/// How often the wanted length is halved before any free run will do.
const TRIMS_MAX: u32 = 3;
/// The order of the free run that a group must have for a stream to move there. With room for the
/// next run alone, streams would keep meeting in the gaps that others have left.
const STAY_ORDER: u32 = 11;

/// Which groups are tried, and which run is taken there. Lengths are in clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Criterion {
    /// Before 0, for a stream with `block-goal=own-group`: the group that it is in, and groups
    /// without a stream that have more room.
    Apart(u32, InodeNumber),
    /// 0: groups with an aligned free run of an order that holds the wanted length.
    Order(u32),
    /// 1: groups whose free runs are long enough on average.
    Average(u32),
    /// 2: the same, for less than the wanted length.
    Trimmed(u32),
    /// 3: groups with any free run; the longest is taken.
    AnyRun,
    /// 4: groups with any free cluster, waiting for their locks.
    AnyCluster,
}

impl Criterion {
    /// The criterion before the five, for a stream that keeps apart from others.
    pub fn apart(wanted: u32, stream: InodeNumber) -> Criterion {
        Criterion::Apart(wanted.next_power_of_two().ilog2(), stream)
    }

    /// The five criteria for a wanted length, in order.
    pub fn all(wanted: u32) -> impl Iterator<Item = Criterion> {
        let trimmed = (1..=TRIMS_MAX)
            .map(move |halvings| wanted >> halvings)
            .filter(|&length| length > 1)
            .map(Criterion::Trimmed);
        [Criterion::Order(wanted.next_power_of_two().ilog2()), Criterion::Average(wanted)]
            .into_iter()
            .chain(trimmed)
            .chain([Criterion::AnyRun, Criterion::AnyCluster])
    }

    /// The shortest run to take.
    pub fn least(self, wanted: u32) -> u32 {
        match self {
            Criterion::Apart(..) | Criterion::Order(_) => wanted,
            Criterion::Average(length) | Criterion::Trimmed(length) => length,
            Criterion::AnyRun | Criterion::AnyCluster => 1,
        }
    }

    /// Whether nothing looser is left to try.
    pub fn is_last(self) -> bool {
        self == Criterion::AnyCluster
    }

    /// Whether to look into a group, going by hints that are read without its lock.
    pub fn allows(self, group: &BlockGroup) -> bool {
        match self {
            Criterion::Apart(order, stream) => match group.stream.load(Ordering::Relaxed) {
                0 => group.has_order(order.max(STAY_ORDER)),
                here => here == stream.get() && group.has_order(order),
            },
            Criterion::Order(order) => group.has_order(order),
            Criterion::Average(length) | Criterion::Trimmed(length) => {
                group.average_run() >= length
            }
            Criterion::AnyRun | Criterion::AnyCluster => {
                group.available.load(Ordering::Relaxed) > 0
            }
        }
    }

    /// The set of the group index, and the lowest order, to look into; `None` for all groups.
    pub fn orders(self) -> Option<(IndexedSize, u32)> {
        match self {
            Criterion::Apart(order, _) => Some((IndexedSize::Largest, order.max(STAY_ORDER))),
            Criterion::Order(order) => Some((IndexedSize::Largest, order)),
            Criterion::Average(length) | Criterion::Trimmed(length) => {
                Some((IndexedSize::Average, length.ilog2()))
            }
            Criterion::AnyRun | Criterion::AnyCluster => None,
        }
    }

    /// The count that goes up when the criterion is tried.
    pub fn count(self) -> Count {
        match self {
            Criterion::Apart(..) => Count::OwnGroup,
            Criterion::Order(_) => Count::CriterionOrder,
            Criterion::Average(_) => Count::CriterionAverage,
            Criterion::Trimmed(_) => Count::CriterionTrimmed,
            Criterion::AnyRun => Count::CriterionAnyRun,
            Criterion::AnyCluster => Count::CriterionAnyCluster,
        }
    }
}
