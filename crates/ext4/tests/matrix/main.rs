//! Every kind of image against judges that aren't ours: the in-memory model, `e2fsck` and the
//! kernel.
//!
//! - `ours`: each random operation has the same outcome in the engine and in the model; `e2fsck` finds
//!   nothing wrong, and the kernel shows the same tree.
//! - `foreign`: a tree that the kernel made reads the same through the engine.
//! - `dirty`: an image copied while the kernel had it mounted recovers to what the kernel recovers.
//! - `encrypted`: names of an encrypted tree are shown as the kernel shows them without the key.
//! - `promises`: the conformance suite.
//! - `made`: images of `drystone_mkfs`.
//!
//! `DRYSTONE_OPERATIONS` is the number of operations of each profile, `DRYSTONE_SEEDS` the number of
//! seeds, and `DRYSTONE_SEED` the first of them. A check that needs root, or a kernel that knows the
//! features, is skipped with a note if it can't run.
#![allow(clippy::unwrap_used)]

/// Declares for each named feature set a test that calls `check` with the set. Underscores stand for
/// hyphens, and a leading underscore is left out. With `const NAME;` in front, the constant lists the
/// identifiers.
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
