//! Sources of all kinds read into trees, and compared with what they were made from.

#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]

mod any_bytes;
mod bad_input;
mod changes;
mod fixture;
mod images;
mod layers;
mod layouts;
mod listing;
mod made;
mod tars;
