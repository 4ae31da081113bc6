//! Volumes behind servers: what their names look like, and how they are opened.

use crate::nbd::{self, NbdAddress, NbdDevice};
use drystone_blockdev::{BlockDevice, DeviceResult, OpenMode};
use drystone_rbd::{RbdAddress, RbdDevice};
use drystone_sync::Arc;

/// Whether a name is one of a volume behind a server.
pub(crate) fn is_address(name: &[u8]) -> bool {
    nbd::is_address(name) || RbdAddress::is_address(name)
}

/// How many bytes of an address can't belong to what follows it.
pub(crate) fn base_length(address: &[u8]) -> usize {
    if RbdAddress::is_address(address) { RbdAddress::base_length(address) } else { 0 }
}

/// Opens a volume as it is named.
pub(crate) fn open(address: &str, mode: OpenMode) -> DeviceResult<Arc<dyn BlockDevice>> {
    Ok(match RbdAddress::is_address(address.as_bytes()) {
        true => Arc::new(RbdDevice::open(address, mode)?),
        false => Arc::new(NbdDevice::open(address, mode)?),
    })
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
