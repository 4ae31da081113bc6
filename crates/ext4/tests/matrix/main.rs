//! Every kind of image against judges that aren't ours: the in-memory model, `e2fsck` and the
//! kernel.
//!
//! - `ours`: random operations through the engine, outcome by outcome as the model's; `e2fsck` finds
//!   nothing, and the kernel shows the same tree.
//! - `foreign`: a tree that the kernel made reads the same through the engine.
//! - `dirty`: an image copied while the kernel had it mounted recovers to what the kernel recovers.
//! - `encrypted`: names of an encrypted tree are shown as the kernel shows them without the key.
//! - `promises`: the conformance suite.
//! - `made`: images of `drystone_mkfs`.
//!
//! `DRYSTONE_OPERATIONS` is how many operations of each profile are done, `DRYSTONE_SEEDS` how often
//! with other seeds, `DRYSTONE_SEED` the first of them. What needs root or a kernel that knows the
//! features is skipped with a line that says so.
#![allow(clippy::unwrap_used)]

/// Declares a test for each named feature set that calls `check` with the set; underlines stand for
/// hyphens, and a leading underline is left out. With `const NAME;` in front the identifiers are
/// kept in such a list.
macro_rules! for_sets {
    (const $list:ident; $check:path: $($name:ident)*) => {
        for_sets! { $check: $($name)* }
        const $list: &[&str] = &[$(stringify!($name)),*];
    };
    ($check:path: $($name:ident)*) => {
        $(#[test]
        fn $name() {
            $check($crate::support::set_by_identifier(stringify!($name)));
        })*
    };
}

mod dirty;
mod encrypted;
mod foreign;
mod made;
mod ours;
mod promises;
mod script;
mod support;
