//! Scrambled copies have no private text, and the same problems as the image.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod damaged;
mod image;
mod secrets;
mod sound;
mod special;
mod verdict;
