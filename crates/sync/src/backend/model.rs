//! Loom's threads: every interleaving of a small test.
