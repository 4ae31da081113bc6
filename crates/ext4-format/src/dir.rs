//! Directory blocks and their entries.
