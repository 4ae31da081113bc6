//! Runs of seeds in processes of their own, so that a run can leave, crash or hang as it likes.
#![allow(unsafe_code)]

use anyhow::{Context, Result};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, alarm, fork};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::panic;

/// Real time that a run may take.
const SECONDS_MAX: u32 = 120;

/// A process that works.
struct Child {
    job: u64,
    output: File,
}

/// Processes that work at the same time.
pub struct Children {
    /// A hash map would change the hash keys that the runs draw.
    running: BTreeMap<Pid, Child>,
    jobs_max: usize,
}

/// What a process has said about its job, or how it has died.
pub struct Ended {
    pub job: u64,
    pub said: std::result::Result<String, String>,
}

impl Children {
    /// Up to so many at the same time.
    pub fn new(jobs_max: usize) -> Children {
        Children { running: BTreeMap::new(), jobs_max }
    }

    /// Whether one more may be started.
    pub fn has_room(&self) -> bool {
        self.running.len() < self.jobs_max
    }

    /// Starts a process that says what `work` returns, or what it panics with.
    pub fn start(&mut self, job: u64, work: impl FnOnce() -> String) -> Result<()> {
        let output = File::from(memfd_create("run", MFdFlags::MFD_CLOEXEC)?);
        // SAFETY: this process has one thread, so the child may do whatever it could.
        match unsafe { fork() }.context("a process for a run")? {
            ForkResult::Parent { child } => {
                self.running.insert(child, Child { job, output });
                Ok(())
            }
            ForkResult::Child => {
                alarm::set(SECONDS_MAX);
                let panicked = output.try_clone();
                panic::set_hook(Box::new(move |panic| {
                    if let Ok(mut output) = panicked.as_ref() {
                        // If that fails, the exit code says that something was wrong.
                        let _ = writeln!(output, "{}", panic.to_string().replacen('\n', " ", 1));
                    }
                }));
                let said = panic::catch_unwind(panic::AssertUnwindSafe(work));
                let is_written =
                    said.is_ok_and(|said| (&output).write_all(said.as_bytes()).is_ok());
                std::process::exit(if is_written { 0 } else { 1 });
            }
        }
    }

    /// Waits until one has ended; `None` if none runs.
    pub fn wait(&mut self) -> Result<Option<Ended>> {
        while !self.running.is_empty() {
            let status = waitpid(None, None)?;
            let Some(mut child) = status.pid().and_then(|pid| self.running.remove(&pid)) else {
                continue;
            };
            let mut said = String::new();
            child.output.rewind()?;
            child.output.read_to_string(&mut said)?;
            let said = match status {
                WaitStatus::Exited(_, 0) => Ok(said),
                WaitStatus::Signaled(_, signal, _) => {
                    Err(format!("{said}ended by {signal} (SIGALRM: it took {SECONDS_MAX} s)"))
                }
                _ => Err(said),
            };
            return Ok(Some(Ended { job: child.job, said }));
        }
        Ok(None)
    }
}
