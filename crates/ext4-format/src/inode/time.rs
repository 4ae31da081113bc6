//! Times of inodes: 34 bits of seconds and nanoseconds.
//!
//! # Reference
//! "Inode Timestamps" in the kernel's ext4 data structure pages.

const NANOSECONDS_MAX: u32 = 999_999_999;

/// A time since 1970, to the nanosecond; negative before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeTimestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds to add, below a thousand million.
    pub nanoseconds: u32,
}

impl InodeTimestamp {
    /// The earliest time that an inode can hold: in 1901.
    pub const MIN: Self = Self { seconds: i32::MIN as i64, nanoseconds: 0 };
    /// The last second that an inode with extra fields can hold: in 2446.
    pub const MAX: Self = Self { seconds: (1 << 34) - 1 + i32::MIN as i64, nanoseconds: 0 };
    /// The last second that an inode without extra fields can hold: in 2038.
    pub const MAX_WITHOUT_EXTRA: Self = Self { seconds: i32::MAX as i64, nanoseconds: 0 };

    /// A time of whole seconds.
    #[must_use]
    pub const fn from_seconds(seconds: i64) -> Self {
        Self { seconds, nanoseconds: 0 }
    }

    /// This time as an inode can hold it: bounded, and in whole seconds without extra fields.
    #[must_use]
    pub fn clamp_to_inode(self, has_extra: bool) -> Self {
        let max = if has_extra { Self::MAX } else { Self::MAX_WITHOUT_EXTRA };
        if self.seconds < Self::MIN.seconds {
            Self::MIN
        } else if self.seconds >= max.seconds {
            max
        } else if has_extra {
            Self { seconds: self.seconds, nanoseconds: self.nanoseconds.min(NANOSECONDS_MAX) }
        } else {
            Self::from_seconds(self.seconds)
        }
    }

    /// Joins the two stored fields; `extra` is absent where the inode has no room for it.
    pub(super) fn decode(base: u32, extra: Option<u32>) -> Self {
        let signed = i64::from(base.cast_signed());
        match extra {
            None => Self::from_seconds(signed),
            Some(extra) => Self {
                seconds: signed + (i64::from(extra & 3) << 32),
                nanoseconds: (extra >> 2).min(NANOSECONDS_MAX),
            },
        }
    }

    /// The stored fields of a time that was clamped.
    pub(super) fn encode(self, has_extra: bool) -> (u32, u32) {
        let time = self.clamp_to_inode(has_extra);
        let base = time.seconds as u32;
        let epoch = (time.seconds - i64::from(base.cast_signed())) >> 32;
        (base, (epoch as u32 & 3) | time.nanoseconds << 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn documented_epochs() {
        // From the table in the format's pages: epoch bits, stored seconds, meaning.
        let cases = [
            (1u32, 0x8000_0000u32, 0x8000_0000i64),
            (0, 0x8000_0000, -0x8000_0000),
            (0, 0x7fff_ffff, 0x7fff_ffff),
            (1, 0x7fff_ffff, 0x1_7fff_ffff),
            (3, 0x7fff_ffff, 0x3_7fff_ffff),
        ];
        for (extra, base, seconds) in cases {
            let time = InodeTimestamp::from_seconds(seconds);
            assert_eq!(InodeTimestamp::decode(base, Some(extra)), time);
            assert_eq!(time.encode(true), (base, extra));
        }
        assert_eq!(InodeTimestamp::from_seconds(i64::MAX).encode(true), (0x7fff_ffff, 3));
        assert_eq!(InodeTimestamp::from_seconds(1 << 40).encode(false).0, 0x7fff_ffff);
    }

    proptest! {
        #[test]
        fn round_trip(seconds: i64, nanoseconds in 0u32..1_000_000_000, has_extra: bool) {
            let time = InodeTimestamp { seconds, nanoseconds };
            let (base, extra) = time.encode(has_extra);
            let read = InodeTimestamp::decode(base, has_extra.then_some(extra));
            prop_assert_eq!(read, time.clamp_to_inode(has_extra));
        }
    }
}
