//! What `top` shows on a terminal.

use super::columns::{COLUMNS, DIRECTORY, before_directory, end_of, rate, values};
use super::keys;
use super::watch::{Activity, Interval, MountWatch};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::{Escaped, counted};
use drystone_sync::clock;
use ratatui::Frame;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table};
use std::collections::{BTreeMap, VecDeque};
use std::io::Stdout;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// How often keys and signals are looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Intervals that the curve shows at most.
const HISTORY_MAX: usize = 512;
/// Lines of the curve, with its heading.
const CURVE_LINES: u16 = 5;

/// What is on the screen.
pub struct View {
    pub interval: Duration,
    pub is_paused: bool,
    /// The mount whose requests are shown.
    pub selected: usize,
    latest: Interval,
    /// Requests per second of each mount, the newest first.
    history: BTreeMap<(u32, PathBuf), VecDeque<u64>>,
}

impl View {
    pub fn new(interval: Duration) -> View {
        View {
            interval,
            is_paused: false,
            selected: 0,
            latest: Interval::default(),
            history: BTreeMap::new(),
        }
    }

    /// Shows an interval from now on.
    pub fn take(&mut self, interval: Interval) {
        let mut history = BTreeMap::new();
        for Activity { interval: counts, mount } in &interval.mounts {
            let key = (mount.process, mount.directory.clone());
            let mut rates = self.history.remove(&key).unwrap_or_default();
            rates.push_front((counts.all_requests() as f64 / interval.seconds.max(1e-9)) as u64);
            rates.truncate(HISTORY_MAX);
            history.insert(key, rates);
        }
        self.history = history;
        self.selected = self.selected.min(interval.mounts.len().saturating_sub(1));
        self.latest = interval;
    }

    pub fn select_before(&mut self) {
        self.selected = self.selected.saturating_sub(1);
    }

    pub fn select_next(&mut self) {
        self.selected = (self.selected + 1).min(self.latest.mounts.len().saturating_sub(1));
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let mounts = u16::try_from(self.latest.mounts.len().max(1)).unwrap_or(u16::MAX);
        let [title, table, curve, requests, help] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Max(mounts.saturating_add(2)),
            Constraint::Length(CURVE_LINES),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let mut what = format!("drystone top: every {} s", self.interval.as_secs_f64());
        if self.is_paused {
            what.push_str(", paused");
        }
        if !self.latest.silent.is_empty() {
            let servers = counted(self.latest.silent.len() as u64, "server");
            what.push_str(&format!("; without an answer: {servers}"));
        }
        frame.render_widget(Paragraph::new(what).bold(), title);
        self.draw_mounts(frame, table);
        if let Some(activity) = self.latest.mounts.get(self.selected) {
            self.draw_curve(activity, frame, curve);
            self.draw_requests(activity, frame, requests);
        }
        let keys = "q ends   p pauses   + - interval   ↑ ↓ select a mount";
        frame.render_widget(Paragraph::new(keys).dim(), help);
    }

    fn draw_mounts(&self, frame: &mut Frame<'_>, area: Rect) {
        if self.latest.mounts.is_empty() {
            let text = match self.latest.time.is_empty() {
                true => "The first interval runs.",
                false => "Nothing is mounted.",
            };
            return frame.render_widget(Paragraph::new(text), area);
        }
        let right = |text: String| Cell::new(Line::from(text).right_aligned());
        let room = usize::from(area.width).saturating_sub(before_directory());
        let rows = self.latest.mounts.iter().enumerate().map(|(index, activity)| {
            let mut cells: Vec<_> =
                values(activity, self.latest.seconds).into_iter().map(right).collect();
            let directory = activity.mount.directory.as_os_str().as_bytes();
            cells.push(Cell::new(end_of(&Escaped(directory).to_string(), room)));
            let row = Row::new(cells);
            if index == self.selected { row.reversed() } else { row }
        });
        let headings = COLUMNS.map(|(heading, _)| right(heading.to_owned()));
        let headings = headings.into_iter().chain([Cell::new(DIRECTORY)]);
        let widths = COLUMNS.map(|(_, width)| Constraint::Length(width as u16));
        let widths = widths.into_iter().chain([Constraint::Min(9)]);
        let table = Table::new(rows, widths).header(Row::new(headings).fg(Color::Cyan));
        frame.render_widget(table, area);
    }

