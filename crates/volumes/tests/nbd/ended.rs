//! What becomes of a volume when its server or a connection ends.

use super::*;

/// A server that forgets all that isn't flushed gets it again.
#[test]
fn unflushed_changes_are_sent_again() {
    let scratch = Scratch::new("nbd-restart").unwrap();
    let mut server = NbdServer::nbdkit(scratch.join("socket"), "memory 8M");
    let device = open_server(&server, "").unwrap();
    let mut model = vec![0; DISK_BYTES];
    for round in 0..5_u8 {
        for at in 0..64 {
            let range = at * 100_000 + usize::from(round) * 30_000..at * 100_000 + 95_000;
            if range.is_empty() {
                continue;
            }
            model[range.clone()].fill(round * 50 + at as u8);
            match at % 3 {
                0 => device.write_durable_at(range.start as u64, &model[range]).unwrap(),
                _ => device.write_at(range.start as u64, &model[range]).unwrap(),
            }
        }
        server.kill();
        server = NbdServer::nbdkit(server.socket.clone(), "memory 8M");
        expect(&*device, &model, 0);
    }
}

/// The server is killed again and again while several threads write.
#[test]
fn a_server_that_is_killed_loses_nothing() {
    killed_while_written("file");
}

/// The same, and it forgets each time what wasn't flushed.
#[test]
fn a_server_that_is_killed_and_forgets_loses_nothing() {
    killed_while_written("--filter=cache file cache=writeback");
}

fn killed_while_written(server: &str) {
    let scratch = Scratch::new("nbd-killed").unwrap();
    let image = scratch.join("image");
    std::fs::write(&image, vec![0; DISK_BYTES]).unwrap();
    let arguments = format!("{server} {}", image.display());
    let mut server = NbdServer::nbdkit(scratch.join("socket"), &arguments);
    let device = open_server(&server, "&connections=3").unwrap();
    let is_over = AtomicBool::new(false);
    let mut models: Vec<Vec<u8>> = vec![vec![0; DISK_BYTES / 4]; 4];
    thread::scope(|scope| {
        for (number, model) in models.iter_mut().enumerate() {
            let (device, is_over) = (&device, &is_over);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(number as u64);
                while !is_over.load(Ordering::Relaxed) {
                    let offset = random.usize(..model.len() - 5000);
                    let range = offset..offset + random.usize(1..5000);
                    model[range.clone()].fill(random.u8(..));
                    let at = (number * DISK_BYTES / 4 + offset) as u64;
                    device.write_at(at, &model[range.clone()]).unwrap();
                    expect(&**device, &model[range], at as usize);
                    if random.u8(..10) == 0 {
                        device.flush().unwrap();
                    }
                }
            });
        }
        for _ in 0..number("DRYSTONE_KILLS").unwrap_or(5) {
            thread::sleep(Duration::from_millis(100));
            server.kill();
            server = NbdServer::nbdkit(server.socket.clone(), &arguments);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    device.flush().unwrap();
    assert!(std::fs::read(&image).unwrap() == models.concat());
}

/// Passes bytes on in both directions, and cuts each connection after a number of them.
fn cutting_proxy(listener: UnixListener, server: PathBuf, mut random: fastrand::Rng) {
    for client in listener.incoming() {
        let Ok(client) = client else { return };
        let Ok(server) = UnixStream::connect(&server) else { return };
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            // The handshake has some 200 bytes.
            let bits = random.u32(5..21);
            let mut left = 1 + random.usize(..1 << bits);
            thread::spawn("proxy", move || {
                let mut bytes = vec![0; 4096];
                while left > 0
                    && let Ok(length) = from.read(&mut bytes)
                    && length > 0
                {
                    let length = length.min(left);
                    left -= length;
                    if to.write_all(&bytes[..length]).is_err() {
                        break;
                    }
                }
                let _ = from.shutdown(std::net::Shutdown::Both);
                let _ = to.shutdown(std::net::Shutdown::Both);
            })
            .unwrap();
        }
    }
}

#[test]
fn a_connection_may_be_cut_at_any_byte() {
    cut_at_any_byte("memory 8M", "nbd+unix", "");
}

