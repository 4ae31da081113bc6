//! Access control lists.

use crate::model::acl::{AclSubject, ModelAcl, ModelAclEntry};
use drystone_vfs::{Access, InodeNumber, NewNode, RequestContext, Result, XattrMode};

type Fixture<'a> = super::fixture::Fixture<'a>;

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

fn acl(entries: &[(AclSubject, u16)]) -> Vec<u8> {
    let entry = |&(tag, permissions): &(AclSubject, u16)| ModelAclEntry { tag, permissions };
    ModelAcl(entries.iter().map(entry).collect()).to_bytes()
}

/// Lets user 1001 read and write what others can't.
fn extended() -> Vec<u8> {
    acl(&[
        (AclSubject::UserObject, 6),
        (AclSubject::User(1001), 6),
        (AclSubject::GroupObject, 4),
        (AclSubject::Mask, 6),
        (AclSubject::Other, 0),
    ])
}

fn minimal() -> Vec<u8> {
    acl(&[(AclSubject::UserObject, 7), (AclSubject::GroupObject, 5), (AclSubject::Other, 1)])
}

fn set(t: &Fixture<'_>, inode: InodeNumber, name: &[u8], value: &[u8]) -> Result<()> {
    t.fs.set_xattr(&t.root, inode, name, value, XattrMode::Set)
}

cases! {
    fn acl_grants_beyond_the_mode(t) {
        let file = t.file("a");
        set(t, file, ACCESS, &extended()).unwrap();
        assert_eq!(t.stat(file).permissions, 0o660);
        let both = Access::READ | Access::WRITE;
        t.fs.check_access(&t.user(1), file, both).unwrap();
        fails!(t.fs.check_access(&t.user(2), file, Access::READ), EACCES);
        assert_eq!(t.fs.xattr(&t.root, file, ACCESS).unwrap(), extended());
        assert_eq!(t.fs.list_xattrs(&t.user(9), file).unwrap(), [ACCESS]);
    }

    fn acl_that_says_what_the_mode_says_is_not_stored(t) {
        let file = t.file("a");
        set(t, file, ACCESS, &minimal()).unwrap();
        assert_eq!(t.stat(file).permissions, 0o751);
        fails!(t.fs.xattr(&t.root, file, ACCESS), ENODATA);
    }

    fn chmod_changes_the_mask(t) {
        let file = t.file("a");
        set(t, file, ACCESS, &extended()).unwrap();
        t.chmod(file, 0o640);
        fails!(t.fs.check_access(&t.user(1), file, Access::WRITE), EACCES);
        t.fs.check_access(&t.user(1), file, Access::READ).unwrap();
        let stored = ModelAcl::parse(&t.fs.xattr(&t.root, file, ACCESS).unwrap()).unwrap().unwrap();
        assert_eq!(stored.mode(), (0o640, false));
        assert_eq!(stored.0[1].permissions, 6, "the user's own entry stays");
    }

    fn acl_can_be_removed(t) {
        let file = t.file("a");
        set(t, file, ACCESS, &extended()).unwrap();
        t.fs.remove_xattr(&t.root, file, ACCESS).unwrap();
        assert_eq!(t.stat(file).permissions, 0o660);
        fails!(t.fs.check_access(&t.user(1), file, Access::READ), EACCES);
        t.fs.remove_xattr(&t.root, file, ACCESS).unwrap();
    }

    fn acl_must_be_valid(t) {
        let file = t.file("a");
        fails!(set(t, file, ACCESS, b""), EINVAL);
        fails!(set(t, file, ACCESS, b"\x02\0\0\0x"), EINVAL);
        fails!(set(t, file, ACCESS, b"\x01\0\0\0"), EOPNOTSUPP);
        fails!(set(t, file, ACCESS, &acl(&[(AclSubject::UserObject, 7)])), EINVAL);
        let without_mask =
            [(AclSubject::UserObject, 7), (AclSubject::User(5), 7), (AclSubject::GroupObject, 5), (AclSubject::Other, 1)];
        fails!(set(t, file, ACCESS, &acl(&without_mask)), EINVAL);
    }

    fn acl_is_for_the_owner(t) {
        let file = t.made(&t.user(1), t.dir, "a", NewNode::Regular, 0o666);
        fails!(t.fs.set_xattr(&t.user(2), file, ACCESS, &extended(), XattrMode::Set), EPERM);
        t.fs.set_xattr(&t.user(1), file, ACCESS, &extended(), XattrMode::Set).unwrap();
    }

    fn symlinks_have_no_acl(t) {
        let link = t.symlink("l", "x");
        fails!(set(t, link, ACCESS, &extended()), EOPNOTSUPP);
        fails!(t.fs.xattr(&t.root, link, ACCESS), EOPNOTSUPP);
    }

    fn default_acl_is_for_directories(t) {
        let file = t.file("a");
        fails!(set(t, file, DEFAULT, &extended()), EACCES);
        let sub = t.mkdir("d");
        set(t, sub, DEFAULT, &extended()).unwrap();
        assert_eq!(t.stat(sub).permissions, 0o755, "the directory's own mode stays");
        assert_eq!(t.fs.xattr(&t.root, sub, DEFAULT).unwrap(), extended());
    }

    fn default_acl_is_inherited_instead_of_the_umask(t) {
        let sub = t.mkdir("d");
        t.chmod(sub, 0o777);
        set(t, sub, DEFAULT, &extended()).unwrap();
        let context = RequestContext { umask: 0o077, ..t.user(2) };
        let file = t.create_as(&context, sub, "a", NewNode::Regular, 0o666).unwrap();
        assert_eq!(file.permissions, 0o660);
        t.fs.check_access(&t.user(1), file.inode, Access::WRITE).unwrap();
        let narrow = t.create_as(&context, sub, "b", NewNode::Regular, 0o644).unwrap();
        assert_eq!(narrow.permissions, 0o640);
        fails!(t.fs.check_access(&t.user(1), narrow.inode, Access::WRITE), EACCES);
        fails!(t.fs.xattr(&t.root, file.inode, DEFAULT), ENODATA);
    }

    fn default_acl_passes_to_subdirectories(t) {
        let sub = t.mkdir("d");
        set(t, sub, DEFAULT, &extended()).unwrap();
        let inner = t.create_as(&t.root, sub, "e", NewNode::Directory, 0o777).unwrap();
        assert_eq!(t.fs.xattr(&t.root, inner.inode, DEFAULT).unwrap(), extended());
        assert_eq!(inner.permissions, 0o660);
        let link = t.create_as(&t.root, sub, "l", NewNode::Symlink(b"x"), 0o777).unwrap();
        assert_eq!(link.permissions, 0o777);
    }

    fn minimal_default_acl_sets_the_mode_only(t) {
        let sub = t.mkdir("d");
        set(t, sub, DEFAULT, &minimal()).unwrap();
        let file = t.create_as(&t.root, sub, "a", NewNode::Regular, 0o666).unwrap();
        assert_eq!(file.permissions, 0o640);
        fails!(t.fs.xattr(&t.root, file.inode, ACCESS), ENODATA);
    }
}
