//! What the entry scripts call.
#![forbid(unsafe_code)]

fn main() {}
