//! How far a change is, for those who wait for it.

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReshapeProgress {
    /// What is being done.
    pub step: &'static str,
    /// How much of it.
    pub done: u64,
    /// Of how much.
    pub total: u64,
}
