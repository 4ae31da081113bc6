//! Case-insensitive directory names.
