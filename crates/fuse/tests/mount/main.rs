//! Mounts small images and uses them as programs do, over each transport; `e2fsck` judges what is
//! left.
#![allow(clippy::unwrap_used, reason = "a test may fail so")]

mod attributes;
mod crash;
mod data;
mod direct;
mod folding;
mod frozen;
mod guards;
mod handles;
mod memory;
mod names;
mod quotas;
mod root_alone;
mod slow_disk;
mod support;
mod xattrs;

use drystone_fuse::Transport;
use support::Mounted;

/// Makes a test of `check` for each transport.
macro_rules! over_each_transport {
    ($($module:ident :: $check:ident),* $(,)?) => {
        mod device {
            $(#[test]
            fn $check() {
                super::check(super::Transport::Device, super::$module::$check);
            })*
        }
        mod fuser {
            $(#[test]
            fn $check() {
                super::check(super::Transport::Fuser, super::$module::$check);
            })*
        }
        mod rings {
            $(#[test]
            fn $check() {
                super::check(super::Transport::Rings, super::$module::$check);
            })*
        }
    };
}

/// Mounts an image, runs `body` on it, unmounts it and has it checked.
fn check(transport: Transport, body: fn(&Mounted)) {
    let Some(mounted) = Mounted::new(transport) else { return };
    body(&mounted);
    mounted.finish();
}

/// The same on a mount for root alone, where the kernel checks no permissions.
fn check_root_alone(body: fn(&Mounted)) {
    for transport in [Transport::Device, Transport::Rings] {
        let Some(mounted) = Mounted::for_root(transport) else { continue };
        body(&mounted);
        mounted.finish();
    }
}

over_each_transport! {
    names::files_come_and_go,
    names::names_move,
    names::listings_are_complete,
    names::nodes_of_every_type,
    names::unlinked_files_live_while_open,
    names::unnamed_files,
    names::what_the_kernel_takes_for_new_is_checked,
    handles::forgotten_files_are_opened_by_handle,
    handles::handles_of_files_that_are_gone_are_stale,
    data::content_is_kept,
    data::appends_and_cuts,
    data::space_is_managed,
    data::holes_are_found,
    data::holes_are_found_by_many,
    data::ranges_are_copied,
    data::mapped_and_direct_files,
    direct::direct_writes_outdate_what_is_cached,
    direct::direct_and_cached_writes_dont_wait_for_each_other,
    data::syncs_mean_it,
    data::locks_are_kept,
    data::full_images_say_so,
    data::who_fills_an_image_is_told,
    attributes::times_are_exact,
    attributes::accesses_are_recorded,
    attributes::creation_times_are_shown,
    attributes::owners_and_modes,
    attributes::set_id_bits_are_cleared,
    attributes::flags_are_obeyed,
    attributes::appends_are_gathered,
    attributes::space_is_counted,
    guards::immutable_files_take_only_what_was_written_before,
    guards::append_only_files_keep_what_is_stored,
    guards::refused_changes_leave_the_cache,
    guards::direct_appends_go_beside_gathered_ones,
    frozen::reads_go_on_while_changes_wait,
    quotas::limits_are_kept,
    xattrs::attributes_are_kept,
    xattrs::file_capabilities_go_with_a_change,
    xattrs::file_capabilities_stay_when_earlier_writes_arrive,
    xattrs::access_lists_are_inherited,
    memory::forgotten_inodes_leave,
}
