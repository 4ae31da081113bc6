//! Atomic integers, flags and pointers: each access is an event on its line.
//!
//! All virtual threads run on one system thread, and one goes on only at the start of an event. So a change is a
//! load and a store: what the processor would take for an atomic one is in the model's costs, and must not be in
//! the work that is measured too.

use super::memory::LineUse;
use super::places::SourceLine;
use super::world;
use std::sync::atomic;
pub use std::sync::atomic::Ordering;

/// A fence: it takes time and does nothing else on one system thread.
pub fn fence(_: Ordering) {
    world::event(SourceLine::here(), 0, 0, LineUse::Read);
}

macro_rules! common {
    ($name:ident, $value:ty $(, $generic:ident)?) => {
        impl$(<$generic>)? $name$(<$generic>)? {
            /// An atomic with this value.
            pub const fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }

            #[inline]
            #[track_caller]
            fn event(&self, how: LineUse) {
                let address = std::ptr::from_ref(self).addr();
                world::event(SourceLine::here(), address, size_of::<Self>(), how);
            }

            /// The value.
            #[inline]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                self.event(LineUse::Read);
                self.0.load(order)
            }

            /// Replaces the value.
            #[inline]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                self.event(LineUse::Write);
                self.0.store(value, order);
            }

            /// Replaces the value and returns the old one.
            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $value, _: Ordering) -> $value {
                self.event(LineUse::Modify);
                self.change(|_| value)
            }

            #[inline]
            fn change(&self, change: impl FnOnce($value) -> $value) -> $value {
                let before = self.0.load(Ordering::Relaxed);
                self.0.store(change(before), Ordering::Relaxed);
                before
            }

            /// Replaces the value if it is `current`.
            ///
            /// # Errors
            /// The value, if it is a different one.
            #[inline]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                _: Ordering,
                _: Ordering,
            ) -> Result<$value, $value> {
                self.event(LineUse::Modify);
                let before = self.0.load(Ordering::Relaxed);
                if before == current {
                    self.0.store(new, Ordering::Relaxed);
                    Ok(before)
                } else {
                    Err(before)
                }
            }

            /// The same: no spurious failures here.
            ///
            /// # Errors
            /// The value, if it is a different one.
            #[inline]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            /// Replaces the value by what `change` makes of it; tries again if another thread came
            /// first.
            ///
            /// # Errors
            /// The value, if `change` returns `None`.
            #[inline]
            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut before = self.load(fetch);
                while let Some(after) = change(before) {
                    match self.compare_exchange_weak(before, after, set, fetch) {
                        Ok(before) => return Ok(before),
                        Err(now) => before = now,
                    }
                }
                Err(before)
            }

            /// The value, through an exclusive reference.
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// The value.
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
        }
    };
}

macro_rules! modifying {
    ($name:ident, $value:ty, $($method:ident: $change:expr),* $(,)?) => {
        impl $name {
            $(
                /// Changes the value; returns what it was.
                #[inline]
                #[track_caller]
                pub fn $method(&self, value: $value, _: Ordering) -> $value {
                    self.event(LineUse::Modify);
                    let change: fn($value, $value) -> $value = $change;
                    self.change(|before| change(before, value))
                }
            )*
        }
    };
}

macro_rules! integers {
    ($($name:ident: $value:ty),* $(,)?) => {$(
        #[doc = concat!("A shared `", stringify!($value), "`.")]
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);
        common!($name, $value);
        modifying!(
            $name,
            $value,
            fetch_add: |before, value| before.wrapping_add(value),
            fetch_sub: |before, value| before.wrapping_sub(value),
            fetch_and: |before, value| before & value,
            fetch_or: |before, value| before | value,
            fetch_xor: |before, value| before ^ value,
            fetch_max: |before, value| before.max(value),
            fetch_min: |before, value| before.min(value),
        );
        impl From<$value> for $name {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }
    )*};
}

integers! {
    AtomicI32: i32, AtomicI64: i64, AtomicIsize: isize, AtomicU8: u8, AtomicU16: u16, AtomicU32: u32,
    AtomicU64: u64, AtomicUsize: usize,
}

/// A shared flag.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct AtomicBool(atomic::AtomicBool);
common!(AtomicBool, bool);
modifying!(
    AtomicBool,
    bool,
    fetch_and: |before, value| before & value,
    fetch_or: |before, value| before | value,
    fetch_xor: |before, value| before ^ value,
);

/// A shared pointer.
#[derive(Debug)]
#[repr(transparent)]
pub struct AtomicPtr<T>(atomic::AtomicPtr<T>);
common!(AtomicPtr, *mut T, T);
