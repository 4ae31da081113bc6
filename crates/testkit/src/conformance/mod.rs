//! What POSIX and Linux promise for a file system, in small cases.
//!
//! Each case works in a new directory of its own, so all may run on one file system, one after
//! the other. What differs between file systems (limits, features) is described by the model's
//! [`Configuration`].
#![allow(clippy::unwrap_used, reason = "a case fails by panicking; the runner reports it")]

/// Declares cases and their table.
macro_rules! cases {
    ($(fn $name:ident($fixture:ident) $body:block)*) => {
        $(fn $name($fixture: &$crate::conformance::fixture::Fixture<'_>) $body)*

        pub(super) const CASES: &[$crate::conformance::Promise] =
            &[$($crate::conformance::Promise { name: stringify!($name), check: $name }),*];
    };
}

/// Asserts that a result is this error number.
macro_rules! fails {
    ($result:expr, $errno:ident) => {{
        let outcome = $result.map(|_| "success").map_err(|error| error.errno);
        assert_eq!(outcome, Err(drystone_vfs::Errno::$errno), "{}", stringify!($result));
    }};
}

mod acls;
mod attributes;
mod data;
mod directories;
mod fixture;
mod names;
mod permissions;
mod ranges;
mod rename;
mod xattrs;

use std::panic::{AssertUnwindSafe, catch_unwind};

use drystone_vfs::FileSystem;

use crate::model::Configuration;
use fixture::Fixture;

/// One promise.
#[derive(Clone, Copy)]
pub struct Promise {
    /// The promise.
    pub name: &'static str,
    check: fn(&Fixture<'_>),
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct ConformanceFailure {
    /// The case.
    pub name: &'static str,
    /// What happened instead.
    pub message: String,
}

/// All cases.
pub fn cases() -> impl Iterator<Item = &'static Promise> {
    let groups = [
        names::CASES,
        permissions::CASES,
        rename::CASES,
        data::CASES,
        ranges::CASES,
        attributes::CASES,
        xattrs::CASES,
        acls::CASES,
        directories::CASES,
    ];
    groups.into_iter().flatten()
}

impl Promise {
    /// Runs the case in a directory of its own.
    pub fn run(
        &self,
        file_system: &dyn FileSystem,
        of: &Configuration,
    ) -> Result<(), ConformanceFailure> {
        let check = || (self.check)(&Fixture::new(file_system, of, self.name));
        catch_unwind(AssertUnwindSafe(check)).map_err(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            ConformanceFailure { name: self.name, message: text.unwrap_or_default() }
        })
    }
}

/// Runs all cases and returns those that failed. The place of each failure is on standard error.
pub fn run_all(file_system: &dyn FileSystem, of: &Configuration) -> Vec<ConformanceFailure> {
    cases().filter_map(|case| case.run(file_system, of).err()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MemoryFileSystem;

    #[test]
    fn the_model_keeps_every_promise() {
        let block_maps = Configuration {
            extents: false,
            projects: true,
            ..Configuration::with_block_size(1024)
        };
        let clusters = Configuration { cluster_size: 65_536, ..Configuration::default() };
        let few_links = Configuration {
            links_max: 900,
            directory_links_unlimited: false,
            ..Configuration::with_block_size(2048)
        };
        let small_inodes = Configuration::with_block_size(65_536).with_small_inodes();
        for of in [Configuration::default(), block_maps, clusters, few_links, small_inodes] {
            let model = MemoryFileSystem::new(of.clone());
            let failures = run_all(&model, &of);
            assert!(failures.is_empty(), "{of:?}: {failures:#?}");
            assert_eq!(model.references(), 0);
        }
    }

    #[test]
    fn there_are_many_cases_with_different_names() {
        let mut names: Vec<_> = cases().map(|case| case.name).collect();
        assert!(names.len() >= 120, "{}", names.len());
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
