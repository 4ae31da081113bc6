//! Volumes behind servers: what their names look like, and how they are opened.

use crate::nbd::{self, NbdAddress, NbdDevice};
use drystone_blockdev::{BlockDevice, DeviceError, DeviceResult, OpenMode};
use drystone_rbd::{RbdAddress, RbdDevice};
use drystone_sync::Arc;
use std::ops::Range;

/// Whether a name is one of a volume behind a server.
pub(crate) fn is_address(name: &[u8]) -> bool {
    nbd::is_address(name) || RbdAddress::is_address(name)
}

/// How many bytes of an address can't belong to what follows it.
pub(crate) fn base_length(address: &[u8]) -> usize {
    if RbdAddress::is_address(address) { RbdAddress::base_length(address) } else { 0 }
}

/// Which part of a volume is used; `None` stands for all of it.
type UsedPart = Option<Range<u64>>;

/// Opens a volume, of which only what `find` finds is used.
pub(crate) fn open<E: From<DeviceError>>(
    address: &str,
    mode: OpenMode,
    find: impl FnOnce(&Arc<dyn BlockDevice>) -> Result<UsedPart, E>,
) -> Result<(Arc<dyn BlockDevice>, UsedPart), E> {
    if RbdAddress::is_address(address.as_bytes()) {
        let whole: Arc<dyn BlockDevice> = Arc::new(RbdDevice::open(address, mode)?);
        let range = find(&whole)?;
        return Ok((whole, range));
    }
    let export = Arc::new(NbdDevice::open(address, mode)?);
    let whole: Arc<dyn BlockDevice> = Arc::clone(&export) as _;
    let range = find(&whole)?;
    export.lock(range.clone().unwrap_or(0..whole.size_bytes()))?;
    Ok((whole, range))
}

/// Opens a volume to look at it, also while another process writes it.
pub(crate) fn open_to_look(address: &str) -> DeviceResult<Arc<dyn BlockDevice>> {
    Ok(match RbdAddress::is_address(address.as_bytes()) {
        true => Arc::new(RbdDevice::open_to_look(address)?),
        false => Arc::new(NbdDevice::open(address, OpenMode::ReadOnly)?),
    })
}

/// One name for all addresses of a volume, as far as addresses tell.
pub(crate) fn volume_name(address: &str) -> String {
    let name = match RbdAddress::is_address(address.as_bytes()) {
        true => RbdAddress::parse(address).map(|address| address.image_name()),
        false => NbdAddress::parse(address).map(|address| address.export_name()),
    };
    name.unwrap_or_else(|_| address.to_owned())
}
