//! Work in steps, each in a handle of its own.

use crate::error::Result;
use crate::freeze_gate::StepsUnderWay;
use crate::volume::Volume;
use drystone_jbd2::Handle;

/// Whether work in steps is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum StepProgress {
    /// It is complete.
    Done,
    /// The caller starts a new handle and goes on from here.
    More {
        /// The new end of the range for work that goes downwards, its new start otherwise.
        next: u64,
    },
}

/// The handles of work in steps. Until it is dropped after a step that wasn't the last one, the mount
/// isn't made read-only.
pub(crate) struct StepHandles<'a> {
    volume: &'a Volume,
    under_way: Option<StepsUnderWay<'a>>,
}

impl<'a> StepHandles<'a> {
    pub fn new(volume: &'a Volume) -> Self {
        StepHandles { volume, under_way: None }
    }

    /// Ends the handle of a step, as [`Volume::settle`] does.
    pub fn settle(
        &mut self,
        handle: Handle<'_>,
        step: Result<StepProgress>,
    ) -> Result<StepProgress> {
        // Work of one step, which is most, stays off the shared count.
        if matches!(step, Ok(StepProgress::More { .. })) {
            self.under_way.get_or_insert_with(|| self.volume.freeze.begin_steps());
        }
        self.volume.settle(handle, step)
    }
}
