//! The identity under which system calls are made.

use rustix::fs::Mode;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::operations::Actor;
use crate::skip::is_root;

/// Clears the process's umask, so that new files get the requested permissions. False, after a note
/// of the skip, without root, because only root can act as others.
pub fn become_root_without_umask() -> bool {
    if !is_root("acting as several users") {
        return false;
    }
    rustix::process::umask(Mode::empty());
    true
}

/// Calls `action` while this thread, and no other, has the effective identity of `actor`.
pub(super) fn act_as<T>(actor: Actor, action: impl FnOnce() -> T) -> T {
    if actor == Actor(0) {
        return action();
    }
    let context = actor.context();
    let groups: Vec<Gid> = context.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let _guard = Guard;
    // Groups first: an ordinary user can't change them.
    set_thread_groups(&groups).expect("root may choose its groups");
    set_thread_res_gid(None, Gid::from_raw(context.group), None).expect("root may be any group");
    set_thread_res_uid(None, Uid::from_raw(context.user), None).expect("root may be any user");
    action()
}

/// Becomes root again when dropped, also if an assertion fails.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        let root = (Uid::ROOT, Gid::ROOT);
        // The saved user is still root, so that this can't fail.
        let _ = set_thread_res_uid(None, root.0, None);
        let _ = set_thread_res_gid(None, root.1, None);
        let _ = set_thread_groups(&[]);
    }
}
