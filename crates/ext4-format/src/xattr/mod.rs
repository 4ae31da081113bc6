//! Being written.
use thiserror::Error;
/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AttributeProblem {}
