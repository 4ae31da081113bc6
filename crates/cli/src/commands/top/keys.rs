//! What keys do.

use super::screen::View;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::time::Duration;

/// The shortest and the longest interval that keys choose.
const INTERVALS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];

/// Changes the view as a key says; returns false at the end.
pub fn press(view: &mut View, key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('p' | ' ') => view.is_paused = !view.is_paused,
        KeyCode::Char('+' | '=') => view.interval = (view.interval * 2).min(INTERVALS[1]),
        KeyCode::Char('-') => view.interval = (view.interval / 2).max(INTERVALS[0]),
        KeyCode::Up | KeyCode::Char('k') => view.select_before(),
        KeyCode::Down | KeyCode::Char('j') => view.select_next(),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::columns::tests::activity;
    use crate::commands::top::watch::Interval;

    #[test]
    fn keys_pause_select_and_change_the_interval() {
        let mut view = View::new(Duration::from_secs(1));
        let mounts = vec![activity("/a"), activity("/b")];
        view.take(Interval { mounts, seconds: 1.0, ..Interval::default() });
        let mut press = |code| {
            let goes_on = press(&mut view, KeyEvent::from(code));
            (goes_on, view.is_paused, view.interval.as_millis(), view.selected)
        };
        assert_eq!(press(KeyCode::Char('p')), (true, true, 1_000, 0));
        assert_eq!(press(KeyCode::Char('+')), (true, true, 2_000, 0));
        for _ in 0..9 {
            press(KeyCode::Char('-'));
        }
        assert_eq!(press(KeyCode::Down), (true, true, 100, 1));
        assert_eq!(press(KeyCode::Down), (true, true, 100, 1));
        assert_eq!(press(KeyCode::Up), (true, true, 100, 0));
        assert_eq!(press(KeyCode::Char('x')), (true, true, 100, 0));
        assert!(!press(KeyCode::Char('q')).0);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(!super::press(&mut view, control_c));
    }
}
