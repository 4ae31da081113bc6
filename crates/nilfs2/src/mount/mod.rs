//! Mounts a volume.
//!
//! # Crash
//! A volume that wasn't unmounted is recovered to its newest state: the newest complete checkpoint, and the
//! data that was synced after it. A mount for writing then frees inodes without names. A crash during recovery
//! leaves the state from before it or after it.

mod control;
mod grow;
mod interface;
mod recover;
mod unmount;

pub use grow::{GrownVolume, grow};

use crate::checkpoints::read_checkpoint;
use crate::dat::{DatFile, Translated};
use crate::engine::{Engine, EngineParts};
use crate::error::{Error, Result};
use crate::ifile::Ifile;
use crate::lock_classes::{DAT, WRITER_THREAD};
use crate::log::{LogPosition, LogState, Segments, Superblocks};
use crate::metadata_file::MetadataFile;
use crate::operations::Operations;
use crate::policy::InodeSearch;
use crate::recovery::{FoundLog, NewestState, at_cursor, roll_forward, super_root};
use crate::volume::{Volume, VolumeOptions};
use crate::writer_thread::run;
use drystone_blockdev::BlockDevice;
use drystone_nilfs2_format::error::CheckpointProblem;
use drystone_nilfs2_format::geometry::{
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, second_superblock_offset,
};
use drystone_nilfs2_format::inode::Inode as Record;
use drystone_nilfs2_format::superblock::{LogCursor, Superblock, VolumeState};
use drystone_nilfs2_format::{CheckpointNumber, Corrupt, InodeNumber, PhysicalBlock};
use drystone_sync::atomic::Ordering;
use drystone_sync::thread::JoinHandle;
use drystone_sync::{Arc, Mutex, RwLock, thread};
use recover::RecoveryWork;
use std::collections::HashMap;
use std::time::Duration;

/// Changes wait for a log at most this long, if the superblock says nothing else.
const COMMIT_INTERVAL_S: u32 = 5;

/// Logs and checkpoints are numbered one by one: no volume gets so far, and after it no number overflows.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// How a volume is mounted.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MountOptions {
    /// Nothing is written, not even by recovery, which then happens in memory.
    pub read_only: bool,
    /// Shows this checkpoint instead of the newest one, read-only.
    pub checkpoint: Option<u64>,
    /// Changes wait for a log at most this long, and as long as that takes. It isn't zero.
    pub commit_interval: Option<Duration>,
    /// Where the search for a free inode starts.
    pub inode_search: InodeSearch,
    /// Stamps everything with this time, in seconds since 1970, and writes logs only when they are asked
    /// for, so that the same calls give the same image.
    pub fixed_time_s: Option<u64>,
    /// How long changes wait for room when the medium of the device is full, before the log stops. A host that
    /// tells so only when its files are flushed isn't waited for.
    pub full_medium_wait: Duration,
}

drystone_options::setters! {
    MountOptions {
        read_only: bool,
        checkpoint: impl Into<Option<u64>>,
        commit_interval: impl Into<Option<Duration>>,
        inode_search: InodeSearch,
        fixed_time_s: impl Into<Option<u64>>,
        full_medium_wait: Duration,
    }
}

/// A mounted volume.
#[derive(Debug)]
pub struct Nilfs2 {
    engine: Arc<Engine>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Nilfs2 {
    /// Mounts the volume on a device.
    ///
    /// # Errors
    /// If there is none, it is damaged, or it needs something that isn't supported.
    pub fn mount(device: Arc<dyn BlockDevice>, options: &MountOptions) -> Result<Self> {
        let is_read_only = options.read_only || options.checkpoint.is_some();
        let opened = Opened::find(device, is_read_only, options)?;
        let interval = options.commit_interval.unwrap_or_else(|| {
            let stored = opened.superblock.commit_interval_s();
            let seconds = if stored == 0 { COMMIT_INTERVAL_S } else { stored };
            Duration::from_secs(u64::from(seconds))
        });
        if interval.is_zero() {
            return Err(Error::Mount("the commit interval is zero".to_owned()));
        }
        let (engine, found) = opened.into_engine(options, is_read_only)?;
        let mounted = Self { engine: Arc::new(engine), writer: Mutex::new(&WRITER_THREAD, None) };
        let engine = &mounted.engine;
        if options.checkpoint.is_none() {
            found.replay(engine)?;
        }
        if is_read_only {
            return Ok(mounted);
        }
        engine.log.lock().superblocks.begin_mount(&engine.volume, found.was_unclean)?;
        if found.was_unclean {
            found.finish(engine)?;
            // If some couldn't be found or deleted, the next recovery must still look for them.
            if engine.nameless_left() == 0 && !engine.has_unread_inodes.load(Ordering::Relaxed) {
                engine.log.lock().superblocks.end_recovery(&engine.volume);
            }
        }
        let shared = Arc::clone(engine);
        let interval = options.fixed_time_s.is_none().then_some(interval);
        let thread = thread::spawn("nilfs2-log", move || run(&shared, interval))
            .map_err(|error| Error::Mount(format!("can't start a thread: {error}")))?;
        *mounted.writer.lock() = Some(thread);
        Ok(mounted)
    }

    fn operations(&self) -> Operations<'_> {
        Operations::new(&self.engine)
    }
}

