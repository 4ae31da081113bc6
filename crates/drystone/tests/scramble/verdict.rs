//! What the checkers say about an image, without the names in it.

use drystone::fsck::{CheckOptions, check};
use drystone::inspection::{
    InspectedImage, MetadataSummary, ScrambleKey, copy_metadata, copy_scrambled,
};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_testkit::judges::{e2fsck_check, write_image};
use std::path::Path;

/// Copies the metadata of an image twice: as they are, and scrambled.
pub fn copies(
    device: &MemoryDevice,
    seed: u64,
) -> Option<(MemoryDevice, MemoryDevice, MetadataSummary)> {
    let image = InspectedImage::open(device).ok()?;
    let [plain, scrambled] = [(); 2].map(|()| MemoryDevice::new(device.size_bytes()));
    copy_metadata(&image, &plain, &mut |_, _| {}).unwrap();
    let key = ScrambleKey::from_seed(seed);
    let summary = copy_scrambled(&image, &scrambled, key, &mut |_, _| {}).unwrap();
    Some((plain, scrambled, summary))
}

pub fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// The problems that the checker finds: of which kind, and where.
pub fn problems(device: &MemoryDevice) -> Vec<String> {
    let report = match check(device, &CheckOptions::default(), &mut |_| {}) {
        Ok(report) => report,
        Err(error) => {
            return vec![format!("{error:?}").split(['(', ' ']).next().unwrap().to_owned()];
        }
    };
    let problem = |problem: &drystone::fsck::Problem| {
        let mut place = problem.issue.place();
        // Blocks that don't exist are one as good as another.
        place.block = place.block.filter(|block| block.get() << 10 < device.size_bytes());
        format!("{} {place:?}", problem.issue.code())
    };
    let mut problems: Vec<String> = report.problems.iter().map(problem).collect();
    problems.sort();
    problems
}

/// What e2fsck prints, without names and hashes, and its exit code.
pub fn e2fsck(device: &MemoryDevice, image: &Path) -> (i32, Vec<String>) {
    write_image(device, image).unwrap();
    let judged = e2fsck_check(image).unwrap();
    let mut lines: Vec<String> = judged.output.lines().skip(1).map(without_names).collect();
    // The first word of the last line is the label or the file.
    for line in &mut lines {
        if let Some((_, rest)) = line.split_once(": ")
            && (rest.contains("files (") || rest.contains("WARNING"))
        {
            *line = rest.to_owned();
        }
    }
    (judged.code, lines)
}

/// A line without what stands between quotes or after a path's separator, and without long numbers in hexadecimal.
fn without_names(line: &str) -> String {
    let quoted = line.split('\'').step_by(2).collect::<Vec<_>>().join("''");
    let words = quoted.split(' ').map(|word| {
        if word.starts_with('/') || word.starts_with("(/") || word.starts_with("0x") {
            "NAME"
        } else {
            word
        }
    });
    words.collect::<Vec<_>>().join(" ")
}
