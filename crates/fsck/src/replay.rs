//! stub
use crate::image::{Error, Image};
use crate::report::Reporter;
use drystone_blockdev::BlockDevice;
pub(crate) fn run(
    _: &Image<'_>,
    _: &dyn BlockDevice,
    _: bool,
    _: &mut Reporter<'_>,
) -> Result<bool, Error> {
    Ok(false)
}
