//! The orphan file.
