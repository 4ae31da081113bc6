//! Tables: measured figures beside the published ones, with the ratios of both.

use crate::explain;
use crate::published::Published;
use crate::results::{Results, Row};
use std::collections::BTreeSet;
use std::fmt::{self, Write};

/// The cells of a workload's table, as text and HTML show them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The heads of the columns.
    pub columns: Vec<String>,
    /// One for each row of the results.
    pub rows: Vec<Vec<String>>,
}

/// Marks numbers of workers for which the machine has too few cores.
const OVERSUBSCRIBED: &str = "*";
const NOTHING: &str = "";
/// The position of the column for the origin of a variant, in tables with published figures.
const VARIANT: usize = 3;

impl Table {
    /// The table of a workload. Each row is compared with the first of the same number of workers.
    #[must_use]
    pub fn new(results: &Results, workload: &str) -> Table {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.workload == workload).collect();
        let published = Published::of(workload);
        // Columns that are empty for this workload would only widen the table.
        let figures = rows.iter().flat_map(|row| &row.figures).filter(|(_, value)| **value != 0.0);
        let figures: BTreeSet<&str> = figures.map(|(name, _)| name.as_str()).collect();
        let unit = rows.first().map_or("operations", |row| &row.unit);
        let mut columns: Vec<String> =
            ["workers", "target", "policy", "seconds"].map(String::from).into();
        columns.push(format!("{unit}/s"));
        columns.extend(["spread".to_string(), "ratio".to_string()]);
        if let Some(published) = &published {
            columns.insert(VARIANT, "variant".to_string());
            columns.push(format!("published {}", published.unit));
            columns.push("published ratio".to_string());
        }
        for figure in &figures {
            columns.push(figure.replace('_', " "));
            if is_compared(figure) {
                columns.push("ratio".to_string());
            }
        }
        columns.push("clean".to_string());
        let cells = rows.iter().map(|row| {
            let reference = rows.iter().find(|other| other.workers == row.workers).unwrap_or(row);
            cells(row, reference, published.as_ref(), &figures)
        });
        let mut table = Table { rows: cells.collect(), columns };
        table.drop_empty_columns();
        table
    }

    /// Drops the columns in which no row has anything.
    fn drop_empty_columns(&mut self) {
        let is_filled = |place: usize| self.rows.iter().any(|row| !row[place].is_empty());
        let filled: Vec<bool> = (0..self.columns.len()).map(is_filled).collect();
        for cells in self.rows.iter_mut().chain([&mut self.columns]) {
            let mut filled = filled.iter();
            cells.retain(|_| filled.next() == Some(&true));
        }
    }
}

fn cells(
    row: &Row,
    reference: &Row,
    published: Option<&Published>,
    figures: &BTreeSet<&str>,
) -> Vec<String> {
    let mark = if row.oversubscribed { OVERSUBSCRIBED } else { NOTHING };
    let mut cells = vec![
        format!("{}{mark}", row.workers),
        row.target.clone(),
        row.policy.clone(),
        short(row.seconds),
        grouped(row.operations_per_second),
        format!("±{:.0} %", 50.0 * row.spread),
        ratio(Some(row.operations_per_second / reference.operations_per_second)),
    ];
    if let Some(published) = published {
        cells.insert(VARIANT, variant(row, published).to_string());
        let point = published.series_for(&row.policy).and_then(|series| series.at(row.workers));
        // A directory has no policy of ours, hence no published figure.
        let point = point.filter(|_| row.policy != "-");
        cells.push(point.map_or(NOTHING.to_string(), |point| short(point.value)));
        let is_comparable = reference.policy != "-" && row.policy != "-";
        let of = published.ratio(&row.policy, &reference.policy, row.workers);
        // Rates are compared with rates, and times with times, as the measured ones are.
        let of = of.map(|rates| if published.is_rate { rates } else { rates.recip() });
        cells.push(ratio(of.filter(|_| is_comparable)));
    }
    for name in figures {
        let value = row.figures.get(*name).copied();
        cells.push(value.map_or(NOTHING.to_string(), short));
        if is_compared(name) {
            let other = reference.figures.get(*name);
            cells.push(ratio(value.zip(other).map(|(value, other)| value / other)));
        }
    }
    cells.push(match row.clean {
        Some(true) => "yes".to_string(),
        Some(false) => "NO".to_string(),
        None => NOTHING.to_string(),
    });
    cells
}

/// The origin of a row's variant of the mechanism.
fn variant(row: &Row, published: &Published) -> &'static str {
    match published.series_for(&row.policy) {
        _ if row.policy == "-" => NOTHING,
        Some(series) if series.name == published.series[0].name => "baseline",
        Some(_) => "published",
        None => "ours",
    }
}

/// Whether a figure gets a column of ratios.
fn is_compared(figure: &str) -> bool {
    ["_per_second", "_seconds", "_pass_us"].iter().any(|end| figure.ends_with(end))
}