    fn draw_curve(&self, activity: &Activity, frame: &mut Frame<'_>, area: Rect) {
        let key = (activity.mount.process, activity.mount.directory.clone());
        let Some(rates) = self.history.get(&key) else { return };
        // The newest is at the right.
        let width = usize::from(area.width);
        let mut shown: Vec<u64> = rates.iter().take(width).copied().collect();
        shown.resize(width, 0);
        shown.reverse();
        let largest = rates.iter().take(width).max().copied().unwrap_or(0);
        let title = format!(" requests per second, at most {largest} ");
        let block = Block::new().borders(Borders::TOP).title(title);
        let curve = Sparkline::default().data(shown).style(Style::new().fg(Color::Green));
        frame.render_widget(curve.block(block), area);
    }

    fn draw_requests(&self, activity: &Activity, frame: &mut Frame<'_>, area: Rect) {
        let Activity { interval, mount } = activity;
        let image = Escaped(mount.image.as_os_str().as_bytes()).to_string();
        let title = format!(" {image}, process {}, transport {} ", mount.process, mount.transport);
        let block = Block::new().borders(Borders::TOP).title(title);
        let mut kinds: Vec<_> = mount.requests.iter().collect();
        let now = |kind: &str| interval.requests.get(kind).copied().unwrap_or(0);
        kinds.sort_by_key(|(kind, all)| (std::cmp::Reverse((now(kind), **all)), *kind));
        // The number of kinds is that of the lines, in as many columns as have room.
        const COLUMN: u16 = 38;
        let lines = usize::from(block.inner(area).height.saturating_sub(1)).max(1);
        let columns = usize::from((area.width / COLUMN).max(1));
        let right = |text: String| Cell::new(Line::from(text).right_aligned());
        let rows = (0..lines.min(kinds.len())).map(|line| {
            let cells = kinds.iter().skip(line).step_by(lines).take(columns);
            Row::new(cells.flat_map(|(kind, all)| {
                [
                    Cell::new(kind.as_str()),
                    right(rate(now(kind), self.latest.seconds)),
                    right(all.to_string()),
                ]
            }))
        });
        let headings = ["REQUEST", "PER SECOND", "ALL"];
        let cells = headings.iter().enumerate().map(|(index, heading)| match index {
            0 => Cell::new(*heading),
            _ => right((*heading).to_owned()),
        });
        let heading: Vec<_> = cells.collect();
        let heading: Vec<_> = (0..columns).flat_map(|_| heading.clone()).collect();
        let widths = [15, 10, 10].map(Constraint::Length);
        let widths: Vec<_> = (0..columns).flat_map(|_| widths).collect();
        let table = Table::new(rows, widths).header(Row::new(heading).fg(Color::Cyan));
        frame.render_widget(table.block(block), area);
    }
}

/// The terminal, while it shows this. It becomes what it was when this is dropped.
struct FullScreen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl FullScreen {
    fn new() -> std::io::Result<FullScreen> {
        enable_raw_mode()?;
        let screen =
            FullScreen { terminal: Terminal::new(CrosstermBackend::new(std::io::stdout()))? };
        execute!(std::io::stdout(), EnterAlternateScreen)?;
        Ok(screen)
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        let _ = execute!(std::io::stdout(), LeaveAlternateScreen);
        let _ = self.terminal.show_cursor();
        let _ = disable_raw_mode();
    }
}

