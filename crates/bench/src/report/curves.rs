//! Curves of speed over workers.
//!
//! Figures of two machines have no common scale. So everything is drawn as a multiple: measured
//! figures relative to the first curve's speed with the fewest workers, published ones relative to
//! the corresponding series. Both axes are logarithmic: twice as fast is one step.

use super::svg::{Anchor, Picture, colour};
use crate::published::Published;
use crate::results::Row;
use crate::table::short;

const WIDTH: f64 = 620.0;
const PLOT_HEIGHT: f64 = 270.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
/// Height of a line of the legend.
const LINE: f64 = 16.0;
const INK: &str = "#1b1f24";
const FAINT: &str = "#57606a";
const GRID: &str = "#e4e7eb";

/// One curve.
struct Curve {
    label: String,
    colour: &'static str,
    is_published: bool,
    /// Workers and speed.
    points: Vec<(f64, f64)>,
    /// Workers, slowest and fastest round.
    ranges: Vec<(f64, f64, f64)>,
}

/// Draws the rows of a workload.
pub fn draw(rows: &[&Row], published: Option<&Published>, cores: usize) -> String {
    let curves = curves(rows, published);
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let lowest = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    let highest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let workers = (lowest(&mut all().map(|point| point.0)), highest(&mut all().map(|p| p.0)));
    let speeds = (lowest(&mut all().map(|point| point.1)), highest(&mut all().map(|p| p.1)));
    if !(speeds.0 > 0.0 && speeds.1.is_finite()) {
        return String::new();
    }
    // Whole powers of two around all points.
    let from = speeds.0.log2().floor();
    let to = speeds.1.log2().ceil().max(from + 1.0);
    let span = (workers.1 / workers.0).log2().max(1.0);
    let place = |(x, y): (f64, f64)| {
        let right = (x / workers.0).log2() / span;
        let up = (y.log2() - from) / (to - from);
        (LEFT + 12.0 + right * (WIDTH - LEFT - RIGHT - 24.0), TOP + (1.0 - up) * PLOT_HEIGHT)
    };
    let bottom = TOP + PLOT_HEIGHT;
    let legend = curves.len() as f64 * LINE;
    let unit = rows.first().map_or("operations", |row| &row.unit);
    let mut picture =
        Picture::new(WIDTH, bottom + 46.0 + legend, &format!("{unit}/s over workers"));
    let first = rows.first().map_or(1.0, |row| row.operations_per_second);
    let caption =
        format!("{unit}/s, as a multiple of {} (first curve, fewest workers)", short(first));
    picture.text((LEFT - 40.0, 16.0), Anchor::Start, INK, &caption);
    for power in (from as i32)..=(to as i32) {
        let (_, y) = place((workers.0, 2f64.powi(power)));
        picture.line((LEFT, y), (WIDTH - RIGHT, y), GRID);
        // Powers of two have short decimals.
        let label = format!("{}×", 2f64.powi(power));
        picture.text((LEFT - 6.0, y + 4.0), Anchor::End, FAINT, &label);
    }
    for power in 0..=(workers.1.log2().ceil() as i32) {
        let count = 2f64.powi(power);
        if count >= workers.0 && count <= workers.1.max(workers.0 * 2.0) {
            let (x, _) = place((count, 1.0));
            picture.line((x, bottom), (x, bottom + 4.0), FAINT);
            let mark = if count > cores as f64 { "*" } else { "" };
            let label = format!("{count:.0}{mark}");
            picture.text((x, bottom + 17.0), Anchor::Middle, FAINT, &label);
        }
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    picture.text((middle, bottom + 32.0), Anchor::Middle, FAINT, "workers");
    // Measured curves lie on the published ones.
    for is_published in [true, false] {
        for curve in curves.iter().filter(|curve| curve.is_published == is_published) {
            for &(count, slowest, fastest) in &curve.ranges {
                let (low, high) = (slowest.max(2f64.powf(from)), fastest.min(2f64.powf(to)));
                picture.line(place((count, low)), place((count, high)), curve.colour);
            }
            let points: Vec<_> = curve.points.iter().map(|&point| place(point)).collect();
            picture.curve(&points, curve.colour, curve.is_published);
        }
    }
    for (number, curve) in curves.iter().enumerate() {
        let y = bottom + 46.0 + number as f64 * LINE;
        let sample = [(LEFT, y - 4.0), (LEFT + 28.0, y - 4.0)];
        picture.curve(&sample, curve.colour, curve.is_published);
        picture.text((LEFT + 38.0, y), Anchor::Start, INK, &curve.label);
    }
    picture.finish()
}

fn curves(rows: &[&Row], published: Option<&Published>) -> Vec<Curve> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        if !names.contains(&(&row.target, &row.policy)) {
            names.push((&row.target, &row.policy));
        }
    }
    let unit = rows.first().map_or(1.0, |row| row.operations_per_second);
    let mut curves: Vec<Curve> = Vec::new();
    for (number, (target, policy)) in names.iter().enumerate() {
        let own = rows.iter().filter(|row| row.target == *target && row.policy == *policy);
        let rates = |row: &Row| {
            row.rounds.iter().map(|round| round.operations_per_second / unit).collect::<Vec<f64>>()
        };
        curves.push(Curve {
            label: if *policy == "-" {
                (*target).to_string()
            } else {
                format!("{target}, {policy}")
            },
            colour: colour(number),
            is_published: false,
            points: own
                .clone()
                .map(|row| (row.workers as f64, row.operations_per_second / unit))
                .collect(),
            ranges: own
                .map(|row| {
                    let rates = rates(row);
                    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
                    (row.workers as f64, slowest, rates.iter().copied().fold(0.0, f64::max))
                })
                .collect(),
        });
    }
    let Some(published) = published.filter(|published| published.is_rate) else { return curves };
    let reference = names.iter().find_map(|(_, policy)| published.series_for(policy));
    let Some(unit) = reference
        .or(published.series.first())
        .and_then(|series| series.points.first())
        .map(|point| point.rate)
    else {
        return curves;
    };
    for (number, series) in published.series.iter().enumerate() {
        // The colour of the corresponding measured curve.
        let partner = names.iter().position(|(_, policy)| {
            *policy != "-"
                && published.series_for(policy).map(|found| found.name) == Some(series.name)
        });
        curves.push(Curve {
            label: format!("published: {}", series.name.replace('_', " ")),
            colour: colour(partner.unwrap_or(names.len() + number)),
            is_published: true,
            points: series
                .points
                .iter()
                .map(|point| (point.workers as f64, point.rate / unit))
                .collect(),
            ranges: Vec::new(),
        });
    }
    curves
}
