//! Quotas: a project's limits on a mount, and how large its directory says it is.

use crate::attributes::{as_nobody, reachable};
use crate::support::{Mounted, have, run};
use drystone::{QuotaKind, QuotaLimits};
use drystone_testkit::skip::is_root;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

const PROJECT: u32 = 7;
const LIMIT_KIB: u64 = 1000;

pub fn limits_are_kept(mounted: &Mounted) {
    if !is_root("projects") || !have("chattr") {
        return;
    }
    reachable(mounted);
    fs::create_dir(mounted.path("p")).unwrap();
    fs::set_permissions(mounted.path("p"), Permissions::from_mode(0o777)).unwrap();
    run("chattr", &["-p", &PROJECT.to_string(), "p"], &mounted.root());
    run("chattr", &["+P", "p"], &mounted.root());
    let limits = QuotaLimits { space_hard: LIMIT_KIB, inodes_soft: 3, ..QuotaLimits::default() };
    let image = mounted.image();
    image.set_quota_limits(QuotaKind::Project, PROJECT, &limits).unwrap();
    // Refused at the first inode over the limit.
    image.set_quota_grace(QuotaKind::Project, 0, 0).unwrap();
    let space = |name| rustix::fs::statvfs(mounted.path(name)).unwrap();
    let limited = space("p");
    assert_eq!(limited.f_blocks * limited.f_frsize, LIMIT_KIB << 10);
    assert_eq!((limited.f_files, limited.f_ffree), (3, 2));
    assert!(space(".").f_blocks > limited.f_blocks);
    assert!(as_nobody(mounted, "head -c 512000 /dev/zero > p/a"));
    assert!(!as_nobody(mounted, "head -c 1024000 /dev/zero > p/b"));
    assert!(as_nobody(mounted, "touch p/c"));
    assert!(!as_nobody(mounted, "touch p/d"));
    // The kernel forgets removed files a little later, and only then is there room.
    assert!(as_nobody(mounted, "rm p/b"));
    let mut attempts = 0..1000;
    assert!(attempts.any(|_| as_nobody(mounted, "touch p/d || { sleep 0.01; false; }")));
    fs::write(mounted.path("p/root"), vec![1; 2 << 20]).unwrap();
    assert_eq!(space("p").f_bavail, 0);
}