fn ratio(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or(NOTHING.to_string(), |v| format!("{v:.2}×"))
}

/// Three digits or so.
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => grouped(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.01 => format!("{value:.3}"),
        _ if value == 0.0 => "0".to_string(),
        _ => format!("{value:.2e}"),
    }
}

/// A whole number with its thousands apart.
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) && !text.ends_with('-') {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths: Vec<usize> = self.columns.iter().map(|name| name.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in std::iter::once(&self.columns).chain(&self.rows) {
            let mut line = String::new();
            for (place, (width, cell)) in widths.iter().zip(row).enumerate() {
                // Names to the left, numbers to the right.
                let is_name =
                    matches!(place, 1 | 2) || place == VARIANT && self.columns[place] == "variant";
                let _ = match is_name {
                    true => write!(line, "{cell:width$}  "),
                    false => write!(line, "{cell:>width$}  "),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The table of a workload with a heading, notes, and what explains the rows.
#[must_use]
pub fn text(results: &Results, workload: &dyn crate::workload::Workload) -> String {
    let name = workload.name();
    let mut text = format!("{name}: {}\n", workload.summary());
    let _ = write!(text, "{}", Table::new(results, name));
    let rows: Vec<&Row> = results.rows.iter().filter(|row| row.workload == name).collect();
    if rows.iter().any(|row| row.oversubscribed) {
        let _ =
            writeln!(text, "{OVERSUBSCRIBED} more workers than {} cores", results.machine.cores);
    }
    if let Some(published) = Published::of(name) {
        let _ = writeln!(text, "published: {}", published.source);
    }
    for row in rows {
        let lines = explain::lines(row);
        if !lines.is_empty() {
            let _ = writeln!(text, "{} with {}:", row.policy, row.workers);
        }
        for line in lines {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::results::Subject;
    use crate::target::RunOutcome;
    use std::collections::BTreeMap;

    fn row(target: &str, policy: &str, workers: u64, seconds: f64) -> Row {
        let subject = Subject {
            workload: "orphan".into(),
            target: target.into(),
            policy: policy.into(),
            workers,
            unit: "truncates".into(),
        };
        let figures = BTreeMap::from([
            ("removes_per_second".to_string(), 8.0 / seconds),
            ("passes".to_string(), 0.0),
        ]);
        let clean = (target == "engine").then_some(true);
        let outcome =
            RunOutcome { operations: 1_000_000, seconds, figures, clean, ..RunOutcome::default() };
        Row::new(&subject, &[outcome], 2).unwrap()
    }

    #[test]
    fn published_and_measured_ratios_stand_side_by_side() {
        let results = Results {
            machine: Machine::this(),
            rows: vec![
                row("engine", "baseline", 8, 4.0),
                row("engine", "orphans=file", 8, 1.0),
                row("/mnt", "-", 8, 2.0),
                row("engine", "scalable", 8, 1.0),
            ],
        };
        let table = Table::new(&results, "orphan");
        let cell = |row: usize, name: &str| {
            let column = table.columns.iter().position(|column| column == name).unwrap();
            table.rows[row][column].as_str()
        };
        assert!(!table.columns.contains(&"passes".to_string()), "nothing but zeros in it");
        assert_eq!(cell(0, "workers"), "8*");
        assert_eq!(cell(1, "truncates/s"), "1 000 000");
        assert_eq!(cell(1, "ratio"), "4.00×");
        assert_eq!(cell(1, "published s"), "4.90");
        assert_eq!(cell(1, "published ratio"), "1.44×");
        assert_eq!(cell(2, "published ratio"), "");
        assert_eq!(cell(2, "ratio"), "2.00×");
        assert_eq!((cell(1, "clean"), cell(2, "clean")), ("yes", ""));
        assert_eq!(
            [0, 1, 2, 3].map(|row| cell(row, "variant")),
            ["baseline", "published", "", "ours"]
        );
        assert_eq!((cell(3, "published s"), cell(3, "published ratio")), ("", ""));
        let text = table.to_string();
        assert!(text.lines().count() == 5 && text.contains("scalable"), "{text}");
    }

    #[test]
    fn a_directory_has_neither_published_figures_nor_a_check() {
        let results = Results { machine: Machine::this(), rows: vec![row("/mnt", "-", 8, 2.0)] };
        let table = Table::new(&results, "orphan");
        for name in ["variant", "published s", "published ratio", "clean"] {
            assert!(!table.columns.iter().any(|column| column == name), "{name}");
        }
        assert_eq!(table.columns.len(), table.rows[0].len());
        assert_eq!(table.columns[0], "workers");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(grouped(1_234_567.4), "1 234 567");
        assert_eq!(grouped(-123_456.0), "-123 456");
        assert_eq!(grouped(12.0), "12");
        assert_eq!((short(123.4).as_str(), short(0.1234).as_str()), ("123", "0.123"));
    }
}
