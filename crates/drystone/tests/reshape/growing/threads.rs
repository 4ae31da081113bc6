//! Threads that work while the image grows.

use super::{MIB, work};
use crate::support::Sample;
use drystone::Image;
use drystone::reshape::NewSize;
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::thread;
use drystone_testkit::environment::number;
use drystone_testkit::tree::{TreeOptions, TreeSnapshot};

#[test]
fn threads_go_on_while_an_image_grows() {
    let rounds = number("DRYSTONE_GROWTHS").unwrap_or(1);
    for round in 0..rounds {
        for (name, step) in [("default-1k", 3), ("no-journal", 40), ("bigalloc-1k", 20)] {
            let Some(sample) = Sample::new(name, 40) else { return };
            let image = Image::open(sample.path()).unwrap();
            image.fs().write("/read", vec![8; 300_000]).unwrap();
            let has_grown = AtomicBool::new(false);
            thread::scope(|scope| {
                for worker in 0..4 {
                    let (image, sample, has_grown) = (&image, &sample, &has_grown);
                    scope.spawn(move || {
                        for turn in 0.. {
                            work(image, sample, round * 1000 + worker * 100 + turn % 90, 40);
                            if has_grown.load(Ordering::SeqCst) {
                                return;
                            }
                        }
                    });
                }
                let (image, has_grown) = (&image, &has_grown);
                scope.spawn(move || {
                    let mut blocks = 0;
                    while !has_grown.load(Ordering::SeqCst) {
                        let statistics = image.fs().statistics().unwrap();
                        assert!(statistics.blocks >= blocks, "the image has shrunk");
                        blocks = statistics.blocks;
                        assert_eq!(image.fs().read("/read").unwrap(), vec![8; 300_000]);
                        image.fs().read_dir("/").unwrap().for_each(drop);
                    }
                });
                for _ in 0..10 {
                    image.grow(NewSize::More(step * MIB)).unwrap();
                }
                has_grown.store(true, Ordering::SeqCst);
            });
            let options = TreeOptions { times: true, flags: true, ..TreeOptions::default() };
            let tree = TreeSnapshot::read(image.file_system(), "/", &options).unwrap();
            image.close().unwrap();
            sample.judge("grown under load", &tree);
        }
    }
}
