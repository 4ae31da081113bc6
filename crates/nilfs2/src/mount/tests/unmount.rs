//! A volume is marked clean only if everything is in its newest log.

use super::*;
use drystone_vfs::InodeNumber as Number;

/// A clean volume isn't searched for such inodes.
#[test]
fn a_deletion_counts_when_a_log_has_it() {
    let (_, fs, [a, _]) = volume();
    fs.unlink(&RequestContext::superuser(), fs.root(), b"a").unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.engine.nameless_left(), 1);
    fs.forget(Number(a.number.0), 1);
    assert!(a.fields.lock().is_deleted);
    assert_eq!(fs.engine.nameless_left(), 1);
    fs.sync().unwrap();
    assert_eq!(fs.engine.nameless_left(), 0);
}
