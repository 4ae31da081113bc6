//! In-memory model, operation generator, conformance suite and crash images for tests.
#![forbid(unsafe_code)]

pub mod model;
