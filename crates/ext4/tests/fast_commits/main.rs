//! Images that Linux used with fast commits and that were not unmounted: all that was synced is
//! there after our recovery, whatever of it is only in fast commits.
#![allow(clippy::unwrap_used, reason = "a test")]

mod area;
mod kernel;
mod made;
mod recovery;
