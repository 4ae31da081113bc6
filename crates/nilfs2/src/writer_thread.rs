//! The log writer's thread: writes logs and cleans, when it is asked to or due.

use crate::cleaner::{Cleaner, PROTECTION_S};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::log_requests::{LogRequests, Task};
use crate::log_writer::LogWriter;
use drystone_sync::{clock, thread};
use std::time::Duration;

/// The body of the thread: writes logs when asked, and whenever `interval` has passed if there is one.
/// Then it also cleans.
pub(crate) fn run(engine: &Engine, interval: Option<Duration>) {
    let requests = &engine.requests;
    let _guard = PanicGuard { requests };
    let (writer, cleaner) = (LogWriter::new(engine), Cleaner::new(engine));
    let mut is_cleaning = false;
    let mut last = clock::now();
    loop {
        let task = requests.next_task(last, interval);
        let is_running = requests.check_running();
        match task {
            Task::Checkpoint { number, data } => {
                let is_due = interval.is_some_and(|interval| last.elapsed() >= interval);
                let result = is_running
                    .and_then(|()| writer.write_checkpoint())
                    .and_then(|()| go_on(requests, cleaner.refill_reserve()))
                    .inspect(|()| delete_waiting(engine));
                let has_failed = result.is_err();
                requests.finish_checkpoint(result, number, data);
                if is_due && !has_failed {
                    clean_in_background(cleaner, &mut is_cleaning);
                }
                // After the work: if that takes longer than the interval, other tasks get their turn.
                last = clock::now();
            }
            Task::Data(inodes, number) => {
                let result = is_running.and_then(|()| writer.write_data_log(&inodes));
                requests.finish_data(result, number);
            }
            Task::Space(number, blocks) => {
                let result = is_running
                    .and_then(|()| writer.write_checkpoint())
                    .and_then(|()| go_on(requests, cleaner.clean_for_space(blocks)))
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
        engine.requests.go_on();
    }
}

/// Cleans some segments if few are clean.
fn clean_in_background(cleaner: Cleaner<'_>, is_cleaning: &mut bool) {
    *is_cleaning = cleaner.is_cleaning_due(*is_cleaning);
    if *is_cleaning {
        // An error that stops the log shows in the next task.
        let _ = go_on(&cleaner.requests, cleaner.clean_some(PROTECTION_S).map(drop));
    }
}

/// What the cleaner can't read isn't a reason to stop, if the log hasn't.
fn go_on(requests: &LogRequests, cleaned: Result<()>) -> Result<()> {
    let Err(error) = cleaned else { return Ok(()) };
    requests.check_running()?;
    tracing::warn!(%error, "the cleaner can't read what it needs");
    Ok(())
}

/// Has nothing wait for a thread that has panicked.
struct PanicGuard<'a> {
    requests: &'a LogRequests,
}

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.requests.fail(Error::LogStopped("its thread has panicked".to_owned()));
        }
    }
}
