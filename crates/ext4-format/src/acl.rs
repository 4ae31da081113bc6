//! POSIX access control lists in extended attributes.
