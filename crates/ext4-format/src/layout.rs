//! Where an image keeps its parts.
