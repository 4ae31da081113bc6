//! The commands, one module each: its arguments, and what it does.

pub mod bench;
pub mod build;
pub mod cat;
pub mod chattr;
pub mod check;
pub mod checkpoints;
pub mod chmod;
pub mod chown;
pub mod compact;
pub mod completions;
pub mod cp;
pub mod defragment;
pub mod df;
pub mod diff;
pub mod du;
pub mod edit;
pub mod extract;
pub mod find;
pub mod getfacl;
pub mod getfattr;
pub mod history;
pub mod import;
pub mod info;
pub mod inspect;
pub mod label;
pub mod ln;
pub mod ls;
pub mod lsattr;
pub mod metadata;
pub mod mkdir;
pub mod mkfs;
pub mod mknod;
pub mod mount;
pub mod mounts;
pub mod mv;
pub mod quota;
mod repair;
pub mod resize;
pub mod rm;
pub mod set;
pub mod setfacl;
pub mod setfattr;
pub mod shell;
pub mod snapshot;
pub mod stat;
pub mod top;
pub mod touch;
pub mod tree;
pub mod trim;
pub mod truncate;
pub mod tune;
pub mod umount;
pub mod undelete;
pub mod undo;
pub mod uuid;
pub mod which_inode;
pub mod which_name;
pub mod zero_free;

use crate::failure::Outcome;
use crate::global::Global;
use clap::Subcommand;

/// The commands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub enum Command {
    Mkfs(mkfs::Arguments),
    Build(build::Arguments),
    Info(info::Arguments),
    Ls(ls::Arguments),
    Tree(tree::Arguments),
    Stat(stat::Arguments),
    Cat(cat::Arguments),
    Find(find::Arguments),
    Du(du::Arguments),
    Df(df::Arguments),
    Cp(cp::Arguments),
    Extract(extract::Arguments),
    Import(import::Arguments),
    Diff(diff::Arguments),
    Mkdir(mkdir::Arguments),
    Mknod(mknod::Arguments),
    Touch(touch::Arguments),
    Mv(mv::Arguments),
    Rm(rm::Arguments),
    Ln(ln::Arguments),
    Chmod(chmod::Arguments),
    Chown(chown::Arguments),
    Truncate(truncate::Arguments),
    Edit(edit::Arguments),
    Chattr(chattr::Arguments),
    Lsattr(lsattr::Arguments),
    Setfattr(setfattr::Arguments),
    Getfattr(getfattr::Arguments),
    Setfacl(setfacl::Arguments),
    Getfacl(getfacl::Arguments),
    Quota(quota::Arguments),
    Check(check::Arguments),
    Inspect(inspect::Arguments),
    WhichInode(which_inode::Arguments),
    WhichName(which_name::Arguments),
    Metadata(metadata::Arguments),
    Set(set::Arguments),
    Undelete(undelete::Arguments),
    Label(label::Arguments),
    Uuid(uuid::Arguments),
    Tune(tune::Arguments),
    Resize(resize::Arguments),
    Compact(compact::Arguments),
    Defragment(defragment::Arguments),
    Trim(trim::Arguments),
    ZeroFree(zero_free::Arguments),
    Snapshot(snapshot::Arguments),
    Undo(undo::Arguments),
    Checkpoints(checkpoints::Arguments),
    History(history::Arguments),
    Bench(bench::Arguments),
    Shell(shell::Arguments),
    Mount(mount::Arguments),
    Umount(umount::Arguments),
    Mounts(mounts::Arguments),
    Top(top::Arguments),
    Completions(completions::Arguments),
}

/// Runs the command. `definition` is that of the whole command line.
pub fn run(command: &Command, global: &Global, definition: fn() -> clap::Command) -> Outcome {
    match command {
        Command::Mkfs(arguments) => mkfs::run(arguments, global),
        Command::Build(arguments) => build::run(arguments, global),
        Command::Info(arguments) => info::run(arguments, global),
        Command::Ls(arguments) => ls::run(arguments, global),
        Command::Tree(arguments) => tree::run(arguments, global),
        Command::Stat(arguments) => stat::run(arguments, global),
        Command::Cat(arguments) => cat::run(arguments, global),
        Command::Diff(arguments) => diff::run(arguments, global),
        Command::Extract(arguments) => extract::run(arguments, global),
        Command::Import(arguments) => import::run(arguments, global),
        Command::Find(arguments) => find::run(arguments, global),
        Command::Du(arguments) => du::run(arguments, global),
        Command::Df(arguments) => df::run(arguments, global),
        Command::Cp(arguments) => cp::run(arguments, global),
        Command::Mkdir(arguments) => mkdir::run(arguments, global),
        Command::Mknod(arguments) => mknod::run(arguments, global),
        Command::Touch(arguments) => touch::run(arguments, global),
        Command::Mv(arguments) => mv::run(arguments, global),
        Command::Rm(arguments) => rm::run(arguments, global),
        Command::Ln(arguments) => ln::run(arguments, global),
        Command::Chmod(arguments) => chmod::run(arguments, global),
        Command::Chown(arguments) => chown::run(arguments, global),
        Command::Edit(arguments) => edit::run(arguments, global),
        Command::Truncate(arguments) => truncate::run(arguments, global),
        Command::Chattr(arguments) => chattr::run(arguments, global),
        Command::Lsattr(arguments) => lsattr::run(arguments, global),
        Command::Setfattr(arguments) => setfattr::run(arguments, global),
        Command::Getfattr(arguments) => getfattr::run(arguments, global),
        Command::Setfacl(arguments) => setfacl::run(arguments, global),
        Command::Getfacl(arguments) => getfacl::run(arguments, global),
        Command::Quota(arguments) => quota::run(arguments, global),
        Command::Checkpoints(arguments) => checkpoints::run(arguments, global),
        Command::History(arguments) => history::run(arguments, global),
        Command::Check(arguments) => check::run(arguments, global),
        Command::Inspect(arguments) => inspect::run(arguments, global),
        Command::WhichInode(arguments) => which_inode::run(arguments, global),
        Command::WhichName(arguments) => which_name::run(arguments, global),
        Command::Metadata(arguments) => metadata::run(arguments, global),
        Command::Set(arguments) => set::run(arguments, global),
        Command::Undelete(arguments) => undelete::run(arguments, global),
        Command::Label(arguments) => label::run(arguments, global),
        Command::Uuid(arguments) => uuid::run(arguments, global),
        Command::Tune(arguments) => tune::run(arguments, global),
        Command::Resize(arguments) => resize::run(arguments, global),
        Command::Compact(arguments) => compact::run(arguments, global),
        Command::Defragment(arguments) => defragment::run(arguments, global),
        Command::Trim(arguments) => trim::run(arguments, global),
        Command::ZeroFree(arguments) => zero_free::run(arguments, global),
        Command::Snapshot(arguments) => snapshot::run(arguments, global),
        Command::Undo(arguments) => undo::run(arguments, global),
        Command::Bench(arguments) => bench::run(arguments, global),
        Command::Shell(arguments) => shell::run(arguments, global, definition),
        Command::Mount(arguments) => mount::run(arguments, global),
        Command::Umount(arguments) => umount::run(arguments, global),
        Command::Mounts(arguments) => mounts::run(arguments, global),
        Command::Top(arguments) => top::run(arguments, global),
        Command::Completions(arguments) => completions::run(arguments, definition),
    }
}
