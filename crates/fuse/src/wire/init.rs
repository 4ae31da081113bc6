//! The first request: which version is spoken, and what both sides can do.

use super::request::layouts;
use crate::KernelCapabilities;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The major version that is spoken.
pub const VERSION_MAJOR: u32 = 7;

/// The minor version that these layouts have.
pub const VERSION_MINOR: u32 = 42;

/// The oldest minor version that is served (Linux 4.20): all layouts have their length of today.
pub const VERSION_MINOR_MIN: u32 = 28;

layouts! {
    /// The fixed part of `Initialize` as all kernels send it.
    InitializeIn: 16 {
        /// The kernel's major version.
        major: u32,
        /// The kernel's minor version.
        minor: u32,
        /// Bytes that the kernel reads ahead at most.
        read_ahead_max: u32,
        /// The lower half of the [`KernelCapabilities`] that it has.
        capabilities: u32,
    }

    /// The answer to `Initialize`.
    InitializeOut: 64 {
        /// The major version that is spoken.
        major: u32,
        /// The minor version that is spoken.
        minor: u32,
        /// Bytes that the kernel may read ahead.
        read_ahead_max: u32,
        /// The lower half of the [`KernelCapabilities`] in use.
        capabilities: u32,
        /// Requests that may be under way in the background.
        background_max: u16,
        /// From how many on the kernel slows its writers.
        congestion_threshold: u16,
        /// Bytes in a write.
        write_max: u32,
        /// Resolution of times in nanoseconds.
        time_granularity: u32,
        /// Pages in a request.
        pages_max: u16,
        /// For mappings.
        map_alignment: u16,
        /// The upper half of the [`KernelCapabilities`] in use.
        capabilities_2: u32,
        /// For stacked file systems.
        stack_depth_max: u32,
        /// Seconds after which an unanswered request ends the connection; zero: never.
        request_timeout: u16,
        /// Zero.
        spare: [u16; 11],
    }
}

impl InitializeIn {
    /// The kernel's capabilities; `rest` follows the fixed part.
    pub fn offered(&self, payload: &[u8]) -> KernelCapabilities {
        let lower = KernelCapabilities::from_bits_truncate(u64::from(self.capabilities));
        match payload.first_chunk() {
            Some(upper) if lower.contains(KernelCapabilities::INIT_EXT) => {
                let upper = u64::from(u32::from_ne_bytes(*upper));
                lower | KernelCapabilities::from_bits_truncate(upper << 32)
            }
            _ => lower,
        }
    }
}

impl InitializeOut {
    /// An answer with the capabilities in use.
    pub fn agreeing_on(capabilities: KernelCapabilities) -> InitializeOut {
        InitializeOut {
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            capabilities: capabilities.bits() as u32,
            capabilities_2: (capabilities.bits() >> 32) as u32,
            ..InitializeOut::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_half_counts_only_when_it_is_announced() {
        let upper = (1u32 << 9).to_ne_bytes();
        let mut request = InitializeIn { capabilities: 1 | 1 << 30, ..InitializeIn::default() };
        assert!(request.offered(&upper).contains(KernelCapabilities::OVER_IO_URING));
        assert!(!request.offered(&upper[..3]).contains(KernelCapabilities::OVER_IO_URING));
        request.capabilities = 1;
        assert_eq!(request.offered(&upper), KernelCapabilities::ASYNC_READ);
    }

    #[test]
    fn both_halves_are_answered() {
        let answer = InitializeOut::agreeing_on(
            KernelCapabilities::INIT_EXT | KernelCapabilities::OVER_IO_URING,
        );
        assert_eq!((answer.capabilities, answer.capabilities_2), (1 << 30, 1 << 9));
    }
}
