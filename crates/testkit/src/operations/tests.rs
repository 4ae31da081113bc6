//! Generated sequences are repeatable and readable.

use drystone_vfs::{FileSystem, NewNode, RequestContext};

use super::*;
use crate::model::{Configuration, MemoryFileSystem};

#[test]
fn operations_round_trip_as_text() {
    for profile in Profile::ALL {
        for operation in generate(7, profile, "/", 500) {
            let line = operation.to_string();
            assert_eq!(line.parse::<Operation>().as_ref(), Ok(&operation), "{line}");
        }
    }
    assert!("u0 mkdir /a".parse::<Operation>().is_err());
    assert!("u0 mkdir /a 755 x".parse::<Operation>().is_err());
}

#[test]
fn most_operations_hit() {
    for profile in Profile::ALL {
        let model = MemoryFileSystem::default();
        let mut executor = Executor::new(&model);
        let operations = generate(1, profile, "/", 2000);
        let hits = operations.iter().filter(|op| executor.apply(op).0.is_ok()).count();
        assert!(hits > 1000, "{}: {hits} of 2000", profile.name);
    }
}

#[test]
fn model_equals_itself_and_leaks_no_references() {
    for profile in Profile::ALL {
        check_seeds(0..3, profile, 600, Tolerance::default(), |test| {
            let (a, b) = (MemoryFileSystem::default(), MemoryFileSystem::default());
            test(&a, &b);
            assert_eq!(a.references(), 0);
        });
    }
}

#[test]
fn generation_stays_below_its_base() {
    let model = MemoryFileSystem::default();
    let root = RequestContext::superuser();
    let base = model.create(&root, model.root(), b"base", NewNode::Directory, 0o777).unwrap();
    model.forget(base.inode, 1);
    let mut executor = Executor::new(&model);
    for operation in generate(3, &Profile::MIXED, "/base", 1000) {
        executor.apply(&operation);
    }
    let mut names = Vec::new();
    model
        .read_directory(&root, model.root(), 0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .unwrap();
    assert_eq!(names, [&b"."[..], b"..", b"base"]);
}

#[test]
fn differences_are_found_and_shrunk() {
    let fails = |operations: &[Operation]| {
        let small = Configuration { links_max: 2, ..Configuration::default() };
        let (a, b) = (MemoryFileSystem::default(), MemoryFileSystem::new(small));
        compare(&a, &b, operations, Tolerance::default()).is_err()
    };
    let found = (0..20)
        .map(|seed| generate(seed, &Profile::METADATA, "/", 400))
        .find(|operations| fails(operations))
        .expect("some sequence makes three links");
    let shortest = shrink(&found, 1000, fails);
    assert!(shortest.len() <= 4, "{shortest:#?}");
    assert!(fails(&shortest));
}
