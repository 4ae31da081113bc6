//! The report: one self-contained HTML file with a table, curves and bars for each workload; the pictures
//! also as files of their own.

mod curves;
mod flame;
mod svg;
mod waits;

use crate::explain;
use crate::published::Published;
use crate::results::{Results, Row};
use crate::table::Table;
use crate::workload;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use svg::escape;

/// The look of the page. Colours of curves are in `svg`.
const STYLE: &str = include_str!("page.css");

/// Writes `index.html` and the pictures into a directory, which is made if it isn't there. Returns the page.
///
/// # Errors
/// What the host says of the directory or the file.
pub fn write(results: &Results, directory: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("can't make {}", directory.display()))?;
    let path = directory.join("index.html");
    std::fs::write(&path, page(results))
        .with_context(|| format!("can't write {}", path.display()))?;
    for (name, picture) in pictures(results) {
        let path = directory.join(name);
        std::fs::write(&path, picture)
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(path)
}

/// The pictures, by their files' names: curves of each workload, and a flame graph of each row that has one.
fn pictures(results: &Results) -> Vec<(String, String)> {
    let mut pictures = Vec::new();
    for name in workloads(results) {
        let rows = rows_of(results, name);
        let curves = curves::draw(&rows, Published::of(name).as_ref(), results.machine.cores);
        pictures.push((format!("{name}.svg"), curves));
        pictures.extend(rows.iter().map(|row| {
            let policy = row.policy.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
            (format!("{name}-{policy}-{}.svg", row.workers), flame::draw(row))
        }));
    }
    pictures.retain(|(_, picture)| !picture.is_empty());
    // What stands alone has to say which language it is.
    for (_, picture) in &mut pictures {
        *picture = picture.replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 1);
    }
    pictures
}

/// The workloads, in order.
fn workloads(results: &Results) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in &results.rows {
        if !names.contains(&row.workload.as_str()) {
            names.push(&row.workload);
        }
    }
    names
}

fn rows_of<'r>(results: &'r Results, workload: &str) -> Vec<&'r Row> {
    results.rows.iter().filter(|row| row.workload == workload).collect()
}

/// The page as text.
#[must_use]
pub fn page(results: &Results) -> String {
    let mut page = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Drystone: measurements</title>\n",
    );
    let _ = write!(page, "<style>\n{STYLE}</style>\n<body>\n");
    head(&mut page, results);
    for name in workloads(results) {
        section(&mut page, results, name);
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn head(page: &mut String, results: &Results) {
    let machine = &results.machine;
    let rounds = results.rows.iter().map(|row| row.rounds.len()).max().unwrap_or(0);
    // A simulated machine has neither.
    let host = match machine.kernel.is_empty() {
        true => String::new(),
        false => format!(
            ", {:.0} GiB, Linux {}",
            machine.memory_mib as f64 / 1024.0,
            escape(&machine.kernel)
        ),
    };
    let _ = write!(
        page,
        "<header><h1>Drystone: measurements</h1>\n<p>{}, {} cores{}. Medians of {} \
         rounds in which targets and policies take turns; bars span the slowest and the fastest. A \
         ratio within a run is a result, an absolute figure of a shared machine is not.</p>\n",
        escape(&machine.processor),
        machine.cores,
        host,
        rounds,
    );
    if machine.debug_build {
        page.push_str(
            "<p class=\"warning\">The program was built without optimisation: the figures mean \
             nothing.</p>\n",
        );
    }
    page.push_str("</header>\n");
}

fn section(page: &mut String, results: &Results, name: &str) {
    let rows = rows_of(results, name);
    let summary = workload::find(name).map_or("", |workload| workload.summary());
    let published = Published::of(name);
    let _ = write!(
        page,
        "<section id=\"{0}\">\n<h2>{0}</h2>\n<p>Each worker: {1}.</p>\n",
        escape(name),
        escape(summary)
    );
    page.push_str("<div class=\"figures\">\n");
    page.push_str(&curves::draw(&rows, published.as_ref(), results.machine.cores));
    page.push_str(&waits::draw(&rows));
    page.push_str("</div>\n");
    flames(page, &rows);
    table(page, &Table::new(results, name));
    let mut notes = Vec::new();
    if rows.iter().any(|row| row.oversubscribed) {
        notes.push(format!("* more workers than {} cores", results.machine.cores));
    }
    if let Some(published) = &published {
        notes.push(format!("Published: {}", published.source));
    }
    for note in notes {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escape(&note));
    }
    explanations(page, &rows);
    page.push_str("</section>\n");
}

/// The flame graphs of the rows with the most workers.
fn flames(page: &mut String, rows: &[&Row]) {
    let most = rows.iter().map(|row| row.workers).max();
    for row in rows.iter().filter(|row| Some(row.workers) == most) {
        let picture = flame::draw(row);
        if !picture.is_empty() {
            let _ = writeln!(page, "<div class=\"flame\">{picture}</div>");
        }
    }
}

fn table(page: &mut String, table: &Table) {
    page.push_str("<div class=\"scroll\"><table>\n<thead><tr>");
    for column in &table.columns {
        let _ = write!(page, "<th>{}</th>", escape(column));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    let mut workers = None;
    for row in &table.rows {
        // A line between the numbers of workers.
        let is_first = workers.replace(&row[0]) != Some(&row[0]);
        page.push_str(if is_first { "<tr class=\"first\">" } else { "<tr>" });
        for (place, cell) in row.iter().enumerate() {
            let class = match (place, cell.as_str()) {
                (1 | 2, _) => " class=\"name\"",
                (_, "NO") => " class=\"warning\"",
                _ => "",
            };
            let _ = write!(page, "<td{class}>{}</td>", escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
}

fn explanations(page: &mut String, rows: &[&Row]) {
    let mut items = String::new();
    for row in rows {
        let lines = explain::lines(row);
        if lines.is_empty() {
            continue;
        }
        let _ = write!(items, "<dt>{} with {}</dt>", escape(&row.policy), row.workers);
        for line in lines {
            let _ = writeln!(items, "<dd>{}</dd>", escape(&line));
        }
    }
    if !items.is_empty() {
        let _ = write!(
            page,
            "<details><summary>Counters of the median rounds</summary><dl>\n{items}</dl></details>\n"
        );
    }
}

#[cfg(test)]
mod tests;
