//! What a cache has done so far.

/// Counts since the cache was made, except the last two, which describe what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CacheStatistics {
    /// Lookups that found the block, or found it being loaded.
    pub hits: u64,
    /// Lookups that had to read the block.
    pub misses: u64,
    /// Buffers dropped to stay within the budget.
    pub evictions: u64,
    /// Bytes of the blocks held now.
    pub cached_bytes: u64,
    /// Bytes that the blocks held should not exceed.
    pub budget_bytes: u64,
}
