//! Which lines and locks cost what share of the workers' time.

use drystone_bench::results::Row;
use serde_json::Value;

/// Places that are shown.
const PLACES_SHOWN: usize = 14;

/// The threads that run a workload.
const WORKERS: &str = "scoped";

/// A place's share of all workers' time, dearest first.
pub fn lines(row: &Row) -> Vec<String> {
    let Some(Value::Object(places)) = row.counters.get("places") else { return Vec::new() };
    let total_ns = row.seconds * 1e9 * row.workers as f64;
    let mut costs: Vec<(f64, String)> = Vec::new();
    for (name, place) in places {
        let number = |field: &str| place[field].as_f64().unwrap_or(0.0);
        let parts = [number("transfer_ns"), number("queue_ns"), number("blocked_ns")];
        let mut words = name.split('|');
        let (thread, class, place) =
            (words.next().unwrap_or(""), words.next().unwrap_or(""), words.next().unwrap_or(""));
        if thread != WORKERS {
            continue;
        }
        let share = |part: f64| 100.0 * part / total_ns;
        let each = number("transfers") / row.operations.max(1) as f64;
        let line = format!(
            "{:>6.2} %  {:>6.2} moved  {:>6.2} queued  {:>6.2} blocked  {each:>6.2} lines/op  {class:<24} {place}",
            share(parts.iter().sum()),
            share(parts[0]),
            share(parts[1]),
            share(parts[2]),
        );
        costs.push((parts.iter().sum(), line));
    }
    costs.sort_by(|one, other| other.0.total_cmp(&one.0));
    costs.into_iter().take(PLACES_SHOWN).map(|(_, line)| line).collect()
}