/// Shows what happens until a key or a signal ends it, or nothing is left.
pub fn run(mut watch: MountWatch, interval: Duration, interrupt: &Interrupt) -> Outcome {
    let mut view = View::new(interval);
    Interrupt::end_with_terminal()?;
    let mut screen = FullScreen::new()?;
    let mut began = clock::now();
    while !watch.is_over() {
        screen.terminal.draw(|frame| view.draw(frame))?;
        loop {
            let left = (began + view.interval).duration_since(clock::now());
            let is_due = left.is_zero() && !view.is_paused;
            if is_due {
                began = clock::now();
                view.take(watch.next()?);
                break;
            }
            let patience = if view.is_paused { LOOK_INTERVAL } else { left.min(LOOK_INTERVAL) };
            if event::poll(patience)? {
                if let Event::Key(key) = event::read()?
                    && key.is_press()
                    && !keys::press(&mut view, key)
                {
                    return Ok(());
                }
                break;
            }
            if interrupt.is_asked() {
                return Err(Failure::Code(interrupt.code()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::columns::tests::activity;
    use ratatui::backend::TestBackend;

    /// The lines of a screen.
    fn shown(view: &View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(usize::from(width));
        let line = |cells: &[ratatui::buffer::Cell]| {
            cells.iter().map(ratatui::buffer::Cell::symbol).collect::<String>()
        };
        lines.map(line).map(|line| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn mounts_and_the_requests_of_one_are_shown() {
        let mut view = View::new(Duration::from_secs(2));
        assert_eq!(shown(&view, 80, 24)[1], "The first interval runs.");
        let mut second = activity("/b\x1b[2J");
        second.mount.process = 8;
        second.mount.requests = [("fsync".to_owned(), 12)].into();
        let mounts = vec![activity("/a"), second];
        view.take(Interval { time: "now".to_owned(), seconds: 2.0, mounts, ..Interval::default() });
        view.is_paused = true;
        view.select_next();
        let lines = shown(&view, 100, 24);
        assert_eq!(lines[0], "drystone top: every 2 s, paused");
        assert!(lines[1].ends_with("FREE ERRORS DIRECTORY"), "{lines:#?}");
        assert!(lines[2].starts_with("  rw     502    1.5M       0      1.0"), "{lines:#?}");
        assert!(lines[2].ends_with("0 /a") && lines[3].ends_with("0 /b\\u{1b}[2J"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("/srv/disk.img, process 8")), "{lines:#?}");
        let fsync = lines.iter().find(|line| line.starts_with("fsync")).unwrap();
        assert_eq!(fsync.split_whitespace().collect::<Vec<_>>(), ["fsync", "0", "12"]);
        assert!(lines[23].starts_with("q ends"), "{lines:#?}");
        // Nothing is left.
        let silent = vec!["/run/7.sock".into()];
        let (time, mounts) = ("later".to_owned(), Vec::new());
        view.take(Interval { time, seconds: 2.0, mounts, silent });
        assert!(shown(&view, 80, 24)[0].ends_with("without an answer: 1 server"));
        assert_eq!((&*shown(&view, 80, 24)[1], view.selected), ("Nothing is mounted.", 0));
    }

    #[test]
    fn a_small_terminal_is_enough() {
        let mut view = View::new(Duration::from_secs(1));
        view.take(Interval {
            seconds: 1.0,
            mounts: vec![activity("/a"); 9],
            ..Interval::default()
        });
        for (width, height) in [(1, 1), (20, 5), (300, 100)] {
            assert_eq!(shown(&view, width, height).len(), usize::from(height));
        }
    }

    #[test]
    fn the_curve_keeps_what_a_mount_did() {
        let mut view = View::new(Duration::from_secs(1));
        for requests in [10, 80, 20] {
            let mut activity = activity("/a");
            activity.interval.requests = [("read".to_owned(), requests)].into();
            view.take(Interval { seconds: 1.0, mounts: vec![activity], ..Interval::default() });
        }
        let lines = shown(&view, 80, 24);
        assert!(lines.iter().any(|line| line.contains("at most 80")), "{lines:#?}");
        let bottom = lines.iter().find(|line| line.ends_with("██") || line.ends_with("█▅"));
        assert!(bottom.is_some() || lines.iter().any(|line| line.contains('█')), "{lines:#?}");
    }
}
