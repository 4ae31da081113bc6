//! The columns of `ls -l`.

use super::Arguments;
use crate::output::{Escaped, is_device};
use crate::size;
use crate::tree::ImageTree;
use drystone::vfs::InodeAttributes;

/// The owners of an entry: names, or numbers where there are none or numbers are wanted.
pub fn owner_texts(
    attributes: &InodeAttributes,
    arguments: &Arguments,
    tree: &ImageTree<'_>,
) -> [String; 2] {
    let [user, group] = owner_names(attributes, arguments, tree);
    let text = |name: Option<&[u8]>, id: u32| {
        name.map_or_else(|| id.to_string(), |name| Escaped(name).to_string())
    };
    [text(user, attributes.user), text(group, attributes.group)]
}

/// The names of the owners of an entry, where there are any and they are wanted.
pub fn owner_names<'t>(
    attributes: &InodeAttributes,
    arguments: &Arguments,
    tree: &'t ImageTree<'_>,
) -> [Option<&'t [u8]>; 2] {
    match arguments.numeric {
        true => [None; 2],
        false => tree.names().owners(attributes),
    }
}

/// Names begin in a column, numbers end in one.
pub fn aligned(owner: &str, width: usize) -> String {
    match owner.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("{owner:>width$}"),
        false => format!("{owner:<width$}"),
    }
}

/// How wide the columns are.
#[derive(Default)]
pub struct Columns {
    pub inode: usize,
    pub links: usize,
    pub user: usize,
    pub group: usize,
    pub size: usize,
}

impl Columns {
    /// Makes room for an entry.
    pub fn widen(
        &mut self,
        attributes: &InodeAttributes,
        arguments: &Arguments,
        tree: &ImageTree<'_>,
    ) {
        if arguments.is_long() {
            let [user, group] = owner_texts(attributes, arguments, tree);
            self.user = self.user.max(user.chars().count());
            self.group = self.group.max(group.chars().count());
        }
        let digits = |number: u64| number.checked_ilog10().unwrap_or(0) as usize + 1;
        for (width, needed) in [
            (&mut self.inode, digits(attributes.inode.0)),
            (&mut self.links, digits(attributes.links.into())),
            (&mut self.size, size_text(attributes, arguments).len()),
        ] {
            *width = needed.max(*width);
        }
    }
}

/// The size of an entry, or the numbers of a device.
pub fn size_text(attributes: &InodeAttributes, arguments: &Arguments) -> String {
    if is_device(attributes.file_type) {
        format!("{}, {}", attributes.device.major, attributes.device.minor)
    } else if arguments.human_readable {
        size::human(attributes.size)
    } else {
        attributes.size.to_string()
    }
}
