//! An image that stays claimed while a program works on it without a mount.

use super::{MmpShared, find, pause_on};
use crate::error::Result;
use drystone_blockdev::{BlockDevice, DeviceError, DeviceOperation, DeviceResult};
use drystone_sync::thread;

/// Runs `body` on an image that is claimed meanwhile, if it has multi-mount protection. The claim is renewed once an
/// interval; changes of the device that `body` gets fail from the renewal on that finds another machine's claim.
///
/// # Errors
/// [`Error::Mount`](crate::Error::Mount) if the image is in use, or another machine has claimed it meanwhile;
/// otherwise the device failed.
pub fn while_claimed<T>(
    device: &dyn BlockDevice,
    body: impl FnOnce(&dyn BlockDevice) -> T,
) -> Result<T> {
    let Some((place, interval_seconds)) = find(device)? else { return Ok(body(device)) };
    let sequence = place.claim(interval_seconds, pause_on(device))?;
    let shared = MmpShared::new(place);
    let done = thread::scope(|scope| {
        scope.spawn(|| shared.beat(interval_seconds, sequence));
        let _end = EndBeat(&shared);
        body(&ClaimedDevice { shared: &shared })
    });
    shared.check_held()?;
    shared.give_back()?;
    Ok(done)
}

type Shared<'d> = MmpShared<&'d dyn BlockDevice>;

/// Ends the writer of the block, also for a panic.
struct EndBeat<'a, 'd>(&'a Shared<'d>);

impl Drop for EndBeat<'_, '_> {
    fn drop(&mut self) {
        self.0.end_beat();
    }
}

/// A device with a claimed image.
#[derive(Debug)]
struct ClaimedDevice<'a, 'd> {
    shared: &'a Shared<'d>,
}

impl<'d> ClaimedDevice<'_, 'd> {
    fn device(&self) -> &'d dyn BlockDevice {
        self.shared.place.device
    }

    fn writable(&self, offset: u64, length: u64) -> DeviceResult<&'d dyn BlockDevice> {
        let lost = |error| {
            let source = std::io::Error::other(error);
            DeviceError::io(DeviceOperation::Write, offset, length, source)
        };
        self.shared.check_held().map_err(lost)?;
        Ok(self.device())
    }
}

impl BlockDevice for ClaimedDevice<'_, '_> {
    fn size_bytes(&self) -> u64 {
        self.device().size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.device().read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.writable(offset, data.len() as u64)?.write_at(offset, data)
    }

    fn flush(&self) -> DeviceResult {
        self.device().flush()
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        self.writable(offset, length)?.discard(offset, length)
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.writable(offset, length)?.zero_range(offset, length)
    }

    fn refresh(&self, offset: u64, length: u64) {
        self.device().refresh(offset, length);
    }

    fn next_data(&self, offset: u64) -> DeviceResult<Option<u64>> {
        self.device().next_data(offset)
    }

    fn is_read_only(&self) -> bool {
        self.device().is_read_only()
    }

    fn is_private(&self) -> bool {
        self.device().is_private()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::tests::image;
    use super::*;
    use crate::Error;
    use drystone_ext4_format::mmp::MmpState;
    use drystone_sync::clock;
    use std::time::Duration;

    #[test]
    fn an_image_is_claimed_while_it_is_worked_on() {
        let Some((device, place)) = image() else { return };
        let state = || place.read().unwrap().state;
        let zero = |device: &dyn BlockDevice| device.zero_range(8 << 20, 1024);
        while_claimed(&*device, |claimed| {
            assert!(matches!(state(), MmpState::Mounted(_)));
            zero(claimed).unwrap();
        })
        .unwrap();
        assert_eq!(state(), MmpState::Clean);
        // Another machine claims it all the same.
        let lost = while_claimed(&*device, |claimed| {
            place.write(MmpState::Mounted(7), 5).unwrap();
            let start = clock::now();
            while zero(claimed).is_ok() {
                assert!(start.elapsed() < Duration::from_secs(60), "the loss isn't noticed");
                thread::sleep(Duration::from_millis(10));
            }
        });
        assert!(matches!(lost, Err(Error::Mount(_))));
        assert_eq!(state(), MmpState::Mounted(7));
        place.write(MmpState::Checking, 5).unwrap();
        assert!(matches!(while_claimed(&*device, |_| ()), Err(Error::Mount(_))));
    }
}
