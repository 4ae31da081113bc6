//! Mounts for root alone, on which the kernel checks no permissions: the results are still right.

use crate::support::{have, run};
use crate::{attributes, check_root_alone, data, names};
use drystone_fuse::CountedOperation;
use drystone_testkit::skip::{Prerequisite, skip};
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[test]
fn access_is_answered() {
    check_root_alone(|mounted| {
        let path = mounted.path("f");
        fs::write(&path, "#!/bin/sh\n").unwrap();
        let access = |access| rustix::fs::accessat(CWD, &path, access, AtFlags::empty());
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(access(Access::EXEC_OK), Err(Errno::ACCESS));
        assert_eq!(access(Access::READ_OK | Access::WRITE_OK), Ok(()));
        assert!(std::process::Command::new(&path).status().is_err(), "nobody may run it");
        fs::set_permissions(&path, Permissions::from_mode(0o100)).unwrap();
        assert_eq!(access(Access::EXEC_OK | Access::READ_OK), Ok(()));
        assert_eq!(rustix::fs::access(mounted.root(), Access::EXEC_OK), Ok(()));
    });
}

#[test]
fn writes_are_not_held_back() {
    check_root_alone(|mounted| {
        let device = fs::metadata(mounted.root()).unwrap().dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let limit = format!("/sys/class/bdi/{major}:{minor}/strict_limit");
        match rustix::fs::access(&limit, Access::WRITE_OK) {
            Ok(()) => assert_eq!(fs::read_to_string(limit).unwrap().trim(), "0"),
            Err(error) => skip(Prerequisite::Kernel("strict_limit of a bdi".into()), error),
        }
    });
}

#[test]
fn access_lists_set_the_mode() {
    check_root_alone(|mounted| {
        if !have("setfacl") || !have("getfacl") {
            return;
        }
        let root = mounted.root();
        for name in ["f", "d"] {
            let path = mounted.path(name);
            if name == "f" {
                fs::write(&path, "x").unwrap()
            } else {
                fs::create_dir(&path).unwrap()
            }
            run("chmod", &["700", name], &root);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
            run("setfacl", &["-m", "u:65534:rwx,g::-,o::r", name], &root);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o774, "{name}");
            run("chmod", &["740", name], &root);
            assert!(run("getfacl", &["-cn", name], &root).contains("mask::r--"));
        }
        run("setfacl", &["-d", "-m", "u:1234:rw,g::r,o::-", "d"], &root);
        run("sh", &["-c", "umask 077; echo x > d/f; echo x > g"], &root);
        assert_eq!(fs::metadata(mounted.path("d/f")).unwrap().mode() & 0o777, 0o660);
        assert_eq!(fs::metadata(mounted.path("g")).unwrap().mode() & 0o777, 0o600);
    });
}

#[test]
fn names_cost_no_look_at_their_directory() {
    check_root_alone(|mounted| {
        let asked = || mounted.counters.requests(CountedOperation::Attributes);
        fs::create_dir(mounted.path("d")).unwrap();
        let before = asked();
        for number in 0..100 {
            let (old, new) = (format!("d/{number}"), format!("d/new {number}"));
            fs::write(mounted.path(&old), "").unwrap();
            fs::rename(mounted.path(&old), mounted.path(&new)).unwrap();
            fs::remove_file(mounted.path(&new)).unwrap();
        }
        assert!(asked() - before < 10, "{} times", asked() - before);
    });
}

#[test]
fn the_rest_is_as_on_other_mounts() {
    check_root_alone(attributes::times_are_exact);
    check_root_alone(attributes::flags_are_obeyed);
    check_root_alone(names::unlinked_files_live_while_open);
    check_root_alone(data::appends_and_cuts);
}
