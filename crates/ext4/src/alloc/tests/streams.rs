//! With `block-goal=own-group`, files that grow at the same time keep to groups of their own; with
//! the other values they don't.

use super::*;
use crate::alloc::blocks::goal_count;
use crate::alloc::group::BlockGroup;
use crate::policy::BlockGoal;
use drystone_ext4_format::LogicalBlock;
use drystone_sync::atomic::Ordering;

/// Groups of 32 MiB with clusters of 4 KiB.
const SHAPE: &str = "-t ext4 -O ^has_journal,^flex_bg -g 8192";
const SIZE_KIB: u64 = 400_000;
const STEP: u32 = 16;

/// Grows a file by one step after `before`; returns the new run.
fn grow(allocator: &Allocator, space: &FileSpace, step: u32, before: Option<BlockRun>) -> BlockRun {
    let goal = before.map_or(allocator.data_goal(InodeNumber::FIRST_ORDINARY), |run| {
        PhysicalBlock::new(run.start.get() + u64::from(run.length))
    });
    let logical = LogicalBlock::new(step * STEP).as_u64();
    let size_bytes = (logical + u64::from(STEP)) << 12;
    let file = FileRequest { space, logical, size_bytes, is_large: true };
    let request = BlockRequest { goal, file: Some(file), ..request(0, STEP) };
    allocate(allocator, &request).unwrap()
}

fn group_of(allocator: &Allocator, run: BlockRun) -> GroupNumber {
    allocator.groups.volume.layout().group_of_block(run.start).unwrap()
}

/// Groups that are marked as a file's own.
fn marks(allocator: &Allocator) -> usize {
    let marked = |group: &&BlockGroup| group.stream.load(Ordering::Relaxed) != 0;
    allocator.groups.iter().filter(marked).count()
}

/// Grows two files in turns; returns how many runs of the first lie in groups with runs of the
/// second.
fn shared_runs(policy: Policy) -> Option<usize> {
    let image = image(SHAPE, SIZE_KIB)?;
    let allocator = open_with(&image, policy);
    let files = [21, 22].map(|number| FileSpace::new(InodeNumber::new(number)));
    let mut groups: [Vec<GroupNumber>; 2] = Default::default();
    let mut before = [None, None];
    // 75 MiB each: over several groups.
    for step in 0..1200 {
        for (place, file) in files.iter().enumerate() {
            let run = grow(&allocator, file, step, before[place]);
            groups[place].push(group_of(&allocator, run));
            before[place] = Some(run);
        }
    }
    let keeps_apart = policy.block_goal == BlockGoal::OwnGroup;
    assert_eq!(marks(&allocator), if keeps_apart { 2 } else { 0 }, "{policy}");
    assert_eq!(allocator.groups.statistics().own_groups > 0, keeps_apart, "{policy}");
    for file in &files {
        allocator.blocks.forget_file(file);
        assert!(!file.has_window());
    }
    assert_eq!(marks(&allocator), 0, "the mark of a file that is no longer used");
    close(&allocator);
    Some(groups[0].iter().filter(|group| groups[1].contains(group)).count())
}

#[test]
fn large_files_keep_to_groups_of_their_own() {
    for scan in ["linear", "size-ordered"] {
        let policy = format!("block-goal=own-group,group-scan={scan}").parse().unwrap();
        let Some(shared) = shared_runs(policy) else { return };
        assert_eq!(shared, 0, "{scan}");
    }
}

#[test]
fn with_a_published_goal_they_share_groups_and_mark_none() {
    for &block_goal in BlockGoal::VALUES {
        if block_goal != BlockGoal::OwnGroup {
            let policy = Policy { block_goal, ..Policy::SCALABLE };
            let Some(shared) = shared_runs(policy) else { return };
            assert!(shared > 0, "{policy}");
        }
    }
}

/// Which files share a goal, for each value of `block-goal`.
#[test]
fn goals_are_those_of_all_of_the_file_or_of_its_residue_class() {
    let Some(image) = image(SHAPE, SIZE_KIB) else { return };
    for &block_goal in BlockGoal::VALUES {
        let allocator = open_with(&image, Policy { block_goal, ..Policy::SCALABLE });
        let classes = goal_count(allocator.groups.count() as usize) as u32;
        let file = |number| FileSpace::new(InodeNumber::new(number));
        let (one, same_class, other) = (file(40), file(40 + classes), file(41));
        allocator.blocks.set_goal(&one, (3, 100));
        let goals = [&one, &same_class, &other].map(|space| allocator.blocks.goal(space));
        let (here, no) = (Some((3, 100)), None);
        let expected = match block_goal {
            BlockGoal::Global => [here, here, here],
            BlockGoal::PerInode | BlockGoal::OwnGroup => [here, no, no],
            BlockGoal::Hashed => [here, here, if classes == 1 { here } else { no }],
        };
        assert_eq!(goals, expected, "{block_goal:?}");
        close(&allocator);
    }
}
