//! Usage stays right through changes, as e2fsck counts it.
