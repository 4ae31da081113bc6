//! The file that says how long the work between two events takes, and how it is made.
//!
//! # State
//! Lines of words; `#` begins a comment. `clock_ghz N` is the clock of the core that was measured.
//! `place NUMBER FILE LINE STEP` names an end of stretches; `work FROM TO PICOSECONDS COUNT` is the median time from
//! one place to another, and how often it was met.

use crate::machine::CLOCK_GHZ;
use anyhow::{Context, Result, bail, ensure};
use drystone_sync::sim::{MeasuredStretch, Site, Step, WorkTable};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

/// What the program was built with.
const BUILT_IN: &str = include_str!("../work.txt");
/// A stretch that was met more seldom is left out.
const COUNT_MIN: u64 = 4;

/// The work between events on the core where it was measured.
pub struct CalibratedWork {
    /// The table.
    pub table: WorkTable,
    /// The core's clock.
    pub clock_ghz: f64,
}

impl CalibratedWork {
    /// Reads a file, or what the program was built with.
    ///
    /// # Errors
    /// The file can't be read, or is wrong somewhere.
    pub fn load(path: Option<&str>) -> Result<CalibratedWork> {
        match path {
            None => parse(BUILT_IN).context("the built-in work table"),
            Some(path) => {
                let text = fs::read_to_string(path).with_context(|| format!("work file {path}"))?;
                parse(&text).with_context(|| format!("work file {path}"))
            }
        }
    }
}

/// Reads the text of a file.
///
/// # Errors
/// It is wrong somewhere.
pub fn parse(text: &str) -> Result<CalibratedWork> {
    let mut lines = WorkLines::default();
    for (index, line) in text.lines().enumerate() {
        lines.add(line).with_context(|| format!("line {}", index + 1))?;
    }
    let clock_ghz = lines.clock_ghz.context("it has no line 'clock_ghz N'")?;
    let (least, most) = (CLOCK_GHZ.start(), CLOCK_GHZ.end());
    ensure!(CLOCK_GHZ.contains(&clock_ghz), "clock_ghz is {clock_ghz}; it is {least} to {most}");
    Ok(CalibratedWork { table: WorkTable::new(lines.stretches), clock_ghz })
}

/// What the lines of a file have said.
#[derive(Default)]
struct WorkLines {
    clock_ghz: Option<f64>,
    places: BTreeMap<usize, Site>,
    stretches: Vec<(Site, Site, u64, u64)>,
}

impl WorkLines {
    fn add(&mut self, line: &str) -> Result<()> {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => {}
            ["clock_ghz", clock] => self.clock_ghz = Some(clock.parse()?),
            ["place", number, file, line, step] => {
                let step = Step::named(step).with_context(|| format!("no step '{step}'"))?;
                let site = Site { file: (*file).to_string(), line: line.parse()?, step };
                self.places.insert(number.parse()?, site);
            }
            ["work", from, to, ps, count] => {
                let (from, to) = (self.place(from)?, self.place(to)?);
                self.stretches.push((from, to, ps.parse()?, count.parse()?));
            }
            [word, ..] => bail!("'{word}' is neither clock_ghz nor place nor work"),
        }
        Ok(())
    }

    fn place(&self, number: &str) -> Result<Site> {
        let place = self.places.get(&number.parse()?).cloned();
        place.with_context(|| format!("there is no place {number}"))
    }
}

/// Stretches of several runs.
#[derive(Default)]
pub struct Calibration {
    stretches: BTreeMap<(Site, Site), (u64, Vec<u64>)>,
}

impl Calibration {
    /// Adds what a run has measured.
    pub fn add(&mut self, measured: Vec<MeasuredStretch>) {
        for stretch in measured {
            let entry = self.stretches.entry((stretch.from, stretch.to)).or_default();
            entry.0 += stretch.count;
            entry.1.extend(stretch.samples_ps);
        }
    }

    /// The file. What a stretch without any code takes isn't work, and the rest is scaled.
    pub fn text(&self, processor: &str, clock_ghz: f64, empty_ps: u64, scale: f64) -> String {
        let kept: Vec<_> =
            self.stretches.iter().filter(|(_, (count, _))| *count >= COUNT_MIN).collect();
        let sites: BTreeSet<&Site> = kept.iter().flat_map(|((from, to), _)| [from, to]).collect();
        let sites: Vec<&Site> = sites.into_iter().collect();
        let mut text = format!(
            "# Work between two events, in picoseconds: medians of the release build with one worker,\n\
             # less {empty_ps}, which a stretch without code takes, times {scale:.4}.\n\
             # Made by './dev simulate --calibrate crates/simulate/work.txt' on: {processor}\n\
             clock_ghz {clock_ghz:.2}\n"
        );
        // Writing to a string can't fail.
        for (number, site) in sites.iter().enumerate() {
            let _ = writeln!(text, "place {number} {} {} {}", site.file, site.line, site.step);
        }
        for ((from, to), (count, samples)) in kept {
            let number = |site: &Site| sites.binary_search(&site).unwrap_or(usize::MAX);
            let median = (median(samples).saturating_sub(empty_ps) as f64 * scale) as u64;
            let _ = writeln!(text, "work {} {} {median} {count}", number(from), number(to));
        }
        text
    }
}

/// The middle value.
pub fn median(samples: &[u64]) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(line: u32, step: Step) -> Site {
        Site { file: "crates/ext4/src/lib.rs".into(), line, step }
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let mut calibration = Calibration::default();
        let stretch = |line, samples_ps: &[u64]| MeasuredStretch {
            from: site(line, Step::Take),
            to: site(line + 1, Step::Release),
            count: 2 * samples_ps.len() as u64,
            samples_ps: samples_ps.to_vec(),
        };
        calibration.add(vec![stretch(10, &[100, 300]), stretch(20, &[5])]);
        calibration.add(vec![stretch(10, &[200])]);
        let text = calibration.text("A CPU", 2.5, 40, 0.5);
        assert!(text.contains("work 0 1 80 6\n"), "{text}");
        assert!(!text.contains("lib.rs 20 "), "it was met too seldom: {text}");
        assert_eq!(parse(&text).unwrap().clock_ghz, 2.5);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, expected) in [
            ("", "no line 'clock_ghz N'"),
            ("clock_ghz x", "line 1"),
            ("clock_ghz -1", "clock_ghz is -1; it is 0.1 to 10"),
            ("clock_ghz 2\nplace 0 a.rs 7 jump", "line 2: no step 'jump'"),
            ("\nwork 0 1 2 3", "line 2: there is no place 0"),
            ("play 1", "line 1: 'play' is neither"),
        ] {
            let error = format!("{:#}", parse(text).err().unwrap());
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_built_in_table_is_read() {
        assert!(CalibratedWork::load(None).is_ok());
    }
}
