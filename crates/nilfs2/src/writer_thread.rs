//! The log writer's thread: writes logs and cleans, when it is asked to or due.

use crate::cleaner::{Cleaner, PROTECTION_S};
use crate::engine::Engine;
use crate::log_requests::Task;
use crate::log_writer::LogWriter;
use drystone_sync::clock;
use std::time::Duration;

/// The body of the thread: writes logs when asked, and whenever `interval` has passed if there is one.
/// Then it also cleans.
pub(crate) fn run(engine: &Engine, interval: Option<Duration>) {
    let requests = &engine.requests;
    let (writer, cleaner) = (LogWriter::new(engine), Cleaner::new(engine));
    let mut is_cleaning = false;
    let mut last = clock::now();
    loop {
        let task = requests.next_task(last, interval);
        let is_running = requests.check_running();
        match task {
            Task::Checkpoint(number) => {
                let is_due = interval.is_some_and(|interval| last.elapsed() >= interval);
                last = clock::now();
                let result = is_running.and_then(|()| writer.write_checkpoint());
                let result = result.and_then(|()| cleaner.refill_reserve());
                let result = result.inspect(|()| delete_waiting(engine));
                let has_failed = result.is_err();
                requests.finish_checkpoint(result, number);
                if is_due && !has_failed {
                    clean_in_background(cleaner, &mut is_cleaning);
                }
            }
            Task::Data(inodes, number) => {
                let result = is_running.and_then(|()| writer.write_data_log(&inodes));
                requests.finish_data(result, number);
            }
            Task::Space(number, blocks) => {
                let result = is_running
                    .and_then(|()| writer.write_checkpoint())
                    .and_then(|()| cleaner.clean_for_space(blocks))
                    .inspect(|()| delete_waiting(engine));
                requests.finish_space(result, number);
            }
            Task::Stop => return,
        }
    }
}

/// Deletes inodes that waited for room; the next checkpoint makes more.
fn delete_waiting(engine: &Engine) {
    if engine.delete_waiting() {
        engine.requests.wake();
    }
}

/// Cleans some segments if few are clean.
fn clean_in_background(cleaner: Cleaner<'_>, is_cleaning: &mut bool) {
    *is_cleaning = cleaner.is_cleaning_due(*is_cleaning);
    if *is_cleaning && let Err(error) = cleaner.clean_some(PROTECTION_S) {
        cleaner.requests.fail(error);
    }
}
