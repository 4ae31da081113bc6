//! `snapshot`: has the storage below an image make a snapshot.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::AtImage;
use std::path::PathBuf;

/// Make a snapshot of an RBD image, mounted or not
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The image may be mounted on any machine, with Drystone: then its files are as after a sync, and changes wait \
until the snapshot is made. Snapshots of other clients of Ceph, such as 'rbd snap create', do the same to a mount. \
Snapshots are read as RBD:POOL/IMAGE@SNAPSHOT, and listed, deleted and cloned with rbd(8).

Examples:
  drystone snapshot rbd:pool/image@monday
  drystone mount rbd:pool/image@monday /mnt")]
pub struct Arguments {
    /// The image and the name of the snapshot.
    #[arg(value_name = "IMAGE@SNAPSHOT")]
    image: PathBuf,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    global.check_may_change()?;
    drystone::snapshot(&arguments.image).at_image(&arguments.image)?;
    Ok(())
}
