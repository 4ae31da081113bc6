//! Hashed directory indexes.
