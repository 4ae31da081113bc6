//! Whether the kernel offers FUSE over io_uring to mounts that come.

use crate::ending::{AtEnd, at_end};
use anyhow::Context;

/// Where that is set; off by default.
const OFFERED: &str = "/sys/module/fuse/parameters/enable_uring";

/// Has the kernel offer rings until what this returns is dropped, where `transport` is `rings`.
pub fn offer(transport: &str) -> anyhow::Result<Option<AtEnd>> {
    if transport != "rings" {
        return Ok(None);
    }
    let before = std::fs::read_to_string(OFFERED)
        .with_context(|| format!("{OFFERED}: this kernel has no FUSE over io_uring"))?;
    let end = at_end(move || {
        if let Err(error) = std::fs::write(OFFERED, before) {
            eprintln!("xtask: {OFFERED}: {error}");
        }
    })?;
    std::fs::write(OFFERED, "Y").context(OFFERED)?;
    Ok(Some(end))
}
