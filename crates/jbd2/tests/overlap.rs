//! Overlapping work of the journal, in every order of the device's operations, with each of them
//! failing in turn.

#![allow(clippy::unwrap_used)]

mod common;

use Step::{Commit, Set};
use common::ledger::Kind::{Data, Free, Metadata};
use common::overlap::{Chooser, Fate, Script, Step, run};
use drystone_blockdev::Waiting;

/// Goes through all choices depth first.
struct All {
    /// Each choice that was made, and of how many.
    path: Vec<(usize, usize)>,
    depth: usize,
    fails: bool,
    sectors: usize,
}

impl All {
    /// The next run, if there is one.
    fn advance(&mut self) -> bool {
        self.depth = 0;
        while let Some((choice, choices)) = self.path.last_mut() {
            *choice += 1;
            if choice < choices {
                return true;
            }
            self.path.pop();
        }
        false
    }
}

impl Chooser for All {
    const WAITS: bool = true;

    fn choose(&mut self, waiting: &[Waiting]) -> (usize, Fate) {
        let choices = if self.fails { 2 * waiting.len() } else { waiting.len() };
        if self.depth == self.path.len() {
            self.path.push((0, choices));
        }
        let (choice, expected) = self.path[self.depth];
        assert_eq!(choices, expected, "the same choices lead to the same place");
        self.depth += 1;
        let fate = if choice < waiting.len() { Fate::Done } else { Fate::Fails };
        (choice % waiting.len(), fate)
    }

    fn crashes(&mut self) -> bool {
        // This point is new.
        self.depth >= self.path.len()
    }

    fn keeps(&mut self) -> bool {
        self.sectors += 1;
        self.sectors.is_multiple_of(2)
    }
}

fn try_all(script: &Script<'_>, fails: bool) {
    let mut all = All { path: Vec::new(), depth: 0, fails, sectors: 0 };
    let mut runs = 1;
    loop {
        if let Err(problem) = run(script, &mut all) {
            panic!("run {runs}, {:?}: {problem}", all.path);
        }
        if !all.advance() {
            break;
        }
        runs += 1;
    }
    eprintln!("{runs} runs of {:?}", script.steps);
    assert!(runs > 50, "{runs} runs");
}

const BEFORE: &[Step] = &[Set(1, Metadata), Commit];

/// A block is changed, freed and used for data while a checkpoint may be writing it home.
#[test]
fn changed_freed_and_reused_for_data() {
    let steps = &[Set(1, Metadata), Commit, Set(1, Free), Commit, Set(1, Data), Commit];
    try_all(&Script { journal_blocks: 128, before: BEFORE, steps, checkpoints: 1 }, false);
}

#[test]
fn freed_and_reused_for_data_with_failures() {
    let steps = &[Set(1, Free), Commit, Set(1, Data), Commit];
    try_all(&Script { journal_blocks: 128, before: BEFORE, steps, checkpoints: 1 }, true);
}

/// Two checkpoints: the second writes the block's new content home.
#[test]
fn freed_and_reused_for_metadata() {
    let steps = &[Set(1, Free), Commit, Set(1, Metadata), Commit];
    try_all(&Script { journal_blocks: 128, before: BEFORE, steps, checkpoints: 2 }, false);
}

/// The second checkpoint begins where the first ended, and each may fail anywhere.
#[test]
fn changed_between_checkpoints_with_failures() {
    let steps = &[Set(1, Metadata), Commit];
    try_all(&Script { journal_blocks: 128, before: BEFORE, steps, checkpoints: 2 }, true);
}
