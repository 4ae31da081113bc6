//! The tree against a map of blocks.

use crate::extent_status::extent::{CachedExtent, ExtentState};
use crate::extent_status::tree::{ExtentCacheTree, ReclaimLimits};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SPAN: u32 = 2000;

#[derive(Clone, Debug)]
enum Step {
    Set(CachedExtent),
    Forget(u32, u32),
    Convert(u32, u32, bool),
    Lookup(u32),
    Reclaim { looks: usize, spares_referenced: bool },
}

fn status() -> impl Strategy<Value = ExtentState> {
    prop_oneof![
        4 => Just(ExtentState::Written),
        3 => Just(ExtentState::Unwritten),
        1 => Just(ExtentState::Delayed),
        2 => Just(ExtentState::Hole),
    ]
}

fn fact() -> impl Strategy<Value = CachedExtent> {
    // Few physical positions, so that neighbours often continue each other.
    (0..SPAN, prop_oneof![5 => 1..4_u32, 1 => 1..200_u32], status(), 0..3_u64).prop_map(
        |(logical, length, status, shift)| {
            let physical = 10_000 + u64::from(logical) + 5000 * shift;
            CachedExtent {
                logical,
                length,
                physical: if status.is_mapped() { physical } else { 0 },
                status,
            }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => fact().prop_map(Step::Set),
        2 => (0..SPAN, 1..100_u32).prop_map(|(from, length)| Step::Forget(from, from + length)),
        2 => (0..SPAN, 1..20_u32, any::<bool>())
            .prop_map(|(from, length, unwritten)| Step::Convert(from, from + length, unwritten)),
        4 => (0..SPAN).prop_map(Step::Lookup),
        1 => (1..60_usize, any::<bool>())
            .prop_map(|(looks, spares_referenced)| Step::Reclaim { looks, spares_referenced }),
    ]
}

/// Each known block with its physical block and its state.
type Model = BTreeMap<u32, (u64, ExtentState)>;

fn put(model: &mut Model, fact: &CachedExtent) {
    for offset in 0..fact.length {
        let physical = if fact.status.is_mapped() { fact.physical + u64::from(offset) } else { 0 };
        model.insert(fact.logical + offset, (physical, fact.status));
    }
}

fn model_of(tree: &ExtentCacheTree) -> Model {
    let mut model = Model::new();
    tree.facts().iter().for_each(|fact| put(&mut model, fact));
    model
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_is_a_map_of_blocks(steps in proptest::collection::vec(step(), 1..400)) {
        let mut tree = ExtentCacheTree::default();
        let mut model = Model::new();
        for step in steps {
            match step {
                Step::Set(fact) => {
                    prop_assert!(tree.reserve(u64::from(fact.logical)));
                    tree.set(fact);
                    put(&mut model, &fact);
                }
                Step::Forget(from, to) => {
                    tree.reserve(u64::from(from));
                    tree.forget(u64::from(from), u64::from(to));
                    model.retain(|block, _| !(from..to).contains(block));
                }
                Step::Convert(from, to, unwritten) => {
                    let status = if unwritten { ExtentState::Unwritten } else { ExtentState::Written };
                    tree.convert(u64::from(from), u64::from(to), status);
                    for (_, (_, old)) in model.range_mut(from..to) {
                        *old = if old.is_mapped() { status } else { *old };
                    }
                }
                Step::Lookup(block) => {
                    let found = tree.lookup(block);
                    prop_assert_eq!(found.is_some(), model.contains_key(&block));
                    if let Some(fact) = found {
                        let mapped = fact.mapped(block, 1);
                        let (physical, status) = model[&block];
                        prop_assert_eq!(mapped.physical.map_or(0, |found| found.get()), physical);
                        prop_assert_eq!(fact.status, status);
                    }
                }
                Step::Reclaim { looks, spares_referenced } => {
                    let before = tree.len();
                    let mut limits =
                        ReclaimLimits { looks_left: looks, drops_left: usize::MAX, spares_referenced };
                    let reclaimed = tree.reclaim(&mut limits);
                    prop_assert_eq!(reclaimed.scanned, looks - limits.looks_left);
                    prop_assert_eq!(reclaimed.dropped, before - tree.len());
                    let left = model_of(&tree);
                    // The remaining extents are unchanged, and all delayed ones remain.
                    prop_assert!(left.iter().all(|(block, what)| model.get(block) == Some(what)));
                    let delayed = |model: &Model| {
                        model.values().filter(|(_, status)| *status == ExtentState::Delayed).count()
                    };
                    prop_assert_eq!(delayed(&left), delayed(&model));
                    model = left;
                }
            }
            tree.check();
            prop_assert_eq!(&model_of(&tree), &model);
        }
    }

    /// Without a reservation a change forgets extents for which it has no room; the others stay
    /// right.
    #[test]
    fn without_memory_it_forgets(facts in proptest::collection::vec((fact(), any::<bool>()), 1..300)) {
        let mut tree = ExtentCacheTree::default();
        let mut model = Model::new();
        for (fact, has_memory) in facts {
            if fact.status == ExtentState::Delayed {
                continue;
            }
            if has_memory {
                tree.reserve(u64::from(fact.logical));
            }
            let capacity = tree.capacity();
            tree.set(fact);
            prop_assert!(tree.capacity() <= capacity, "a change took memory");
            put(&mut model, &fact);
            tree.check();
            for (block, what) in model_of(&tree) {
                prop_assert_eq!(model.get(&block), Some(&what));
            }
            if has_memory {
                prop_assert_eq!(tree.lookup(fact.logical).unwrap().status, fact.status);
            }
        }
    }
}

#[test]
fn visits_go_on_where_the_last_one_stopped() {
    let mut tree = ExtentCacheTree::default();
    for number in 0..300 {
        let logical = 2 * number;
        tree.reserve(u64::from(logical));
        tree.set(CachedExtent { logical, length: 1, physical: 77, status: ExtentState::Written });
    }
    let limits =
        |looks_left| ReclaimLimits { looks_left, drops_left: usize::MAX, spares_referenced: true };
    // Extents that were looked up are spared once.
    assert!(tree.lookup(0).is_some() && tree.lookup(150).is_some());
    tree.reclaim(&mut limits(100));
    assert_eq!(tree.len(), 202);
    assert_eq!(tree.facts()[2].logical, 200);
    tree.reclaim(&mut limits(100));
    assert_eq!((tree.len(), tree.facts()[2].logical), (102, 400));
    tree.reclaim(&mut limits(200));
    assert_eq!(tree.len(), 2);
    tree.reclaim(&mut limits(200));
    assert_eq!(tree.len(), 0);
    tree.check();
}

#[test]
fn neighbours_become_one() {
    let mut tree = ExtentCacheTree::default();
    for logical in [3, 1, 0, 2, 5, 4] {
        let physical = 100 + u64::from(logical);
        tree.reserve(u64::from(logical));
        tree.set(CachedExtent { logical, length: 1, physical, status: ExtentState::Written });
    }
    let all = CachedExtent { logical: 0, length: 6, physical: 100, status: ExtentState::Written };
    assert_eq!(tree.facts(), [all]);
    tree.convert(2, 4, ExtentState::Unwritten);
    assert_eq!(tree.len(), 3);
    tree.convert(0, 6, ExtentState::Written);
    assert_eq!(tree.facts(), [all]);
    // The same again changes nothing.
    tree.set(all.overlap(1, 3).unwrap());
    assert_eq!(tree.facts(), [all]);
}
