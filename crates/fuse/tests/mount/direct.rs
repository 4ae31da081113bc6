//! Direct writes that a program doesn't wait for, beside what is in the page cache.

use crate::support::{Mounted, have, run};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{clock, thread};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Asynchronous requests in Python: `call` with 0 to 2 for `io_setup`, `io_submit` and
/// `io_getevents`, and `block` for a write.
const ASYNCHRONOUS: &str = "
import ctypes, itertools, mmap, os, platform, signal, struct
calls = {'x86_64': (206, 209, 208), 'aarch64': (0, 2, 4)}.get(platform.machine())
if calls is None:
    raise SystemExit(0)
system = ctypes.CDLL(None, use_errno=True).syscall
def call(number, *arguments):
    done = system(ctypes.c_long(calls[number]), *arguments)
    assert done >= 0, os.strerror(ctypes.get_errno())
    return done
def block(file, address, length, at):
    packed = struct.pack('<QIIHhIQQqQII', 0, 0, 0, 1, 0, file, address, length, at, 0, 0, 0)
    return ctypes.create_string_buffer(packed, 64)
";

/// How long something that takes a second may take on a busy machine.
const HANGS_AFTER: Duration = Duration::from_secs(90);

/// The kernel doesn't drop by itself what others read through the cache during an asynchronous
/// direct write.
pub fn direct_writes_outdate_what_is_cached(mounted: &Mounted) {
    fs::write(mounted.path("f"), vec![0; 4 << 20]).unwrap();
    let script = "
context = ctypes.c_ulong()
call(0, ctypes.c_uint(8), ctypes.byref(context))
direct = os.open('f', os.O_RDWR | os.O_DIRECT)
cached = os.open('f', os.O_RDONLY)
# Several requests, of which the last is served last.
length, last = 4 << 20, (4 << 20) - 4096
page = mmap.mmap(-1, length)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
readers = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        while True:
            os.pread(cached, 4096, last)
    readers.append(child)
try:
    for step in range(1, 60):
        page[:] = bytes([step]) * length
        write = block(direct, address, length, 0)
        blocks = (ctypes.c_void_p * 1)(ctypes.addressof(write))
        call(1, context, ctypes.c_long(1), blocks)
        event = ctypes.create_string_buffer(32)
        call(2, context, ctypes.c_long(1), ctypes.c_long(1), event, None)
        assert struct.unpack('<QQqq', event.raw)[2] == length
        assert os.pread(cached, 4096, last)[0] == step, f'stale at step {step}'
finally:
    for child in readers:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
";
    if have("python3") {
        run("python3", &["-c", &[ASYNCHRONOUS, script].concat()], &mounted.root());
    }
}

/// Far more asynchronous direct writes than the kernel sends at a time, beside programs that read and
/// write the same pages through the cache: to drop those pages the kernel has to send requests that
/// queue behind the writes.
pub fn direct_and_cached_writes_dont_wait_for_each_other(mounted: &Mounted) {
    let script = "
depth, pages = 512, 16
context = ctypes.c_ulong()
call(0, ctypes.c_uint(depth), ctypes.byref(context))
cached = os.open('f', os.O_RDWR | os.O_CREAT)
os.pwrite(cached, bytes(4096 * pages), 0)
os.fsync(cached)
direct = os.open('f', os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
others = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        for at in itertools.cycle(range(0, 4096 * pages, 4096)):
            os.pread(cached, 100, at)
            os.pwrite(cached, b'cached', at)
    others.append(child)
try:
    for _ in range(10):
        writes = [block(direct, address, 4096, i % pages * 4096) for i in range(depth)]
        blocks = (ctypes.c_void_p * depth)(*map(ctypes.addressof, writes))
        sent = 0
        while sent < depth:
            sent += call(1, context, ctypes.c_long(depth - sent), ctypes.byref(blocks, 8 * sent))
        events = ctypes.create_string_buffer(32 * depth)
        call(2, context, ctypes.c_long(depth), ctypes.c_long(depth), events, None)
        for i in range(depth):
            assert struct.unpack_from('<QQqq', events, 32 * i)[2] == 4096
finally:
    for child in others:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
";
    if !have("python3") {
        return;
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = clock::now();
            while !ended.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(20));
                if start.elapsed() > HANGS_AFTER {
                    // Only the end of a mount ends programs that wait for it.
                    let _ = Command::new("umount").arg("-f").arg(mounted.root()).status();
                    thread::sleep(Duration::from_secs(1));
                }
            }
        });
        let _ended = Ended(&ended);
        run("python3", &["-c", &[ASYNCHRONOUS, script].concat()], &mounted.root());
    });
}

/// Reports when it is dropped.
struct Ended<'e>(&'e AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
