//! Images that Linux used with fast commits and that were not unmounted: everything that was synced is
//! there after our recovery, even if it is only in fast commits.
#![allow(clippy::unwrap_used, reason = "a test")]

mod area;
mod kernel;
mod made;
mod recovery;
