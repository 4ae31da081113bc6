//! Defects that can be planted in the engine, at places that ask for them by name
//! (`drystone_sync::planted!`), to show that they would be found.

/// All names.
pub const NAMES: [&str; 16] = [
    // The journal.
    "commit-without-flush",
    "checkpoint-without-flush",
    "sync-without-flush",
    "no-revoke",
    "lost-wakeup",
    // The file system.
    "sync-without-delayed",
    "unlink-without-orphan",
    "unlink-without-lock",
    "stale-name",
    "append-without-lock",
    "inode-claimed-twice",
    "stale-dentry",
    "leaf-without-lock",
    "leaf-not-sought-again",
    "reuse-before-commit",
    "half-an-operation",
];
