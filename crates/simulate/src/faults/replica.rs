//! The model beside the engine, in the state after some of the calls.

use super::history::Call;
use super::image::Shape;
use super::workload::{BASE, WriteSizes, setup};
use drystone_testkit::model::MemoryFileSystem;
use drystone_testkit::operations::{Action, Executor, Operation, Outcome, describe};
use drystone_testkit::visible::VisibleState;
use drystone_vfs::{Errno, FileSystem, InodeNumber};
use std::collections::BTreeMap;

/// The model, and what each thread holds there.
#[derive(Clone)]
pub struct Replica {
    file_system: MemoryFileSystem,
    shape: Shape,
    sizes: WriteSizes,
    held: Vec<BTreeMap<u8, InodeNumber>>,
}

impl Replica {
    /// The model after the setup.
    pub fn new(shape: Shape, sizes: WriteSizes, threads: usize) -> Replica {
        let file_system = MemoryFileSystem::new(shape.configuration());
        let mut executor = Executor::new(&file_system);
        for operation in setup() {
            executor.apply(&operation);
        }
        drop(executor);
        Replica { file_system, shape, sizes, held: vec![BTreeMap::new(); threads] }
    }

    /// Does what a call did, and says what its caller should have seen; `None` if that isn't known.
    pub fn repeat(&mut self, thread: usize, call: &Call) -> Option<Outcome> {
        let is_full = call.outcome == Some(Outcome(Err(Errno::ENOSPC)));
        if is_full && self.shape == Shape::Crowded && takes_space(&call.operation.action) {
            // Nothing was done.
            return None;
        }
        let expected = self.apply(thread, &call.operation);
        call.outcome.is_some().then_some(expected)
    }

    /// A thread's operation.
    fn apply(&mut self, thread: usize, operation: &Operation) -> Outcome {
        let held = std::mem::take(&mut self.held[thread]);
        let mut executor = Executor::holding(&self.file_system, held);
        let outcome = executor.apply(operation);
        self.held[thread] = executor.into_held();
        self.sizes.seen(operation, outcome)
    }

    /// The attributes of an inode in words.
    pub fn described(&self, inode: InodeNumber) -> Option<String> {
        self.file_system.attributes(inode).ok().map(|attributes| describe(&attributes))
    }

    /// What a thread holds in a slot.
    pub fn held(&self, thread: usize, slot: u8) -> Option<InodeNumber> {
        self.held[thread].get(&slot).copied()
    }

    /// What all threads hold, by thread and slot.
    pub fn all_held(&self) -> impl Iterator<Item = InodeNumber> {
        self.held.iter().flat_map(|slots| slots.values().copied())
    }

    /// Everything that is visible or held. Content that equals that in `before` is shared with it.
    pub fn state(&self, before: Option<&VisibleState>) -> VisibleState {
        let read = || {
            let mut state = VisibleState::read(&self.file_system, BASE, before)?;
            state.read_nameless(&self.file_system, self.all_held(), before)?;
            Ok::<VisibleState, drystone_vfs::Error>(state)
        };
        match read() {
            Ok(state) => state,
            Err(error) => unreachable!("the model can't be read: {error}"),
        }
    }
}

/// Whether a full file system may refuse it.
fn takes_space(action: &Action) -> bool {
    matches!(
        action,
        Action::Create { .. }
            | Action::MakeDirectory { .. }
            | Action::Symlink { .. }
            | Action::Temporary { .. }
            | Action::Link { .. }
            | Action::Rename { .. }
            | Action::Write { .. }
            | Action::Append { .. }
            | Action::Truncate { .. }
            | Action::Range { .. }
            | Action::SetXattr { .. }
    )
}
