//! Warnings about what was left out.

use crate::bytes::Shown;
use std::collections::BTreeMap;

/// What was left out of an image because it has no place there.
#[derive(Clone, Debug, Default)]
pub struct Warnings {
    /// Entries by the attribute that they lost.
    attributes: BTreeMap<Vec<u8>, u64>,
}

impl Warnings {
    /// An attribute in a namespace that Linux doesn't have.
    pub(crate) fn attribute_left_out(&mut self, name: &[u8]) {
        // An archive can have any number of names; a hundred are enough to read.
        const NAMES_MAX: usize = 100;
        if let Some(count) = self.attributes.get_mut(name) {
            *count += 1;
        } else if self.attributes.len() < NAMES_MAX {
            self.attributes.insert(name.to_vec(), 1);
        }
    }

    /// One sentence for each warning.
    pub fn sentences(&self) -> impl Iterator<Item = String> {
        self.attributes.iter().map(|(name, count)| {
            let name = Shown(name);
            let entries = if *count == 1 { "entry" } else { "entries" };
            format!("the attribute {name} of {count} {entries} was left out: Linux has none such")
        })
    }
}
