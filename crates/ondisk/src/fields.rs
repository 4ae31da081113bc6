//! The fields of a structure as a table, made by its declaration.

/// A field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Where it starts, in bytes.
    pub offset: usize,
    /// Its length in bytes.
    pub length: usize,
}

impl Field {
    /// The same field in a structure that starts `distance` bytes further on.
    #[must_use]
    pub const fn behind(self, distance: usize) -> Self {
        Self { offset: self.offset + distance, ..self }
    }
}

/// Declares a `#[repr(C)]` structure and its constant `FIELDS`, a table of its fields in order, so
/// that tools and tests which go through all fields need no list of their own.
#[macro_export]
macro_rules! with_fields {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_attribute:meta])* $field_visibility:vis $field:ident: $kind:ty,)*
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $($(#[$field_attribute])* $field_visibility $field: $kind,)*
        }

        impl $name {
            /// All fields in order.
            $visibility const FIELDS: &'static [$crate::Field] = &[$($crate::Field {
                name: stringify!($field),
                offset: ::core::mem::offset_of!($name, $field),
                length: ::core::mem::size_of::<$kind>(),
            }),*];
        }
    };
}