/// A volume whose newest state was found.
struct Opened {
    volume: Volume,
    superblock: Superblock,
    work: RecoveryWork,
}

impl Opened {
    fn find(
        device: Arc<dyn BlockDevice>,
        is_read_only: bool,
        options: &MountOptions,
    ) -> Result<Self> {
        let candidates = read_superblocks(&*device)?;
        let mut failure = None;
        for (index, superblock) in candidates.into_iter().enumerate() {
            if !is_read_only {
                superblock.check_writable()?;
            }
            let geometry = *superblock.geometry();
            let volume_options = VolumeOptions {
                fixed_time_s: options.fixed_time_s,
                full_medium_wait: options.full_medium_wait,
            };
            let volume =
                Volume::new(Arc::clone(&device), geometry, superblock.seed(), volume_options);
            let log = match at_cursor(&volume, superblock.cursor()) {
                Ok(log) => log,
                Err(error) => {
                    failure.get_or_insert((superblock.cursor().checkpoint, error));
                    continue;
                }
            };
            let was_unclean = index > 0 || !superblock.state().contains(VolumeState::CLEAN);
            let old_segment = geometry.segment_of(log.block);
            let state = if was_unclean {
                roll_forward(&volume, log)?
            } else {
                NewestState {
                    last_sequence: log.header.sequence,
                    newest: log,
                    salvaged: Vec::new(),
                    first_salvaged: None,
                    reached: Vec::new(),
                    found: Vec::new(),
                }
            };
            if let Some((named, error)) = failure {
                let used = state.newest.header.checkpoint;
                // A read that failed once may have succeeded since.
                let lost = if used < named { "; later checkpoints are lost" } else { "" };
                tracing::warn!(
                    %named, %used, %error,
                    "the log that a superblock names couldn't be used{lost}"
                );
            }
            let work = RecoveryWork { state, was_unclean, old_segment };
            return Ok(Self { volume, superblock, work });
        }
        let failure = failure.map(|(_, error)| error);
        Err(failure.unwrap_or_else(|| Error::Mount("no superblock".to_owned())))
    }

