//! Files that grow at the same time keep to groups of their own.

use super::*;
use crate::policy::BlockGoal;
use drystone_ext4_format::LogicalBlock;

/// Groups of 32 MiB with clusters of 4 KiB.
const SHAPE: &str = "-t ext4 -O ^has_journal,^flex_bg -g 8192";
const SIZE_KIB: u64 = 400_000;
const STEP: u32 = 16;

/// Grows a file by one step behind `before`; returns the group and the run.
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
    allocator.volume.layout.group_of_block(run.start).unwrap()
}

/// How many runs of two files that grow in turns lie in groups that the other one has runs in.
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
    for file in &files {
        allocator.forget_file(file);
        assert!(!file.has_window());
    }
    let marks = allocator.groups.iter().filter(|group| group.stream.load(Ordering::Relaxed) != 0);
    assert_eq!(marks.count(), 0, "a mark of a file that is not used any more");
    close(&allocator);
    Some(groups[0].iter().filter(|group| groups[1].contains(group)).count())
}

#[test]
fn large_files_keep_to_groups_of_their_own() {
    for scan in ["linear", "size-ordered"] {
        let policy = format!("group-scan={scan}").parse().unwrap();
        let Some(shared) = shared_runs(policy) else { return };
        assert_eq!(shared, 0, "{scan}");
    }
}

#[test]
fn with_one_goal_for_all_they_share_groups() {
    let policy = Policy { block_goal: BlockGoal::Global, ..Policy::SCALABLE };
    let Some(shared) = shared_runs(policy) else { return };
    assert!(shared > 0);
}
