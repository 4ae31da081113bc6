//! Selects the rows that are measured.

use anyhow::bail;
use std::collections::BTreeSet;

/// Names of rows that were asked for.
pub struct Rows(BTreeSet<&'static str>);

impl Rows {
    /// Those of `known` that the words in `wanted` choose: the row of that name, or all that contain
    /// the words. All rows if there are none.
    ///
    /// # Errors
    ///
    /// For words that choose nothing; says what there is.
    pub fn chosen(known: &[&'static str], wanted: &[String]) -> anyhow::Result<Rows> {
        let mut chosen = BTreeSet::new();
        for wanted in wanted {
            let named = known.iter().filter(|name| *name == wanted).copied();
            let containing = known.iter().filter(|name| has_words(name, wanted)).copied();
            let found = if known.contains(&&wanted[..]) {
                named.collect::<Vec<_>>()
            } else {
                containing.collect()
            };
            if found.is_empty() {
                bail!("no row '{wanted}'; there are:\n  {}", known.join("\n  "));
            }
            chosen.extend(found);
        }
        if wanted.is_empty() {
            chosen.extend(known);
        }
        Ok(Rows(chosen))
    }

    /// True if a row is to be measured.
    pub fn wants(&self, row: &str) -> bool {
        self.0.contains(row)
    }
}

/// True if `name` contains `wanted`, which neither begins nor ends within a word of it.
fn has_words(name: &str, wanted: &str) -> bool {
    name.match_indices(wanted).any(|(begin, found)| {
        let before = name[..begin].chars().next_back();
        let after = name[begin + found.len()..].chars().next();
        ![before, after].into_iter().flatten().any(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_name_or_by_words() {
        let known = ["stat, cached", "find with stat", "stat", "large directory", "read, direct"];
        let chosen = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Rows::chosen(&known, &words).map(|rows| rows.0.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(chosen(&["direct"]).unwrap(), ["read, direct"]);
        assert_eq!(chosen(&["stat"]).unwrap(), ["stat"]);
        assert_eq!(
            chosen(&["large directory", "cached"]).unwrap(),
            ["large directory", "stat, cached"]
        );
        assert_eq!(chosen(&[]).unwrap().len(), known.len());
        assert!(chosen(&["dir"]).unwrap_err().to_string().contains("find with stat"));
    }
}
