//! The table: a row for each case, a column for each mount, and the ratios that count.

use super::mounts::{EMPTY, FUSE2FS, KERNEL, OURS};
use std::collections::BTreeMap;

/// What a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Operations in a second: more is better.
    PerSecond,
    /// MiB in a second: more is better.
    MebibytesPerSecond,
    /// Seconds: fewer is better.
    Seconds,
    /// How many times something was done for each operation: fewer is better.
    EachTime,
}

struct Row {
    name: String,
    unit: Unit,
    figures: BTreeMap<&'static str, f64>,
}

/// See the module.
pub struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Row>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: Vec<&'static str>) -> Table {
        Table { columns, rows: Vec::new() }
    }

    /// Adds a figure; rows are in the order of their first one.
    pub fn add(&mut self, row: &str, unit: Unit, column: &'static str, figure: f64) {
        eprintln!("{row:44} {column:14} {}", show(figure, unit));
        let index = self.rows.iter().position(|known| known.name == row).unwrap_or_else(|| {
            self.rows.push(Row { name: row.to_owned(), unit, figures: BTreeMap::new() });
            self.rows.len() - 1
        });
        self.rows[index].figures.insert(column, figure);
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut lines = vec![
            format!("| case | {} | to {FUSE2FS} | to {KERNEL} | to {EMPTY} |", {
                self.columns.join(" | ")
            }),
            format!("|{}", " --- |".repeat(self.columns.len() + 4)),
        ];
        for row in &self.rows {
            let mut cells = vec![format!("{}, {}", row.name, row.unit.name())];
            cells.extend(self.columns.iter().map(|column| {
                row.figures.get(column).map_or("—".to_owned(), |figure| show(*figure, row.unit))
            }));
            cells.extend([FUSE2FS, KERNEL, EMPTY].map(|other| {
                row.ratio(other).map_or("—".to_owned(), |ratio| format!("{ratio:.2}"))
            }));
            lines.push(format!("| {} |", cells.join(" | ")));
        }
        lines.join("\n")
    }
}

impl Row {
    /// How many times as fast ours is.
    fn ratio(&self, other: &str) -> Option<f64> {
        let (ours, other) = (self.figures.get(OURS)?, self.figures.get(other)?);
        let is_fewer_better = matches!(self.unit, Unit::Seconds | Unit::EachTime);
        Some(if is_fewer_better { other / ours } else { ours / other })
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::PerSecond => "1/s",
            Unit::MebibytesPerSecond => "MiB/s",
            Unit::Seconds => "s",
            Unit::EachTime => "each",
        }
    }
}

fn show(figure: f64, unit: Unit) -> String {
    match unit {
        Unit::Seconds | Unit::EachTime => format!("{figure:.3}"),
        _ if figure >= 10_000.0 => format!("{:.1} k", figure / 1000.0),
        _ => format!("{figure:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_say_how_many_times_as_fast_ours_is() {
        let mut table = Table::new(vec![OURS, FUSE2FS, EMPTY]);
        table.add("create", Unit::PerSecond, OURS, 80_000.0);
        table.add("create", Unit::PerSecond, FUSE2FS, 4000.0);
        table.add("list", Unit::Seconds, OURS, 0.5);
        table.add("list", Unit::Seconds, FUSE2FS, 2.0);
        let text = table.markdown();
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(rows[0], "| create, 1/s | 80.0 k | 4000 | — | 20.00 | — | — |");
        assert_eq!(rows[1], "| list, s | 0.500 | 2.000 | — | 4.00 | — | — |");
    }
}