    fn into_engine(
        self,
        options: &MountOptions,
        is_read_only: bool,
    ) -> Result<(Engine, RecoveryWork)> {
        let Self { volume, mut superblock, work } = self;
        let block_bytes = volume.block_bytes();
        let newest = &work.state.newest;
        let number = newest.header.sequence.max(newest.header.checkpoint.0);
        if !is_read_only && number > NUMBER_MAX {
            let block = newest.block;
            let problem = format!("the log at block {block} has the impossible number {number}");
            return Err(Error::Mount(format!("{problem}; mount the volume read-only to save it")));
        }
        let root = super_root(&volume, newest)?;
        let dat = RwLock::new(&DAT, DatFile::load(&root.dat, block_bytes)?);
        let source = Translated { volume: &volume, dat: &dat };
        let load = |number, inode: &Record| MetadataFile::load(number, inode, block_bytes);
        let mut cpfile = load(InodeNumber::CPFILE, &root.cpfile)?;
        let wanted = options.checkpoint.map_or(newest.header.checkpoint, CheckpointNumber);
        let checkpoint = read_checkpoint(&mut cpfile, wanted, block_bytes, &source);
        let checkpoint = checkpoint.map_err(|error| match error {
            // The caller has named it: that isn't damage.
            Error::Corrupt(Corrupt::Checkpoint { problem: CheckpointProblem::Missing, .. })
                if options.checkpoint.is_some() =>
            {
                Error::Mount(format!("there is no checkpoint {wanted}"))
            }
            error => error,
        })?;
        let ifile = Ifile::load(
            &checkpoint.ifile,
            block_bytes,
            superblock.first_inode(),
            options.inode_search,
        )?;
        let position = position_behind(&volume, newest)?;
        let load_segments = |file| Segments::load(file, position, &volume, &source);
        let segments = match load(InodeNumber::SUFILE, &root.sufile).and_then(load_segments) {
            // Only what writes needs it.
            Err(error) if is_read_only => {
                tracing::warn!(%error, "the segment usage file can't be read");
                load_segments(load(InodeNumber::SUFILE, &Record::metadata_file())?)?
            }
            Ok(mut segments) if !is_read_only => {
                segments.recount(&volume, &source)?;
                segments
            }
            segments => segments?,
        };
        superblock.set_cursor(LogCursor {
            checkpoint: newest.header.checkpoint,
            block: newest.block,
            sequence: newest.header.sequence,
        });
        let per_segment = volume.geometry.blocks_per_segment();
        superblock.set_free_blocks(segments.header.clean.saturating_mul(per_segment));
        let ifile_blocks = checkpoint.ifile.sectors / (block_bytes as u64 / 512);
        let identity = superblock.uuid().as_u64_pair();
        let log = LogState {
            cpfile,
            segments,
            superblocks: Superblocks::new(superblock),
            checkpoint: newest.header.checkpoint.next().unwrap_or(CheckpointNumber::MAX),
            changed_s: root.changed_s,
            file_blocks: checkpoint.blocks.saturating_sub(ifile_blocks),
            has_data_logs: true,
            data_log_blocks: 0,
            dead_blocks: 0,
            futile_until: 0,
            futile_clean: 0,
            has_failed: false,
            left_for_later: HashMap::new(),
        };
        let engine = Engine::new(EngineParts {
            volume,
            dat,
            ifile,
            log,
            is_read_only,
            identity,
            inodes_used: checkpoint.inodes,
        });
        // Everything is found through the root: a volume without one is refused.
        if !engine.inode(InodeNumber::ROOT, 0)?.is_directory() {
            return Err(Error::Mount("the root isn't a directory".to_owned()));
        }
        Ok((engine, work))
    }
}

/// The usable superblocks, the one that counts first.
fn read_superblocks(device: &dyn BlockDevice) -> Result<Vec<Superblock>> {
    let size = device.size_bytes();
    let read = |offset: u64| -> Result<Superblock> {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        device.read_at(offset, &mut bytes)?;
        Ok(Superblock::check(&bytes, size)?)
    };
    let first = read(SUPERBLOCK_OFFSET_BYTES);
    // That of a volume that is smaller than its device can only be found through the first. At the end of
    // the device there may be one of another volume.
    let volume_bytes = first.as_ref().map_or(size, |first| first.geometry().device_bytes());
    let second_offset = second_superblock_offset(volume_bytes);
    let second = read(second_offset).ok().filter(|second| {
        let geometry = second.geometry();
        let is_same = |first: &Superblock| {
            first.uuid() == second.uuid() && first.created_s() == second.created_s()
        };
        geometry.offset_of(geometry.end()) <= second_offset
            && match &first {
                Ok(first) => is_same(first),
                Err(_) => geometry.second_superblock_offset() == second_offset,
            }
    });
    match (first, second) {
        (Ok(first), Some(second)) => {
            let newer = second.cursor().checkpoint > first.cursor().checkpoint;
            Ok(if newer { vec![second, first] } else { vec![first, second] })
        }
        (Ok(first), None) => Ok(vec![first]),
        (Err(error), Some(second)) => {
            tracing::warn!(%error, "the first superblock can't be used");
            Ok(vec![second])
        }
        (Err(error), None) => Err(error),
    }
}

/// Where the next log goes after one.
fn position_behind(volume: &Volume, log: &FoundLog) -> Result<LogPosition> {
    let geometry = &volume.geometry;
    // The header's check has found both in segments.
    match (geometry.segment_of(log.block), geometry.segment_of(log.header.next)) {
        (Some(segment), Some(next)) => Ok(LogPosition {
            segment,
            next,
            block: PhysicalBlock(log.block.0 + u64::from(log.header.blocks)),
            sequence: log.header.sequence,
        }),
        _ => unreachable!("the log's header was checked"),
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests;
