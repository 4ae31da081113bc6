//! Both superblocks: which is current, and when they are written.

use crate::error::Result;
use crate::volume::Volume;
use drystone_nilfs2_format::SegmentNumber;
use drystone_nilfs2_format::geometry::SUPERBLOCK_OFFSET_BYTES;
use drystone_nilfs2_format::superblock::{LogCursor, Superblock, VolumeState};
use drystone_sync::clock::{self, Instant};

/// A running volume writes a superblock after a log when this has passed since the last time.
const WRITE_INTERVAL_S: u64 = 10;

/// Which of the two superblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuperblockPlace {
    First,
    Second,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Superblocks {
    pub(crate) current: Superblock,
    /// The one that is written next.
    turn: SuperblockPlace,
    written: Instant,
    /// The segment of the log that was newest when one was last written.
    written_in: Option<SegmentNumber>,
}

impl Superblocks {
    pub(crate) fn new(current: Superblock) -> Self {
        let turn = SuperblockPlace::First;
        Self { current, turn, written: clock::now(), written_in: None }
    }

    fn write_at(&mut self, place: SuperblockPlace, volume: &Volume) -> Result<()> {
        let offset = match place {
            SuperblockPlace::First => SUPERBLOCK_OFFSET_BYTES,
            SuperblockPlace::Second => volume.geometry.second_superblock_offset(),
        };
        volume.write_durable_at(offset, &self.current.encode())
    }

    fn note_written(&mut self, volume: &Volume) {
        self.current.set_written_s(volume.wall_s());
        self.written = clock::now();
        self.written_in = volume.geometry.segment_of(self.current.cursor().block);
    }

    /// Writes both.
    pub(crate) fn write_both(&mut self, volume: &Volume) -> Result<()> {
        volume.device.flush()?;
        self.note_written(volume);
        self.write_at(SuperblockPlace::First, volume)?;
        self.write_at(SuperblockPlace::Second, volume)
    }

    /// The volume is mounted for writing: until it is unmounted it isn't clean. The time of the mount is
    /// kept if recovery, which needs it, may have to be done again.
    pub(crate) fn begin_mount(&mut self, volume: &Volume, keeps_time: bool) -> Result<()> {
        let time_s = if keeps_time { self.current.mounted_s() } else { volume.wall_s() };
        self.current.note_mount(time_s);
        self.current.set_state(self.current.state() - VolumeState::CLEAN);
        self.write_both(volume)
    }

    /// Recovery is done. Until a superblock is written, another one would do more than it has to.
    pub(crate) fn end_recovery(&mut self, volume: &Volume) {
        self.current.set_mounted_s(volume.wall_s());
    }

    /// The volume has been unmounted, and everything is in the newest log.
    pub(crate) fn end_mount(&mut self, volume: &Volume) -> Result<()> {
        self.current.set_state(self.current.state() | VolumeState::CLEAN);
        self.write_both(volume)
    }

    /// Whether one is to be written after a log.
    fn is_due(&self, volume: &Volume) -> bool {
        let segment = volume.geometry.segment_of(self.current.cursor().block);
        segment != self.written_in || self.written.elapsed().as_secs() >= WRITE_INTERVAL_S
    }

    /// Notes the newest log, which is durable, and writes the superblock whose turn it is if one is due.
    /// Says whether one was.
    pub(crate) fn note_log(
        &mut self,
        cursor: LogCursor,
        free_blocks: u64,
        volume: &Volume,
    ) -> Result<bool> {
        self.current.set_cursor(cursor);
        self.current.set_free_blocks(free_blocks);
        if !self.is_due(volume) {
            return Ok(false);
        }
        self.note_written(volume);
        let place = self.turn;
        self.turn = match place {
            SuperblockPlace::First => SuperblockPlace::Second,
            SuperblockPlace::Second => SuperblockPlace::First,
        };
        self.write_at(place, volume)?;
        Ok(true)
    }
}