/// Cuts connections to nbdkit, with these arguments, that an address with this scheme and these words makes.
pub(super) fn cut_at_any_byte(arguments: &str, scheme: &str, words: &str) {
    let scratch = Scratch::new("nbd-cut").unwrap();
    let server = NbdServer::nbdkit(scratch.join("socket"), arguments);
    let listener = UnixListener::bind(scratch.join("proxy")).unwrap();
    let target = server.socket.clone();
    thread::spawn("proxy", move || {
        cutting_proxy(listener, target, fastrand::Rng::with_seed(4));
    })
    .unwrap();
    let start = clock::now();
    let address =
        |socket: &str| format!("{scheme}:///?socket={}{words}", scratch.join(socket).display());
    let device = loop {
        let name = format!("{}&connections=2&timeout=5", address("proxy"));
        if let Ok(device) = open_address(&name, OpenMode::ReadWrite) {
            break device;
        }
        assert!(start.elapsed() < Duration::from_secs(20));
    };
    let mut model = vec![0; DISK_BYTES];
    let mut random = fastrand::Rng::with_seed(5);
    for step in 0..50 {
        let offset = random.usize(..DISK_BYTES - 9000);
        let range = offset..offset + random.usize(1..9000);
        model[range.clone()].fill(random.u8(..));
        device.write_at(offset as u64, &model[range.clone()]).unwrap();
        expect(&*device, &model[range], offset);
        if step % 10 == 0 {
            device.flush().unwrap();
        }
    }
    expect(&*open_address(&address("socket"), OpenMode::ReadOnly).unwrap(), &model, 0);
    drop(server);
}

/// A server that is to end waits for its clients.
#[test]
fn a_server_that_ends_is_used_to_the_end() {
    let scratch = Scratch::new("nbd-exit").unwrap();
    let trigger = scratch.join("trigger");
    let arguments = format!(
        "--filter=exitwhen memory 8M exit-when-file-created={} exit-when-poll=1",
        trigger.display()
    );
    let mut server = NbdServer::nbdkit(scratch.join("socket"), &arguments);
    let device = open_server(&server, "").unwrap();
    std::fs::write(trigger, "").unwrap();
    thread::sleep(Duration::from_secs(2));
    change(&*device, &mut vec![0; DISK_BYTES], 6, 20);
    device.flush().unwrap();
    drop(device);
    assert!(server.ended());
    let error = open_server(&server, "&reconnect=0").unwrap_err().to_string();
    assert!(error.contains("refused") || error.contains("No such file"), "{error}");
}

/// After the time limit there is an error, and for good.
#[test]
fn waiting_has_an_end() {
    let scratch = Scratch::new("nbd-limit").unwrap();
    let mut server = NbdServer::nbdkit(scratch.join("socket"), "memory 8M");
    let device = open_server(&server, "&reconnect=1").unwrap();
    device.write_at(0, &[1; 4096]).unwrap();
    server.kill();
    let start = clock::now();
    let error = device.read_at(0, &mut [0; 512]).unwrap_err().to_string();
    assert!(error.contains("no connection to the server for 1 s"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
    let server = NbdServer::nbdkit(server.socket.clone(), "memory 8M");
    device.flush().unwrap_err();
    device.write_at(0, &[1; 4096]).unwrap_err();
    drop(device);
    // A server that takes connections, and answers nothing.
    drop(server);
    let server = NbdServer::nbdkit(scratch.join("slow"), "--filter=delay memory 8M rdelay=20");
    let device = open_server(&server, "&timeout=1&reconnect=2").unwrap();
    let start = clock::now();
    let error = device.read_at(0, &mut [0; 512]).unwrap_err().to_string();
    assert!(error.contains("the server doesn't answer"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10));
}

/// Where nothing is written, nothing is lost: a server that comes back is read again.
#[test]
fn a_reader_outlives_an_outage() {
    let scratch = Scratch::new("nbd-outage").unwrap();
    let mut server = NbdServer::nbdkit(scratch.join("socket"), "memory 8M");
    let device = open(&server.socket, "&reconnect=2", OpenMode::ReadOnly).unwrap();
    server.kill();
    let start = clock::now();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| device.read_at(0, &mut [0; 512]).unwrap_err());
        }
    });
    // All wait for one attempt, and later ones only look whether the server is there.
    device.read_at(0, &mut [0; 512]).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    let _server = NbdServer::nbdkit(server.socket.clone(), "memory 8M");
    expect(&*device, &[0; 4096], 0);
}

/// A limit of zero is for one try.
#[test]
fn one_try_finds_a_server_that_is_back() {
    let scratch = Scratch::new("nbd-one-try").unwrap();
    let mut server = NbdServer::nbdkit(scratch.join("socket"), "memory 8M");
    let device = open_server(&server, "&reconnect=0").unwrap();
    device.write_at(0, &[1; 4096]).unwrap();
    server.kill();
    let mut server = NbdServer::nbdkit(server.socket.clone(), "memory 8M");
    expect(&*device, &[1; 4096], 0);
    server.kill();
    let error = device.read_at(0, &mut [0; 512]).unwrap_err().to_string();
    assert!(error.contains("no connection to the server for 0 s"), "{error}");
}

/// A server that comes back with another disk isn't written.
#[test]
fn another_disk_is_not_taken() {
    let scratch = Scratch::new("nbd-other").unwrap();
    let mut server = NbdServer::nbdkit(scratch.join("socket"), "memory 8M");
    let device = open_server(&server, "").unwrap();
    server.kill();
    let _server = NbdServer::nbdkit(server.socket.clone(), "memory 16M");
    let error = device.write_at(0, &[1; 4096]).unwrap_err().to_string();
    assert!(error.contains("another size"), "{error}");
}
