//! The drystone command.
#![forbid(unsafe_code)]

fn main() {}
