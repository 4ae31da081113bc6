//! Which lines and locks cost what share of the workers' time.

use drystone_bench::results::Row;
use serde_json::Value;

/// Places that are shown.
const PLACES_SHOWN: usize = 14;

/// A place's share of all workers' time, dearest first.
pub fn lines(row: &Row) -> Vec<String> {
    let mut costs: Vec<(f64, String)> = Vec::new();
    for (class, sources) in row.simulated_costs().into_iter().flatten() {
        for (source, place) in sources {
            let (share, figures) = describe(row, place);
            costs.push((share, format!("{figures}  {class:<24} {source}")));
        }
    }
    costs.sort_by(|one, other| other.0.total_cmp(&one.0));
    costs.into_iter().take(PLACES_SHOWN).map(|(_, line)| line).collect()
}

/// What a place costs in percent of all workers' time, and that in words.
fn describe(row: &Row, place: &Value) -> (f64, String) {
    let total_ns = row.seconds * 1e9 * row.workers as f64;
    let number = |field: &str| place[field].as_f64().unwrap_or(0.0);
    let share = |field: &str| 100.0 * number(field) / total_ns;
    let [moved, queued, blocked] = ["transfer_ns", "queue_ns", "blocked_ns"].map(share);
    let all = moved + queued + blocked;
    let each = number("transfers") / row.operations.max(1) as f64;
    let figures = format!(
        "{all:>6.2} %  {moved:>6.2} moved  {queued:>6.2} queued  {blocked:>6.2} blocked  \
         {each:>6.2} lines/op"
    );
    (all, figures)
}
