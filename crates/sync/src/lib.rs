//! Locks, atomics, threads and the clock of Drystone: the only user of std::sync.
#![forbid(unsafe_code)]
