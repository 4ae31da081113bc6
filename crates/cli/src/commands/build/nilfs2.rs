//! Builds a NILFS2 image.

use super::disk::{DiskLayout, MadeDisk, RootContent};
use super::output::BuildOutput;
use super::progress::BuildProgress;
use super::{Arguments, line, print, write_to};
use crate::commands::mkfs::not_made;
use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::interrupt::Interrupt;
use crate::messages::tell;
use drystone::Nilfs2Builder;
use drystone_mkfs::tree::FileTree;
use drystone_sync::clock::Instant;
use serde::Serialize;

/// A build of NILFS2, once its sources are read.
pub struct Nilfs2Build<'a> {
    pub arguments: &'a Arguments,
    pub global: &'a Global,
    pub epoch: Option<u64>,
    pub interrupt: &'a Interrupt,
    pub start: Instant,
    /// Bytes of the device, or of the room for the root on it.
    pub device_bytes: Option<u64>,
    pub disk: Option<DiskLayout<'a>>,
}

impl Nilfs2Build<'_> {
    pub fn run(&self, tree: &FileTree, output: BuildOutput) -> Outcome {
        let Nilfs2Build { arguments, global, interrupt, disk, .. } = self;
        let threads = arguments.input.threads();
        let options = arguments
            .options
            .nilfs2_options(self.device_bytes, self.epoch, threads)
            .map_err(Failure::Usage)?;
        if interrupt.is_asked() {
            return Err(Failure::Code(interrupt.code()));
        }
        let image = &arguments.image;
        let builder = Nilfs2Builder::new(tree, &options);
        let builder = builder.map_err(|error| not_made(image, &error))?;
        if let Some(warning) = builder.warning().filter(|_| !global.quiet) {
            tell(warning);
        }
        let (files, data, image_bytes) =
            (builder.files(), builder.data_bytes(), builder.size_bytes());
        let uuid = builder.options().uuid;
        let (more_files, more_bytes) = disk.as_ref().map_or((0, 0), DiskLayout::files_and_bytes);
        let (all_files, all_data) = (files + more_files, data + more_bytes);
        let progress = BuildProgress::new(global.quiet, all_files, all_data, (*interrupt).clone());
        let is_zeroed = output.is_zeroed();
        let size = disk
            .as_ref()
            .map_or(image_bytes, |disk| disk.size_bytes(image_bytes, output.device_bytes()));
        let disk = write_to(output, image, size, interrupt, |whole, _| {
            let Some(disk) = disk else {
                progress.during(|| builder.write(whole, &progress))?;
                return Ok(None);
            };
            let device = disk.begin(whole, image_bytes, is_zeroed)?;
            progress.during(|| builder.write(&device, &progress))?;
            drop(device);
            let root = RootContent { uuid, image_bytes, all_bytes: image_bytes, hash: None };
            progress.during(|| disk.finish(whole, root, is_zeroed, &progress)).map(Some)
        })?;
        let elapsed = self.start.elapsed();
        let made = builder.options();
        let uuid = made.uuid.to_string();
        if global.json {
            print(
                image,
                &serde_json::to_string(&BuiltNilfs2Json {
                    kind: "nilfs2",
                    size,
                    files,
                    data,
                    seconds: elapsed.as_secs_f64(),
                    uuid,
                    block_size: made.block_bytes,
                    blocks_per_segment: made.blocks_per_segment,
                    disk,
                })?,
            )?;
        } else if !global.quiet {
            let text = line(image, size, files, data, elapsed, &uuid);
            print(image, &(text + &disk.as_ref().map_or(String::new(), MadeDisk::text)))?;
        }
        Ok(())
    }
}

/// What was made, in JSON.
#[derive(Serialize)]
struct BuiltNilfs2Json {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Bytes of the image, or of the disk.
    size: u64,
    files: u64,
    /// Bytes of data that were copied.
    data: u64,
    seconds: f64,
    uuid: String,
    block_size: u32,
    blocks_per_segment: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<MadeDisk>,
}
