//! `setfacl`: changes access control lists.

mod restore;

use crate::acl::{AclRequest, AclWord, FileAcls, MaskRule, parse_additions, parse_removals};
use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::tree::ImageTree;
use crate::walk::{Visitor, WalkStep, walk};
use anyhow::Context;
use drystone::vfs::{FileType, InodeGuard};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Change access control lists
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
ENTRIES are separated by commas: user::rwx (the owner), user:1000:r-x, group::r-x, group:50:rw, mask::rwx, \
other::---, each with default: in front for what new entries of a directory inherit; u, g, m, o and d for short. \
Permissions are letters or a digit; X is x for directories and where somebody may already execute. Users and \
groups are numbers.

Whatever the order of the options, -b and -k go first, then --set, -x and -m. The mask is then recomputed, unless ENTRIES name it. \
A default list gets the entries that it lacks from the access list.

Examples:
  drystone setfacl -m u:1000:rwX,g:50:r-x disk.img:/srv
  drystone setfacl -R -m d:g:50:rwX disk.img:/srv
  drystone setfacl -x u:1000 disk.img:/srv
  drystone setfacl -b disk.img:/srv")]
pub struct Arguments {
    /// What to change; with --restore, the directory that the paths start at.
    #[arg(required = true, value_name = "IMAGE[:PATH]", value_parser = Location::parser())]
    places: Vec<Location>,
    /// Add entries, or change those that are there.
    #[arg(short, long, value_name = "ENTRIES", value_parser = parse_addition_list)]
    modify: Vec<AclWords>,
    /// The same with the entries in a file; - is standard input.
    #[arg(short = 'M', long, value_name = "FILE")]
    modify_file: Option<PathBuf>,
    /// Remove entries, which are written without permissions.
    #[arg(short = 'x', long, value_name = "ENTRIES", value_parser = parse_removal_list)]
    remove: Vec<AclWords>,
    /// The same with the entries in a file; - is standard input.
    #[arg(short = 'X', long, value_name = "FILE")]
    remove_file: Option<PathBuf>,
    /// Put these entries in place of the list.
    #[arg(long, value_name = "ENTRIES", value_parser = parse_addition_list)]
    set: Vec<AclWords>,
    /// The same with the entries in a file; - is standard input.
    #[arg(long, value_name = "FILE")]
    set_file: Option<PathBuf>,
    /// Remove both lists; the group keeps what its own entry and the mask allow.
    #[arg(short = 'b', long)]
    remove_all: bool,
    /// Remove the default list.
    #[arg(short = 'k', long)]
    remove_default: bool,
    /// Take all ENTRIES as those of the default list.
    #[arg(short, long)]
    default: bool,
    /// Leave the mask as it is.
    #[arg(short, long)]
    no_mask: bool,
    /// Recompute the mask even if ENTRIES name it.
    #[arg(long, conflicts_with = "no_mask")]
    mask: bool,
    /// Change directories with everything below them, without symbolic links.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Restore what 'getfacl -R' has written to a file: lists, owners, groups and set-id bits. - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["modify", "modify_file", "remove", "remove_file",
        "set", "set_file", "remove_all", "remove_default", "default", "no_mask", "mask", "recursive"])]
    restore: Option<PathBuf>,
}

/// The entries of one argument.
type AclWords = Vec<AclWord>;

// clap takes a function that returns a `Vec` for the parser of several values.
fn parse_addition_list(text: &str) -> Result<AclWords, String> {
    parse_additions(text)
}

fn parse_removal_list(text: &str) -> Result<AclWords, String> {
    parse_removals(text)
}

impl Arguments {
    /// Whether a change other than `--restore` was asked for.
    fn changes_anything(&self) -> bool {
        let Arguments { modify, modify_file, remove, remove_file, set, set_file, .. } = self;
        [modify, remove, set].into_iter().any(|lists| !lists.is_empty())
            || [modify_file, remove_file, set_file].into_iter().any(Option::is_some)
            || self.remove_all
            || self.remove_default
    }
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    if let Some(file) = &arguments.restore {
        let [place] = &arguments.places[..] else {
            return Err(Failure::Usage("--restore takes one IMAGE[:PATH]".to_owned()));
        };
        return restore::run(file, place, global);
    }
    if !arguments.changes_anything() {
        return Err(Failure::Usage("name at least one change, such as -m ENTRIES".to_owned()));
    }
    let request = request(arguments)?;
    with_each(&arguments.places, Intent::Change, global, |tree, paths| {
        tree.for_each(paths, |path| change(tree, path, &request, arguments.recursive))
    })
}

fn request(arguments: &Arguments) -> anyhow::Result<AclRequest> {
    type Parse = fn(&str) -> Result<AclWords, String>;
    let all = |given: &[AclWords], file: &Option<PathBuf>, parse: Parse| {
        let mut words: AclWords = given.iter().flatten().copied().collect();
        if let Some(file) = file {
            let parsed = parse(&String::from_utf8_lossy(&read(file)?)).map_err(anyhow::Error::msg);
            words.extend(parsed.with_context(|| file.display().to_string())?);
        }
        for word in &mut words {
            word.is_default |= arguments.default;
        }
        anyhow::Ok(words)
    };
    Ok(AclRequest {
        clear: arguments.remove_all,
        clear_default: arguments.remove_default,
        replace: all(&arguments.set, &arguments.set_file, parse_additions)?,
        remove: all(&arguments.remove, &arguments.remove_file, parse_removals)?,
        add: all(&arguments.modify, &arguments.modify_file, parse_additions)?,
        mask: match (arguments.no_mask, arguments.mask) {
            (true, _) => MaskRule::Keep,
            (false, true) => MaskRule::Always,
            (false, false) => MaskRule::Unnamed,
        },
    })
}

/// The content of a file, or standard input.
fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let content = match file.as_os_str().as_bytes() {
        b"-" => {
            let mut content = Vec::new();
            std::io::stdin().read_to_end(&mut content).map(|_| content)
        }
        _ => std::fs::read(file),
    };
    content.with_context(|| file.display().to_string())
}

fn change(tree: &ImageTree<'_>, path: &Path, request: &AclRequest, recursive: bool) -> Outcome {
    let bytes = path.as_os_str().as_bytes();
    let node = tree.find(path, true)?;
    match recursive {
        true => walk(tree, node, bytes, &mut ChangingLists { request }),
        false if request.wants_default() && !node.is_directory() => {
            Err(tree.error(bytes, &"only a directory has a default list").into())
        }
        false => change_one(tree, &node, bytes, request),
    }
}

fn change_one(
    tree: &ImageTree<'_>,
    node: &InodeGuard<'_>,
    path: &[u8],
    request: &AclRequest,
) -> Outcome {
    let problem = |error| tree.error(path, &error);
    let before = FileAcls::load(tree, node).map_err(problem)?;
    let after = request.apply(&before, node.is_directory());
    let after = after.map_err(|text| tree.error(path, &text))?;
    Ok(after.store(tree, node, &before).map_err(problem)?)
}

struct ChangingLists<'r> {
    request: &'r AclRequest,
}

impl Visitor for ChangingLists<'_> {
    fn enter(&mut self, tree: &ImageTree<'_>, step: &WalkStep<'_, '_>) -> Outcome<bool> {
        if step.node.attributes().file_type != FileType::Symlink
            && let Err(Failure::Failed(error)) =
                change_one(tree, step.node, step.path, self.request)
        {
            tree.report_error(&error);
        }
        Ok(true)
    }
}
