//! Images that are changed as a whole: what the tools of e2fsprogs, the checker and the engine find
//! afterwards.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod converted;
mod converting;
mod cuts;
mod defragmenting;
mod free_space;
mod growing;
mod resizing;
mod sequences;
mod support;
mod tuning;
mod undoing;
