//! Tables as Markdown, to be pasted into docs/src/performance.md.

use super::Row;
use super::tables::{Comparison, Measure, Table};
use std::fmt::Write;

/// The medians of a table, a row for each variant.
pub(super) fn medians(table: &Table, rows: &[Row]) -> String {
    let mut text = String::new();
    for &(workload, measure) in table.shown {
        let of = |policy: &'static str| rows.iter().filter(move |row| row.is(workload, policy));
        let Some((_, first)) = table.variants.first() else { continue };
        let heads: Vec<String> = of(first).map(Row::workers).collect();
        let _ = writeln!(text, "{workload}, {}:\n", measure.name());
        let _ = writeln!(text, "| variant | policy | {} |", heads.join(" | "));
        let _ = writeln!(text, "| --- | --- |{}", " --- |".repeat(heads.len()));
        for &(variant, policy) in table.variants {
            let cells: Vec<String> = of(policy).map(|row| cell(row, measure)).collect();
            let _ = writeln!(text, "| {} | `{policy}` | {} |", variant.name(), cells.join(" | "));
        }
        text.push('\n');
    }
    text
}

/// A median, and for rates how far the rounds lie apart.
fn cell(row: &Row, measure: Measure) -> String {
    let spread = match measure {
        Measure::Rate => format!(" ± {:.0} %", 50.0 * row.spread),
        Measure::Gain(_) | Measure::Cost(_) => String::new(),
    };
    match row.value(measure) {
        None => "—".to_string(),
        Some(value) if value >= 10_000.0 => format!("{:.0} k{spread}", value / 1000.0),
        Some(value) if value >= 100.0 => format!("{value:.0}{spread}"),
        Some(value) => format!("{value:.2}{spread}"),
    }
}

/// The ratios of a table, with all numbers of workers in a row.
pub(super) fn ratios(table: &Table, rows: &[Row]) -> String {
    let mut text = "| table | workers | ratio | target |\n| --- | --- | --- | --- |\n".to_string();
    let mut missed = String::new();
    for comparison in table.comparisons {
        let Comparison { workload, measure, is, than, target } = *comparison;
        let (mut workers, mut values) = (Vec::new(), Vec::new());
        for better in rows.iter().filter(|row| row.is(workload, is)) {
            let than = rows
                .iter()
                .find(|row| row.is(workload, than) && row.workers == better.workers)
                .and_then(|row| row.value(measure));
            let Some((before, now)) = than.zip(better.value(measure)) else { continue };
            let ratio = match measure {
                Measure::Cost(_) => before / now,
                Measure::Rate | Measure::Gain(_) => now / before,
            };
            workers.push(better.workers());
            values.push(format!("{ratio:.2}"));
            if target.is_some_and(|target| ratio < target) {
                let _ = writeln!(
                    missed,
                    "missed: {workload}, {is} to {than}, {}, {} workers: {ratio:.3}",
                    measure.name(),
                    better.workers(),
                    than = comparison.than,
                );
            }
        }
        let what = match measure {
            Measure::Rate => String::new(),
            Measure::Gain(_) | Measure::Cost(_) => format!(", {}", measure.name()),
        };
        let _ = writeln!(
            text,
            "| {workload}{what}, `{is}` to `{than}` | {} | {} | {} |",
            workers.join(" / "),
            values.join(" / "),
            target.map_or(String::new(), |target| target.to_string()),
        );
    }
    text + "\n" + &missed + if missed.is_empty() { "" } else { "\n" }
}

#[cfg(test)]
mod tests {
    use super::super::TABLES;
    use super::super::tests::row;
    use super::*;

    #[test]
    fn what_is_printed_is_markdown() {
        let table = &TABLES[1];
        assert_eq!(table.name, "orphan");
        let mut rows = Vec::new();
        for (place, (_, policy)) in table.variants.iter().enumerate() {
            for workers in [1, 8] {
                rows.push(row(policy, "engine", workers, 1e6 * (1 + place) as f64));
            }
        }
        let text = medians(table, &rows);
        assert!(
            text.contains("| variant | policy | 1 | 8* |\n| --- | --- | --- | --- |\n"),
            "{text}"
        );
        let file = "| published improvement | `orphans=file` | 3000 k ± 5 % | 3000 k ± 5 % |";
        assert!(text.contains(file), "{text}");
        let text = ratios(table, &rows);
        let ratio = "| orphan, `orphans=file` to `orphans=list` | 1 / 8* | 3.00 / 3.00 | 1 |";
        assert!(text.contains(ratio), "{text}");
        assert!(text.contains("missed: orphan, orphans=file to orphans=none"), "{text}");
    }
}
