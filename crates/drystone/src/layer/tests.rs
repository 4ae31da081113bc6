//! What a layer has in it, and that no program takes one that was given up for a whole one.

use super::*;
use crate::{CreateOptions, Image};
use drystone_sync::atomic::{AtomicU64, Ordering};
use std::process::{Command, Stdio};

/// Asks for the end when it has been asked so many times whether it does.
struct CancelAfter(AtomicU64);

impl CopyMonitor for CancelAfter {
    fn problem(&self, problem: &CopyProblem) {
        panic!("{problem}");
    }

    fn is_cancelled(&self) -> bool {
        let left = |left: u64| Some(left.saturating_sub(1));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left) == Ok(0)
    }
}

/// A tree at `/old` and what became of it at `/new`, with the same times.
fn changed() -> Image {
    let image = Image::in_memory(&CreateOptions::new(16 << 20)).unwrap();
    let fs = image.fs();
    fs.create_dir_all("/old/d/kept").unwrap();
    fs.create_dir_all("/old/emptied/below").unwrap();
    fs.create_dir_all("/old/same/same").unwrap();
    for name in ["a", "d/gone", "d/stays", "emptied/x", "same/same/f", "becomes-directory"] {
        fs.write(format!("/old/{name}"), name).unwrap();
    }
    fs.hard_link("/old/a", "/old/d/kept/other-a").unwrap();
    let copied = tempfile::tempdir().unwrap();
    fs.copy_out("/old", copied.path().join("t")).unwrap();
    fs.copy_in(copied.path().join("t"), "/new").unwrap();
    fs.write("/new/a", "b").unwrap();
    fs.remove_file("/new/d/gone").unwrap();
    fs.remove_dir_all("/new/emptied/below").unwrap();
    fs.remove_file("/new/emptied/x").unwrap();
    fs.write("/new/emptied/y", "").unwrap();
    fs.remove_file("/new/becomes-directory").unwrap();
    fs.create_dir_all("/new/becomes-directory/deep").unwrap();
    fs.write("/new/becomes-directory/deep/f", vec![5; 3 << 20]).unwrap();
    image
}

fn write(image: &Image, monitor: &dyn CopyMonitor, threads: usize) -> (bool, Vec<u8>) {
    let fs = image.fs();
    let options = CopyOptions { threads, ..CopyOptions::default() };
    let places = ((&fs, Path::new("/old")), (&fs, Path::new("/new")));
    let layer = Layer::new(places.0, places.1, &options, monitor).unwrap();
    let mut out = Vec::new();
    let written = layer.write(&fs, &mut out, &options, monitor);
    if let Err(problem) = &written {
        assert!(problem.is_cut_short(), "{problem}");
    }
    (written.is_ok(), out)
}

/// What `tar` lists; none if it doesn't take it for an archive.
fn listed(archive: &[u8]) -> Option<String> {
    let mut tar = Command::new("tar");
    let tar = tar.args(["-tf", "-"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut tar = tar.stdin(Stdio::piped()).spawn().unwrap();
    // It ends as soon as it has seen enough.
    let _ = tar.stdin.take().unwrap().write_all(archive);
    let output = tar.wait_with_output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_layer_has_what_changed_and_nothing_else() {
    // A copy of another user has other owners.
    if !drystone_testkit::skip::is_root("a copy with the same owners") {
        return;
    }
    let image = changed();
    let never = CancelAfter(AtomicU64::new(u64::MAX));
    let (_, layer) = write(&image, &never, 1);
    let names = listed(&layer).unwrap();
    let expected = "./ ./a ./becomes-directory/ ./becomes-directory/deep/ ./becomes-directory/deep/f \
        ./d/ ./d/.wh.gone ./d/kept/ ./d/kept/other-a ./emptied/ ./emptied/.wh..wh..opq ./emptied/y";
    assert_eq!(names.split_whitespace().collect::<Vec<_>>().join(" "), expected);
    for threads in [2, 8] {
        assert!(write(&image, &never, threads).1 == layer);
    }
}

#[test]
fn a_layer_that_is_given_up_is_no_whole_archive() {
    let image = changed();
    for patience in 0.. {
        let (is_whole, out) = write(&image, &CancelAfter(AtomicU64::new(patience)), 1);
        assert_eq!(listed(&out).is_some(), is_whole, "patience {patience}: {} bytes", out.len());
        if is_whole {
            assert!(patience > 8, "{patience}");
            break;
        }
    }
}

#[test]
fn what_no_layer_can_say_is_told() {
    let image = Image::in_memory(&CreateOptions::new(8 << 20)).unwrap();
    let fs = image.fs();
    for path in ["/old/d", "/new/d"] {
        fs.create_dir_all(path).unwrap();
        fs.write(format!("{path}/f"), "").unwrap();
    }
    fs.write("/old/d/.wh.gone", "").unwrap();
    fs.write("/new/d/.wh.added", "").unwrap();
    struct Told(AtomicU64);
    impl CopyMonitor for Told {
        fn problem(&self, problem: &CopyProblem) {
            assert!(problem.to_string().contains("begins with '.wh.'"), "{problem}");
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (told, options) = (Told(AtomicU64::new(0)), CopyOptions::default());
    let places = ((&fs, Path::new("/old")), (&fs, Path::new("/new")));
    let layer = Layer::new(places.0, places.1, &options, &told).unwrap();
    let summary = layer.write(&fs, &mut Vec::new(), &options, &told).unwrap();
    assert_eq!((summary.failed, told.0.load(Ordering::Relaxed)), (2, 2));
    let file = (&fs, Path::new("/new/d/f"));
    assert!(Layer::new(places.0, file, &options, &told).is_err());
    assert!(Layer::new(file, places.1, &options, &told).is_err());
    let user = fs.as_user(5, 5, &[]);
    assert!(Layer::new(places.0, (&user, Path::new("/new")), &options, &told).is_err());
}
