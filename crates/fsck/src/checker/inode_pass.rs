//! The pass over all inodes, as its functions see it.

use super::{Findings, Orphans};
use crate::image::Image;
use crate::inode_states::InodeStates;
use crate::report::Reporter;

/// The pass over all inodes, or over a part of them: what it reads, and what it fills.
pub(crate) struct InodePass<'p, 'r> {
    pub image: &'p Image<'p>,
    pub orphans: &'p Orphans,
    pub states: &'p InodeStates,
    pub reporter: &'p mut Reporter<'r>,
    pub found: &'p mut Findings,
}
