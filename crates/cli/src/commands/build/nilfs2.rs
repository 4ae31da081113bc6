//! Building an image of NILFS2.

use super::output::BuildOutput;
use super::progress::BuildProgress;
use super::{Arguments, line, print, write_to};
use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::interrupt::Interrupt;
use crate::messages::tell;
use anyhow::Context;
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
}

impl Nilfs2Build<'_> {
    pub fn run(&self, tree: &FileTree, output: BuildOutput) -> Outcome {
        let Nilfs2Build { arguments, global, interrupt, .. } = self;
        let threads = arguments.input.threads();
        let options = arguments
            .options
            .nilfs2_options(global.read_only, output.device_bytes(), self.epoch, threads)
            .map_err(Failure::Usage)?;
        if interrupt.is_asked() {
            return Err(Failure::Code(interrupt.code()));
        }
        let image = &arguments.image;
        let builder =
            Nilfs2Builder::new(tree, &options).with_context(|| image.display().to_string())?;
        let left_out = builder.nodes_with_xattrs();
        if left_out > 0 && !global.quiet {
            tell(format_args!(
                "the extended attributes of {left_out} files are left out: NILFS2 has none"
            ));
        }
        let (files, data, size) = (builder.files(), builder.data_bytes(), builder.size_bytes());
        let progress = BuildProgress::new(global.quiet, files, data, (*interrupt).clone());
        write_to(output, image, size, interrupt, |device, _| {
            Ok(progress.during(|| builder.write(device, &progress))?)
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
                })?,
            )?;
        } else if !global.quiet {
            print(image, &line(image, size, files, data, elapsed, &uuid))?;
        }
        Ok(())
    }
}

/// What was made, in JSON.
#[derive(Serialize)]
struct BuiltNilfs2Json {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Bytes of the image.
    size: u64,
    files: u64,
    /// Bytes of data that were copied.
    data: u64,
    seconds: f64,
    uuid: String,
    block_size: u32,
    blocks_per_segment: u32,
}
