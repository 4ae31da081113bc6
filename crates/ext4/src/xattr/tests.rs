//! Attributes in all their places, against a model and e2fsck.
