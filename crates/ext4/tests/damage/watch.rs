//! Checks that no case hangs, takes too much memory, or makes a thread panic.

use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::clock::{self, Instant};
use drystone_sync::{LazyLock, LockClass, Mutex, thread};
use peak_alloc::PeakAlloc;
use std::time::Duration;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

static CASE: LockClass = LockClass::new("damage case", u16::MAX);

/// The running case, and when it started.
static RUNNING: LazyLock<Mutex<Option<(String, Instant)>>> =
    LazyLock::new(|| Mutex::new(&CASE, None));

static PANICKED: AtomicBool = AtomicBool::new(false);
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A case may take this long on a busy machine, in a build without optimisation.
const CASE_DURATION_MAX: Duration = Duration::from_secs(40);

/// Memory that a case may take beyond twice the image: caches, buffers, tables by group.
const CASE_BYTES_MAX: usize = 48 << 20;

fn label() -> String {
    let running = RUNNING.lock();
    running.as_ref().map(|(label, _)| label.clone()).unwrap_or_default()
}

/// The right to run cases. One test has it at a time, because memory is measured. It is not a lock,
/// which would add a rank to the locks under test.
pub struct Watch(());

impl Watch {
    pub fn start() -> Watch {
        static INSTALLED: LazyLock<()> = LazyLock::new(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |information| {
                PANICKED.store(true, Ordering::SeqCst);
                let label = RUNNING.try_lock().and_then(|running| running.clone());
                eprintln!(
                    "damage: panic in case {}",
                    label.map(|(text, _)| text).unwrap_or_default()
                );
                before(information);
            }));
            let watch = thread::spawn("damage-watch", || {
                loop {
                    thread::sleep(Duration::from_secs(1));
                    let started = RUNNING.lock().as_ref().map(|(_, started)| *started);
                    if started.is_some_and(|started| started.elapsed() > CASE_DURATION_MAX) {
                        eprintln!("damage: case {} does not end", label());
                        std::process::abort();
                    }
                }
            });
            drop(watch);
        });
        while TAKEN.swap(true, Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(20));
        }
        LazyLock::force(&INSTALLED);
        Watch(())
    }

    /// Runs a case.
    pub fn case<T>(&self, label: &str, image_bytes: usize, body: impl FnOnce() -> T) -> T {
        if std::env::var_os("DRYSTONE_DAMAGE_VERBOSE").is_some() {
            eprintln!("case {label}");
        }
        *RUNNING.lock() = Some((label.to_owned(), clock::now()));
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let result = body();
        let taken = MEMORY.peak_usage().saturating_sub(before);
        // Another thread may have panicked without failing the test.
        assert!(!PANICKED.load(Ordering::SeqCst), "case {label}: a thread panicked");
        *RUNNING.lock() = None;
        let limit = 2 * image_bytes + CASE_BYTES_MAX;
        assert!(taken <= limit, "case {label}: took {taken} bytes of memory, limit {limit}");
        result
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        PANICKED.store(false, Ordering::SeqCst);
        TAKEN.store(false, Ordering::SeqCst);
    }
}
