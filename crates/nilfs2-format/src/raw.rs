//! Pins the layout of on-disk structures at compile time.

/// Asserts the size of a `#[repr(C)]` structure and the offset of each named field.
macro_rules! pin_layout {
    ($structure:ty, size $size:literal, { $($field:ident: $offset:literal),* $(,)? }) => {
        const _: () = {
            assert!(core::mem::size_of::<$structure>() == $size);
            $(assert!(
                core::mem::offset_of!($structure, $field) == $offset,
                concat!("offset of ", stringify!($field))
            );)*
        };
    };
}
