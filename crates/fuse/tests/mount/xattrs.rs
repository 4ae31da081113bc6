//! Extended attributes and access control lists.

use crate::attributes::{as_nobody, reachable};
use crate::support::{Mounted, have, is_root, run};
use drystone_testkit::skip;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

pub fn attributes_are_kept(mounted: &Mounted) {
    let path = mounted.path("f");
    fs::write(&path, "x").unwrap();
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    let get = |name: &str| {
        let mut value = vec![0; 70_000];
        let length = rustix::fs::getxattr(&path, name, &mut value)?;
        value.truncate(length);
        Ok::<_, Errno>(value)
    };
    set("user.a", b"one", XattrFlags::empty()).unwrap();
    assert_eq!(set("user.a", b"two", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.b", b"two", XattrFlags::REPLACE), Err(Errno::NODATA));
    set("user.a", b"two", XattrFlags::REPLACE).unwrap();
    set("user.empty", b"", XattrFlags::empty()).unwrap();
    let long = vec![5; 3000];
    set("user.long", &long, XattrFlags::empty()).unwrap();
    assert_eq!(get("user.a").unwrap(), b"two");
    assert_eq!(get("user.empty").unwrap(), b"");
    assert_eq!(get("user.long").unwrap(), long);
    assert_eq!(get("user.none"), Err(Errno::NODATA));
    let mut small = [0; 10];
    assert_eq!(rustix::fs::getxattr(&path, "user.long", &mut small), Err(Errno::RANGE));
    let mut names = vec![0; 1000];
    let length = rustix::fs::listxattr(&path, &mut names).unwrap();
    let mut names: Vec<&[u8]> = names[..length].split(|byte| *byte == 0).collect();
    names.sort();
    assert_eq!(names, [&b""[..], b"user.a", b"user.empty", b"user.long"]);
    rustix::fs::removexattr(&path, "user.long").unwrap();
    assert_eq!(rustix::fs::removexattr(&path, "user.long"), Err(Errno::NODATA));
    if is_root() {
        set("trusted.t", b"t", XattrFlags::empty()).unwrap();
        set("security.s", b"s", XattrFlags::empty()).unwrap();
        assert_eq!(get("trusted.t").unwrap(), b"t");
    }
}

const CAPABILITY: &str = "security.capability";
/// The right to use raw sockets, as `setcap cap_net_raw+ep` records it.
const RAW_SOCKETS: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

pub fn file_capabilities_go_with_a_change(mounted: &Mounted) {
    if !skip::is_root("file capabilities") {
        return;
    }
    let path = mounted.path("f");
    reachable(mounted);
    for change in ["echo more >> f", "truncate -s 100 f", "fallocate -l 9000 f"] {
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        rustix::fs::setxattr(&path, CAPABILITY, &RAW_SOCKETS, XattrFlags::empty()).unwrap();
        assert!(as_nobody(mounted, change), "{change}");
        let found = rustix::fs::getxattr(&path, CAPABILITY, &mut [0; 20]);
        assert_eq!(found, Err(Errno::NODATA), "{change}");
    }
}

/// As `cp --preserve=xattr` sets them: the kernel sends the data only afterwards.
pub fn file_capabilities_stay_when_earlier_writes_arrive(mounted: &Mounted) {
    if !skip::is_root("file capabilities") {
        return;
    }
    let path = mounted.path("f");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"program").unwrap();
    rustix::fs::fsetxattr(&file, CAPABILITY, &RAW_SOCKETS, XattrFlags::empty()).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let found = rustix::fs::getxattr(&path, CAPABILITY, &mut [0; 20]);
    assert_eq!(found, Ok(RAW_SOCKETS.len()));
}

pub fn access_lists_are_inherited(mounted: &Mounted) {
    if !have("setfacl") || !have("getfacl") {
        return;
    }
    let root = mounted.root();
    fs::create_dir(mounted.path("d")).unwrap();
    run("setfacl", &["-m", "u:65534:rwx,g:2000:rx", "d"], &root);
    run("setfacl", &["-d", "-m", "u:1234:rw,g::r,o::-", "d"], &root);
    let list = run("getfacl", &["-cn", "d"], &root);
    assert!(list.contains("user:65534:rwx") && list.contains("default:user:1234:rw-"), "{list}");
    // The directory's default list decides, not the umask.
    run("sh", &["-c", "umask 077; echo x > d/f; mkdir d/e; echo x > g"], &root);
    let list = run("getfacl", &["-cn", "d/f"], &root);
    assert!(list.contains("user:1234:rw-") && list.contains("other::---"), "{list}");
    assert_eq!(fs::metadata(mounted.path("d/f")).unwrap().mode() & 0o777, 0o660);
    let list = run("getfacl", &["-cn", "d/e"], &root);
    assert!(list.contains("default:user:1234:rw-"), "{list}");
    assert_eq!(fs::metadata(mounted.path("g")).unwrap().mode() & 0o777, 0o600);
    // A list follows a change of the mode.
    run("chmod", &["640", "d/f"], &root);
    assert!(run("getfacl", &["-cn", "d/f"], &root).contains("mask::r--"));
    if is_root() {
        reachable(mounted);
        assert!(as_nobody(mounted, "echo > d/theirs"), "the list lets them in");
        run("setfacl", &["-x", "u:65534", "d"], &root);
        assert!(!as_nobody(mounted, "echo > d/more"), "it doesn't any more");
    }
    run("setfacl", &["-b", "d"], &root);
    assert!(!run("getfacl", &["-cn", "d"], &root).contains("default"));
}
