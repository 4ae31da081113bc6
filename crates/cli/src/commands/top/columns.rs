//! What is shown of a mount, in columns.

use super::watch::Activity;
use crate::size::human;
use ratatui::text::Line;

/// The columns before the directory, which comes last because it may be long: heading and width.
pub const COLUMNS: [(&str, usize); 9] = [
    ("MODE", 4),
    ("REQ/s", 7),
    ("READ/s", 7),
    ("WRITE/s", 7),
    ("COMMIT/s", 8),
    ("ms/COMMIT", 9),
    ("MEMORY", 6),
    ("FREE", 6),
    ("ERRORS", 6),
];

/// The heading of the last column.
pub const DIRECTORY: &str = "DIRECTORY";

/// What is in the columns; `-` for what a mount doesn't know.
pub fn values(activity: &Activity, seconds: f64) -> [String; COLUMNS.len()] {
    let Activity { interval, mount } = activity;
    let unknown = || "-".to_owned();
    // Less than a byte in a second isn't shown.
    let bytes = |bytes: u64| human(per_second(bytes, seconds) as u64);
    let commit_ms = interval.commits.zip(interval.commit_us).filter(|(count, _)| *count > 0);
    [
        mount.mode.clone(),
        rate(interval.all_requests(), seconds),
        bytes(interval.bytes_read),
        bytes(interval.bytes_written),
        interval.commits.map_or_else(unknown, |count| rate(count, seconds)),
        commit_ms
            .map_or_else(unknown, |(count, us)| format!("{:.2}", us as f64 / 1e3 / count as f64)),
        mount.resident_bytes.map_or_else(unknown, human),
        mount.space.as_ref().map_or_else(unknown, |space| human(space.available_bytes)),
        mount.io_errors.to_string(),
    ]
}

/// A number per second: with a digit after the point if it is small.
pub fn rate(count: u64, seconds: f64) -> String {
    let rate = per_second(count, seconds);
    if rate > 0.0 && rate < 9.95 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// The place of the directory in a line.
pub fn before_directory() -> usize {
    COLUMNS.iter().map(|(_, width)| width + 1).sum()
}

/// A path as it fits into a line: the names at its end tell mounts apart.
pub fn end_of(path: &str, width: usize) -> String {
    let fits = |text: &str| Line::from(text).width() <= width;
    if fits(path) {
        return path.to_owned();
    }
    let mut ends = path.char_indices().skip(1).map(|(at, _)| format!("…{}", &path[at..]));
    ends.find(|end| fits(end)).unwrap_or_default()
}

/// The headings, as a line of text.
pub fn header() -> String {
    let headings = COLUMNS.map(|(heading, width)| format!("{heading:>width$}"));
    format!("{} {DIRECTORY}", headings.join(" "))
}

/// A mount, as a line of text.
pub fn line(activity: &Activity, seconds: f64) -> String {
    let values = values(activity, seconds);
    let values = values.iter().zip(COLUMNS).map(|(value, (_, width))| format!("{value:>width$}"));
    format!("{} {}", values.collect::<Vec<_>>().join(" "), activity.mount.directory.display())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::commands::top::watch::Counts;
    use crate::mounts::status::{SpaceStatus, Status};

    /// A mount that does something.
    pub fn activity(directory: &str) -> Activity {
        let requests = [("read", 1000_u64), ("lookup", 4), ("statfs", 1)];
        let requests = requests.map(|(kind, count)| (kind.to_owned(), count));
        let space =
            SpaceStatus { bytes: 1 << 30, free_bytes: 600 << 20, available_bytes: 512 << 20 };
        Activity {
            interval: Counts {
                requests: requests.into(),
                bytes_read: 3 << 20,
                commits: Some(2),
                commit_us: Some(2_500),
                ..Counts::default()
            },
            mount: Status {
                process: 7,
                image: "/srv/disk.img".into(),
                directory: directory.into(),
                mode: "rw".into(),
                resident_bytes: Some(24 << 20),
                space: Some(space),
                ..Status::default()
            },
        }
    }

    #[test]
    fn long_paths_keep_their_end() {
        assert_eq!(end_of("/srv/data", 9), "/srv/data");
        assert_eq!(end_of("/srv/data", 8), "…rv/data");
        assert_eq!(end_of("/srv/数据", 6), "…/数据");
        assert_eq!(end_of("/srv/data", 1), "");
    }

    #[test]
    fn columns_are_under_their_headings() {
        let text = format!("{}\n{}", header(), line(&activity("/mnt"), 2.0));
        assert_eq!(
            text,
            "MODE   REQ/s  READ/s WRITE/s COMMIT/s ms/COMMIT MEMORY   FREE ERRORS DIRECTORY\n\
             \x20 rw     502    1.5M       0      1.0      1.25    24M   512M      0 /mnt"
        );
    }

    #[test]
    fn what_is_not_known_is_not_made_up() {
        let mut activity = activity("/mnt");
        activity.interval.commits = None;
        activity.mount.space = None;
        let values = values(&activity, 1.0);
        assert_eq!([&values[4], &values[5], &values[7]], ["-", "-", "-"]);
        assert_eq!(
            (rate(0, 1.0), rate(3, 2.0), rate(7, 0.0)),
            ("0".into(), "1.5".into(), "0".into())
        );
    }
}
