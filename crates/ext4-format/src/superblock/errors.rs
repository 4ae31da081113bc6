//! Errors that the superblock remembers.

use super::fields::{join_time, set_text, split_time, text};
use super::{StateFlags, Superblock};
use drystone_ondisk::little_endian::{U32, U64};

/// The record of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorRecord {
    /// When, in seconds since 1970; 0 for never.
    pub time_seconds: u64,
    /// In which inode, or 0.
    pub inode: u32,
    /// At which block, or 0.
    pub block: u64,
    /// In which function, at most 32 bytes.
    pub function: String,
    /// In which line.
    pub line: u32,
    /// Which kind of error, by the format's own numbers.
    pub code: u8,
}

impl Superblock {
    /// The first error since the last check, if there was one.
    #[must_use]
    pub fn first_error(&self) -> Option<ErrorRecord> {
        let raw = &self.raw;
        record(ErrorRecord {
            time_seconds: join_time(&raw.first_error_time, raw.first_error_time_hi),
            inode: raw.first_error_ino.get(),
            block: raw.first_error_block.get(),
            function: String::from_utf8_lossy(text(&raw.first_error_func)).into_owned(),
            line: raw.first_error_line.get(),
            code: raw.first_error_errcode,
        })
    }

    /// The last error since the last check, if there was one.
    #[must_use]
    pub fn last_error(&self) -> Option<ErrorRecord> {
        let raw = &self.raw;
        record(ErrorRecord {
            time_seconds: join_time(&raw.last_error_time, raw.last_error_time_hi),
            inode: raw.last_error_ino.get(),
            block: raw.last_error_block.get(),
            function: String::from_utf8_lossy(text(&raw.last_error_func)).into_owned(),
            line: raw.last_error_line.get(),
            code: raw.last_error_errcode,
        })
    }

    /// Records an error: as the last, as the first if there was none, and in count and state.
    pub fn record_error(&mut self, error: &ErrorRecord) {
        let raw = &mut self.raw;
        if raw.first_error_time.get() == 0 && raw.first_error_time_hi == 0 {
            let (time, time_hi) = (&mut raw.first_error_time, &mut raw.first_error_time_hi);
            split_time(error.time_seconds, time, time_hi);
            raw.first_error_ino.set(error.inode);
            raw.first_error_block.set(error.block);
            set_text(&mut raw.first_error_func, error.function.as_bytes());
            raw.first_error_line.set(error.line);
            raw.first_error_errcode = error.code;
        }
        split_time(error.time_seconds, &mut raw.last_error_time, &mut raw.last_error_time_hi);
        raw.last_error_ino.set(error.inode);
        raw.last_error_block.set(error.block);
        set_text(&mut raw.last_error_func, error.function.as_bytes());
        raw.last_error_line.set(error.line);
        raw.last_error_errcode = error.code;
        raw.error_count.set(raw.error_count.get().saturating_add(1));
        self.set_state(self.state() | StateFlags::ERRORS);
    }

    /// Forgets all recorded errors, as a successful check does; the state is left as it is.
    pub fn clear_errors(&mut self) {
        let raw = &mut self.raw;
        raw.error_count = U32::ZERO;
        for time in [&mut raw.first_error_time, &mut raw.last_error_time] {
            *time = U32::ZERO;
        }
        for high in [&mut raw.first_error_time_hi, &mut raw.last_error_time_hi] {
            *high = 0;
        }
        for inode in [&mut raw.first_error_ino, &mut raw.last_error_ino] {
            *inode = U32::ZERO;
        }
        for block in [&mut raw.first_error_block, &mut raw.last_error_block] {
            *block = U64::ZERO;
        }
        for function in [&mut raw.first_error_func, &mut raw.last_error_func] {
            function.fill(0);
        }
        for line in [&mut raw.first_error_line, &mut raw.last_error_line] {
            *line = U32::ZERO;
        }
        for code in [&mut raw.first_error_errcode, &mut raw.last_error_errcode] {
            *code = 0;
        }
    }
}

fn record(error: ErrorRecord) -> Option<ErrorRecord> {
    (error.time_seconds != 0).then_some(error)
}
