//! Bars of the time that operations wait for locks.

use super::svg::{Anchor, Picture, colour};
use crate::explain::{self, LockUse};
use crate::results::Row;
use crate::table::short;

const WIDTH: f64 = 620.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 34.0;
const BAR: f64 = 14.0;
const STEP: f64 = 21.0;
const INK: &str = "#1b1f24";
const FAINT: &str = "#57606a";
/// The name of all other classes.
const REST: &str = "#c3c8ce";
/// Classes with a colour.
const CLASSES_SHOWN: usize = 6;
/// Characters of a row's name.
const NAME_LENGTH: usize = 30;

/// Draws the rows that have counters; nothing if none has.
pub fn draw(rows: &[&Row]) -> String {
    let bars: Vec<(&Row, Vec<LockUse>)> = rows
        .iter()
        .map(|row| (*row, explain::locks(row)))
        .filter(|(_, locks)| !locks.is_empty())
        .collect();
    let total = |locks: &[LockUse]| locks.iter().map(|lock| lock.wait_ns).sum::<f64>();
    let longest = bars.iter().map(|(_, locks)| total(locks)).fold(0.0, f64::max);
    if bars.is_empty() {
        return String::new();
    }
    let classes = classes(&bars);
    let bottom = TOP + bars.len() as f64 * STEP;
    let height = bottom + 14.0 + (classes.len() + 1) as f64 * 16.0;
    let mut picture = Picture::new(WIDTH, height, "Waiting for locks");
    let caption = "ns that an operation waited for locks, by class, on average";
    picture.text((12.0, 16.0), Anchor::Start, INK, caption);
    let scale = (WIDTH - LEFT - RIGHT) / longest.max(1.0);
    for (place, (row, locks)) in bars.iter().enumerate() {
        let y = TOP + place as f64 * STEP;
        picture.text((LEFT - 8.0, y + 11.0), Anchor::End, INK, &name(row));
        let mut x = LEFT;
        for lock in locks {
            let known = classes.iter().position(|class| *class == lock.class);
            let fill = known.map_or(REST, colour);
            let width = lock.wait_ns * scale;
            if width > 0.0 {
                let words = format!(
                    "{}: {} ns, {:.2} takes, {:.2} % contended",
                    lock.class,
                    short(lock.wait_ns),
                    lock.takes,
                    100.0 * lock.contended
                );
                picture.bar((x, y), (width, BAR), fill, &words);
            }
            x += width;
        }
        let end = (x + 6.0, y + 11.0);
        picture.text(end, Anchor::Start, FAINT, &short(total(locks)));
    }
    for (place, class) in classes.iter().enumerate() {
        let y = bottom + 16.0 + place as f64 * 16.0;
        picture.bar((LEFT, y - 9.0), (10.0, 10.0), colour(place), class);
        picture.text((LEFT + 16.0, y), Anchor::Start, INK, class);
    }
    picture.finish()
}

/// The classes that were waited for most, over all rows.
fn classes(bars: &[(&Row, Vec<LockUse>)]) -> Vec<String> {
    let mut sums: Vec<(String, f64)> = Vec::new();
    for lock in bars.iter().flat_map(|(_, locks)| locks).filter(|lock| lock.wait_ns > 0.0) {
        match sums.iter_mut().find(|(class, _)| *class == lock.class) {
            Some((_, sum)) => *sum += lock.wait_ns,
            None => sums.push((lock.class.clone(), lock.wait_ns)),
        }
    }
    sums.sort_by(|one, other| other.1.total_cmp(&one.1));
    sums.into_iter().take(CLASSES_SHOWN).map(|(class, _)| class).collect()
}

fn name(row: &Row) -> String {
    let whole = format!("{}, {}", row.policy, row.workers);
    let length = whole.chars().count();
    if length <= NAME_LENGTH {
        return whole;
    }
    let end: String = whole.chars().skip(length - NAME_LENGTH + 1).collect();
    format!("…{end}")
}
