//! The cleaner.

use crate::log::LoggedBlock;
use drystone_nilfs2_format::{FileBlock, SegmentNumber, VirtualBlock};

/// What a log does for the cleaner.
#[derive(Debug, Default)]
pub(crate) struct CleanerWork {
    /// Live blocks that get another place.
    pub(crate) moved: Vec<LoggedBlock>,
    /// Virtual blocks that nothing needs any more.
    pub(crate) freed: Vec<VirtualBlock>,
    /// Blocks of the DAT that are to be logged anew.
    pub(crate) dat_blocks: Vec<FileBlock>,
    /// Nodes of the DAT's map that are: level and first key.
    pub(crate) dat_nodes: Vec<(u8, FileBlock)>,
    /// Segments that are clean then.
    pub(crate) cleaned: Vec<SegmentNumber>,
}

impl CleanerWork {
    pub(crate) fn is_empty(&self) -> bool {
        self.cleaned.is_empty()
    }
}
