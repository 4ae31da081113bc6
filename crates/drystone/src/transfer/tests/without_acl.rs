//! Permissions of what doesn't get its ACL.

use super::*;
use crate::transfer::facts::ACCESS_ACL;
use crate::transfer::{archive, import};
use drystone_ext4_format::acl::{Acl, AclEntry, AclTag};
use drystone_sources::Opener;

/// With the ACL of a file that its group may not read, and without.
const WITH: u16 = 0o660;
const WITHOUT: u16 = 0o600;

/// An image with the directory `/d` and the file `/d/f`, which belong to their owner and to user 1234 alone.
fn guarded() -> MemoryFileSystem {
    let image = memory();
    let context = RequestContext::superuser();
    let entry = |tag, permissions| AclEntry { tag, permissions };
    let acl = Acl::new(vec![
        entry(AclTag::Owner, 6),
        entry(AclTag::User(1234), 6),
        entry(AclTag::OwningGroup, 0),
        entry(AclTag::Mask, 6),
        entry(AclTag::Other, 0),
    ]);
    let acl = acl.unwrap().to_attribute();
    let mut directory = image.root();
    for (name, node) in [(b"d", NewNode::Directory), (b"f", NewNode::Regular)] {
        let made = image.create(&context, directory, name, node, 0o600).unwrap().inode;
        image.set_xattr(&context, made, ACCESS_ACL, &acl, XattrMode::Set).unwrap();
        directory = made;
    }
    assert_eq!(permissions(&image), [WITH; 2]);
    image
}

fn permissions(image: &MemoryFileSystem) -> [u16; 2] {
    let context = RequestContext::superuser();
    [&b"/d"[..], b"/d/f"]
        .map(|path| find_path(image, &context, path, true).unwrap().attributes().permissions)
}

fn options(keep_xattrs: bool) -> CopyOptions {
    CopyOptions { keep_xattrs, ..CopyOptions::default() }
}

/// An image that holds ACLs, or none.
fn target(xattrs: bool) -> MemoryFileSystem {
    MemoryFileSystem::new(Configuration { xattrs, ..Configuration::default() })
}

/// Whether attributes are to be kept, whether the target can hold them, and what comes of it.
const CASES: [(bool, bool, u16); 3] =
    [(true, true, WITH), (true, false, WITHOUT), (false, true, WITHOUT)];

#[test]
fn copies_into_images() {
    let source = guarded();
    for (keep, holds, expected) in CASES {
        let target = target(holds);
        let (from, to) = (Endpoint::Image(&source), Endpoint::Image(&target));
        let monitor = GatheredProblems::new();
        let items = [item("/d", "d")];
        copy(from, &items, to, Path::new("/"), &options(keep), &monitor).unwrap();
        assert_eq!(permissions(&target), [expected; 2], "{keep} {holds}");
    }
}

#[test]
fn copies_to_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let source = guarded();
    let monitor = GatheredProblems::new();
    let (items, from) = ([item("/d", "d")], Endpoint::Image(&source));
    let plain = options(false);
    copy(from, &items, Endpoint::Host, folder.path(), &plain, &monitor).unwrap();
    for path in ["d", "d/f"] {
        let mode = std::fs::metadata(folder.path().join(path)).map(|found| found.mode() & 0o777);
        // Who isn't root can't enter the directory.
        assert!(mode.is_ok_and(|mode| mode == u32::from(WITHOUT)) || !is_root(), "{path}");
    }
}

#[test]
fn archives() {
    let source = guarded();
    let folder = tempfile::tempdir().unwrap();
    let read = |keep_in_archive: bool, keep: bool, holds: bool| {
        let mut bytes = Vec::new();
        let monitor = GatheredProblems::new();
        archive(&source, &item("/d", "d"), &mut bytes, &options(keep_in_archive), &monitor)
            .unwrap();
        let path = folder.path().join("a.tar");
        std::fs::write(&path, bytes).unwrap();
        let archive = Opener::new(folder.path()).open(&path).unwrap();
        let (target, context) = (target(holds), RequestContext::superuser());
        import(&archive, &target, &context, Path::new("/"), &options(keep), &monitor).unwrap();
        permissions(&target)
    };
    assert_eq!(read(false, true, true), [WITHOUT; 2]);
    for (keep, holds, expected) in CASES {
        assert_eq!(read(true, keep, holds), [expected; 2], "{keep} {holds}");
    }
}
