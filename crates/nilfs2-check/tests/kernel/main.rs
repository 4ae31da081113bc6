//! Images that the real kernel has made are clean, also after cleaning and after cuts of power.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod clean;
