//! Compares variants of the engine's mechanisms: workloads, targets, tables, plots.
//!
//! A [`workload`] is written once against [`files`], and runs on every [`target`]: the engine in this
//! process with any policy, or a mounted directory through system calls. The [`runner`] alternates
//! between them; [`results`] keeps the medians; [`table`] and [`report`] show them beside
//! [`published`] figures.
#![forbid(unsafe_code)]

mod counters;
mod explain;
pub mod files;
pub mod machine;
pub mod policy;
pub mod published;
pub mod report;
pub mod results;
pub mod runner;
pub mod table;
pub mod target;
pub mod workload;
