//! What the fuzz targets do with their bytes. Each target is a function here, so that a finding can
//! be a test: put its bytes in `tests/findings.rs`.
#![forbid(unsafe_code)]

pub mod attributes;
pub mod directories;
pub mod engine;
pub mod formats;
pub mod input;
pub mod journal;
pub mod nilfs2;
pub mod sources;
pub mod special;

/// How the engine is opened, by the name under which the engine's own damage tests know it.
pub mod image {
    use drystone_ext4::MountOptions;

    /// Options of a small mount.
    pub fn options(read_only: bool) -> MountOptions {
        MountOptions::default().read_only(read_only).memory_budget_bytes(8 << 20)
    }
}

/// Reading and changing all of a mount: what the engine's damage tests do.
#[path = "../../crates/ext4/tests/damage/exercise.rs"]
pub mod exercise;
