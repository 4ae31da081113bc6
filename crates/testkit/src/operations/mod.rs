//! Operations on a file system: as text, generated from a seed, and executed.

mod execute;
mod generate;
mod operation;
mod profile;
mod text;

#[cfg(test)]
mod tests;

pub use execute::{COMPARED_FLAGS, Executor, Outcome, describe};
pub use generate::generate;
pub use operation::{
    Action, Actor, NodeKind, OpenKind, Operation, ParseOperationError, RangeKind, RenameKind,
    SeekKind, XattrKind, parse_operations,
};
pub use profile::{NameStyle, Profile};
pub use text::{Data, OperationTarget, Word};
