//! Generated sequences are repeatable and readable.

use drystone_vfs::{FileSystem, NewNode, RequestContext};

use super::*;
use crate::model::MemoryFileSystem;

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
