//! Thread-local values.
#![allow(unsafe_code)]

use super::world;
use std::any::Any;
use std::cell::Cell;

/// A thread-local value; made by [`thread_local!`](crate::thread_local).
pub struct LocalKey<T: 'static> {
    make: fn() -> T,
    /// A key must have an address of its own.
    _address: u8,
}

/// The thread ends, so its values are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessError;

impl<T: Any> LocalKey<T> {
    /// A key whose values start as `make` gives them.
    #[must_use]
    pub const fn new(make: fn() -> T) -> LocalKey<T> {
        LocalKey { make, _address: 0 }
    }

    /// The current thread's value.
    pub fn with<R>(&'static self, look: impl FnOnce(&T) -> R) -> R {
        if !world::is_inside() {
            // Before and after a run the value is temporary.
            return look(&(self.make)());
        }
        let key = std::ptr::from_ref(self).addr();
        let known = world::with(|world| world.local(key));
        let value = known.unwrap_or_else(|| {
            let value: Box<dyn Any> = Box::new((self.make)());
            world::with(|world| {
                world.set_local(key, value);
                match world.local(key) {
                    Some(value) => value,
                    None => unreachable!("it was put there"),
                }
            })
        });
        // SAFETY: the value is of this type, since the key is; boxed, it stays where it is; and it goes
        // only with its thread, which is here.
        look(unsafe { &*value.cast::<T>() })
    }

    /// The current thread's value.
    ///
    /// # Errors
    /// Never: values are dropped after everything that uses them.
    pub fn try_with<R>(&'static self, look: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        Ok(self.with(look))
    }
}

impl<T: Any> LocalKey<Cell<T>> {
    /// Replaces the value.
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }
}

impl<T: Any + Copy> LocalKey<Cell<T>> {
    /// The value.
    #[must_use]
    pub fn get(&'static self) -> T {
        self.with(Cell::get)
    }
}

/// Declares thread-local values, as `std::thread_local` does.
#[macro_export]
macro_rules! thread_local {
    () => {};
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = const $initial:block $(; $($rest:tt)*)?) => {
        $(#[$attribute])* $visibility static $name: $crate::LocalKey<$type> =
            $crate::LocalKey::new(|| $initial);
        $($crate::thread_local! { $($rest)* })?
    };
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = $initial:expr $(; $($rest:tt)*)?) => {
        $(#[$attribute])* $visibility static $name: $crate::LocalKey<$type> =
            $crate::LocalKey::new(|| $initial);
        $($crate::thread_local! { $($rest)* })?
    };
}
