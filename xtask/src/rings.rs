//! Whether the kernel offers FUSE over io_uring to mounts that come.

use crate::ending::{AtEnd, at_end};
use anyhow::Context;
use drystone_testkit::rings::{self, OFFERED};

/// Has the kernel offer rings until what this returns is dropped, where `transport` is `rings`.
pub fn offer(transport: &str) -> anyhow::Result<Option<AtEnd>> {
    if transport != "rings" {
        return Ok(None);
    }
    let offer = rings::offer()
        .with_context(|| format!("{OFFERED}: this kernel has no FUSE over io_uring"))?;
    Ok(Some(at_end(move || drop(offer))?))
}
