//! Extended attributes.

use drystone_vfs::{Capabilities, InodeNumber, NewNode, RequestContext, Result, XattrMode};

type Fixture<'a> = super::fixture::Fixture<'a>;

fn set(t: &Fixture<'_>, inode: InodeNumber, name: &str, value: &[u8]) -> Result<()> {
    set_as(t, &t.root, inode, name, value)
}

fn set_as(
    t: &Fixture<'_>,
    context: &RequestContext,
    inode: InodeNumber,
    name: &str,
    value: &[u8],
) -> Result<()> {
    t.fs.set_xattr(context, inode, name.as_bytes(), value, XattrMode::Set)
}

fn get(t: &Fixture<'_>, inode: InodeNumber, name: &str) -> Result<Vec<u8>> {
    t.fs.xattr(&t.root, inode, name.as_bytes())
}

fn remove(t: &Fixture<'_>, inode: InodeNumber, name: &str) -> Result<()> {
    t.fs.remove_xattr(&t.root, inode, name.as_bytes())
}

fn list(t: &Fixture<'_>, context: &RequestContext, inode: InodeNumber) -> Vec<String> {
    let names = t.fs.list_xattrs(context, inode).unwrap();
    let mut names: Vec<_> =
        names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
    names.sort();
    names
}

cases! {
    fn xattr_is_kept_and_replaced(t) {
        let file = t.file("a");
        set(t, file, "user.x", b"one").unwrap();
        assert_eq!(get(t, file, "user.x").unwrap(), b"one");
        set(t, file, "user.x", b"another value").unwrap();
        assert_eq!(get(t, file, "user.x").unwrap(), b"another value");
        set(t, file, "user.x", b"").unwrap();
        assert_eq!(get(t, file, "user.x").unwrap(), b"");
        remove(t, file, "user.x").unwrap();
        fails!(get(t, file, "user.x"), ENODATA);
    }

    fn xattr_modes_are_minded(t) {
        let file = t.file("a");
        let set = |mode| t.fs.set_xattr(&t.root, file, b"user.x", b"v", mode);
        fails!(set(XattrMode::Replace), ENODATA);
        set(XattrMode::Create).unwrap();
        fails!(set(XattrMode::Create), EEXIST);
        set(XattrMode::Replace).unwrap();
    }

    fn xattr_that_is_not_there(t) {
        let file = t.file("a");
        fails!(get(t, file, "user.x"), ENODATA);
        fails!(remove(t, file, "user.x"), ENODATA);
        assert!(list(t, &t.root, file).is_empty());
    }

    fn several_xattrs_are_listed(t) {
        let file = t.file("a");
        let names = ["security.s", "trusted.t", "user.a", "user.b", "user.bb"];
        for name in names {
            set(t, file, name, name.as_bytes()).unwrap();
        }
        assert_eq!(list(t, &t.root, file), names);
        for name in names {
            assert_eq!(get(t, file, name).unwrap(), name.as_bytes());
        }
        remove(t, file, "user.a").unwrap();
        assert_eq!(list(t, &t.root, file), ["security.s", "trusted.t", "user.b", "user.bb"]);
        assert_eq!(get(t, file, "user.b").unwrap(), b"user.b");
    }

    fn xattrs_grow_and_shrink_together(t) {
        let file = t.file("a");
        for length in [1, 10, 40, 100, 200, 90, 3, 0, 200] {
            for name in ["user.a", "user.b", "user.c"] {
                let value = vec![length as u8; length];
                set(t, file, name, &value).unwrap();
                assert_eq!(get(t, file, name).unwrap(), value);
            }
        }
    }

    fn xattr_name_spaces(t) {
        let file = t.file("a");
        fails!(set(t, file, "unknown.x", b"v"), EOPNOTSUPP);
        fails!(set(t, file, "x", b"v"), EOPNOTSUPP);
        fails!(get(t, file, "unknown.x"), EOPNOTSUPP);
        fails!(remove(t, file, "unknown.x"), EOPNOTSUPP);
        fails!(set(t, file, "user.", b"v"), EINVAL);
    }

    fn xattr_name_lengths(t) {
        let file = t.file("a");
        let longest = format!("user.{}", "n".repeat(250));
        set(t, file, &longest, b"v").unwrap();
        assert_eq!(get(t, file, &longest).unwrap(), b"v");
        fails!(set(t, file, &format!("{longest}n"), b"v"), ERANGE);
        fails!(set(t, file, "", b"v"), ERANGE);
    }

    fn xattr_value_lengths(t) {
        let file = t.file("a");
        fails!(set(t, file, "user.x", &[0; 65_537]), E2BIG);
        let large = vec![5; t.of.xattr_value_max.min(t.of.block_size as usize / 2)];
        set(t, file, "user.x", &large).unwrap();
        assert_eq!(get(t, file, "user.x").unwrap(), large);
    }

    fn user_xattrs_are_for_files_and_directories(t) {
        set(t, t.mkdir("d"), "user.x", b"v").unwrap();
        let others = [
            t.symlink("l", "x"),
            t.made(&t.root, t.dir, "p", NewNode::Fifo, 0o666),
            t.made(&t.root, t.dir, "s", NewNode::Socket, 0o666),
        ];
        for inode in others {
            fails!(set(t, inode, "user.x", b"v"), EPERM);
            fails!(get(t, inode, "user.x"), ENODATA);
            set(t, inode, "trusted.x", b"v").unwrap();
            assert_eq!(get(t, inode, "trusted.x").unwrap(), b"v");
        }
    }

    fn user_xattrs_need_permission(t) {
        let file = t.file("a");
        set(t, file, "user.x", b"v").unwrap();
        t.chmod(file, 0o604);
        assert_eq!(t.fs.xattr(&t.user(1), file, b"user.x").unwrap(), b"v");
        fails!(set_as(t, &t.user(1), file, "user.x", b"w"), EACCES);
        t.chmod(file, 0o602);
        fails!(t.fs.xattr(&t.user(1), file, b"user.x"), EACCES);
        set_as(t, &t.user(1), file, "user.x", b"w").unwrap();
    }

    fn sticky_directory_keeps_user_xattrs_to_its_owner(t) {
        let sub = t.mkdir("d");
        t.chmod(sub, 0o1777);
        fails!(set_as(t, &t.user(1), sub, "user.x", b"v"), EPERM);
        t.chmod(sub, 0o777);
        set_as(t, &t.user(1), sub, "user.x", b"v").unwrap();
    }

    fn trusted_xattrs_are_hidden(t) {
        let file = t.file("a");
        t.chmod(file, 0o777);
        set(t, file, "trusted.x", b"v").unwrap();
        fails!(t.fs.xattr(&t.user(1), file, b"trusted.x"), ENODATA);
        fails!(set_as(t, &t.user(1), file, "trusted.x", b"v"), EPERM);
        assert!(list(t, &t.user(1), file).is_empty());
        let able = t.able(1, Capabilities::ADMINISTER);
        assert_eq!(list(t, &able, file), ["trusted.x"]);
    }

    fn security_xattrs_are_read_by_all(t) {
        let file = t.file("a");
        t.chmod(file, 0o600);
        set(t, file, "security.x", b"v").unwrap();
        assert_eq!(t.fs.xattr(&t.user(1), file, b"security.x").unwrap(), b"v");
        fails!(set_as(t, &t.user(1), file, "security.x", b"v"), EPERM);
    }

    fn xattrs_change_the_change_time(t) {
        let file = t.file("a");
        let old = drystone_vfs::Timestamp { seconds: 1, nanoseconds: 0 };
        let back = drystone_vfs::SetAttributes { changed: Some(old), ..Default::default() };
        t.set(&t.root, file, back).unwrap();
        set(t, file, "user.x", b"v").unwrap();
        assert!(t.stat(file).changed > old);
        t.set(&t.root, file, back).unwrap();
        remove(t, file, "user.x").unwrap();
        assert!(t.stat(file).changed > old);
    }

    fn equal_xattrs_of_many_files_stay_apart(t) {
        let value = vec![7; 500];
        let files: Vec<_> = (0..20).map(|n| t.file(&format!("f{n}"))).collect();
        for file in &files {
            set(t, *file, "user.same", &value).unwrap();
        }
        set(t, files[3], "user.same", b"different").unwrap();
        remove(t, files[4], "user.same").unwrap();
        t.unlink(t.dir, "f5").unwrap();
        t.release(files[5]);
        for (n, file) in files.iter().enumerate().filter(|(n, _)| ![3, 4, 5].contains(n)) {
            assert_eq!(get(t, *file, "user.same").unwrap(), value, "file {n}");
        }
        assert_eq!(get(t, files[3], "user.same").unwrap(), b"different");
    }
}
