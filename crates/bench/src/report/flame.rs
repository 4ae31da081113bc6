//! A flame graph of the workers' time in a simulation: what kind of cost, at which lock, at which place in
//! the source. The widths are shares of all workers' time.

use super::svg::{Anchor, Picture, colour};
use crate::counters::number;
use crate::results::Row;
use serde_json::{Map, Value};

const WIDTH: f64 = 1160.0;
const MARGIN: f64 = 8.0;
const TOP: f64 = 30.0;
const BAR: f64 = 20.0;
const STEP: f64 = 21.0;
const LEVELS: f64 = 4.0;
/// Narrower boxes are left out.
const NARROWEST: f64 = 0.4;
/// The width of a letter.
const LETTER: f64 = 6.2;
const INK: &str = "#1b1f24";
const WORK: &str = "#c3c8ce";

/// The costs of a place, by their names in the counters.
const KINDS: [(&str, &str); 3] = [
    ("blocked_ns", "blocked"),
    ("queue_ns", "waiting for others' changes of a line"),
    ("transfer_ns", "moving lines"),
];

/// A box, with those that lie on it.
#[derive(Clone, Debug, PartialEq)]
struct Frame {
    name: String,
    ns: f64,
    parts: Vec<Frame>,
}

impl Frame {
    /// Parts that cost something, dearest first, in a frame.
    fn around(name: String, mut parts: Vec<Frame>) -> Frame {
        parts.retain(|part| part.ns > 0.0);
        parts.sort_by(|one, other| other.ns.total_cmp(&one.ns));
        Frame { name, ns: parts.iter().map(|part| part.ns).sum(), parts }
    }
}

/// The costs of a kind by lock and place.
fn frame_of(classes: &[(&str, &Map<String, Value>)], field: &str, name: &str) -> Frame {
    let classes = classes.iter().map(|(class, places)| {
        let places = places.iter().map(|(place, costs)| {
            let ns = number(costs, &[field]);
            Frame { name: place.clone(), ns, parts: Vec::new() }
        });
        let class =
            if class.is_empty() { "atomics".to_string() } else { format!("lock '{class}'") };
        Frame::around(class, places.collect())
    });
    Frame::around(name.to_string(), classes.collect())
}

/// Draws a row that has the costs of places; nothing for others.
pub fn draw(row: &Row) -> String {
    let Some(classes) = row.simulated_costs() else { return String::new() };
    let total_ns = row.seconds * 1e9 * row.workers as f64;
    let frames = KINDS.map(|(field, name)| frame_of(&classes, field, name));
    let height = TOP + LEVELS * STEP + MARGIN;
    let title = format!("{}, {}, {} workers: their time", row.workload, row.policy, row.workers);
    let mut picture = Picture::new(WIDTH, height, &title);
    picture.text((MARGIN, 18.0), Anchor::Start, INK, &title);
    let scale = Scale { ns_per_width: total_ns / (WIDTH - 2.0 * MARGIN), total_ns };
    let mut left = MARGIN;
    for (place, frame) in frames.iter().enumerate() {
        scale.draw(&mut picture, frame, left, 0, colour(place));
        left += frame.ns / scale.ns_per_width;
    }
    let costs: f64 = frames.iter().map(|frame| frame.ns).sum();
    let ns = (total_ns - costs).max(0.0);
    let work = Frame { name: "everything else".to_string(), ns, parts: Vec::new() };
    scale.draw(&mut picture, &work, left, 0, WORK);
    picture.finish()
}

struct Scale {
    ns_per_width: f64,
    total_ns: f64,
}

impl Scale {
    fn draw(&self, picture: &mut Picture, frame: &Frame, left: f64, level: u32, fill: &str) {
        let width = frame.ns / self.ns_per_width;
        if width < NARROWEST {
            return;
        }
        // The whole lies below its parts.
        let top = TOP + (LEVELS - 1.0 - f64::from(level)) * STEP;
        let words = format!("{}: {:.2} %", frame.name, 100.0 * frame.ns / self.total_ns);
        picture.bar((left, top), (width - 0.3, BAR), fill, &words);
        let letters = (width / LETTER) as usize;
        if letters > 3 {
            let shown: String = words.chars().take(letters - 1).collect();
            let ink = if fill == WORK { INK } else { "#ffffff" };
            picture.text((left + 3.0, top + 14.0), Anchor::Start, ink, &shown);
        }
        let mut inner = left;
        for part in &frame.parts {
            self.draw(picture, part, inner, level + 1, fill);
            inner += part.ns / self.ns_per_width;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Subject;
    use crate::target::RunOutcome;
    use serde_json::json;

    fn row(counters: Value) -> Row {
        let subject = Subject {
            workload: "orphan".into(),
            target: "simulated".into(),
            policy: "baseline".into(),
            workers: 4,
            unit: "truncates".into(),
        };
        let outcome =
            RunOutcome { operations: 10, seconds: 1e-3, counters, ..RunOutcome::default() };
        Row::new(&subject, &[outcome], 128).unwrap()
    }

    #[test]
    fn widths_are_shares_of_all_workers_time() {
        let costs = |ns: u64| json!({"blocked_ns": ns, "queue_ns": 0, "transfer_ns": 1000});
        let drawn = draw(&row(json!({"places": {"scoped": {
            "orphan list": {"a.rs:7": costs(1_000_000), "b.rs:8": costs(200_000)},
            "": {"c.rs:9": costs(0)},
        }}})));
        // Of four milliseconds.
        for words in [
            "blocked: 30.00 %",
            "lock 'orphan list': 30.00 %",
            "a.rs:7: 25.00 %",
            "everything else: 69.",
        ] {
            assert!(drawn.contains(words), "{words}: {drawn}");
        }
        assert!(!drawn.contains("c.rs:9"), "too narrow");
        assert_eq!(draw(&row(json!({}))), "");
    }
}
