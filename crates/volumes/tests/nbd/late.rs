//! What becomes of changes that a server carries out late, or never.

use super::*;

/// A server that is a shell script and changes a file. A write stalls as long as there is a file `stall` in the
/// folder, and says in a file `stalled` that it does.
fn script(folder: &Path, has_flush: bool) -> String {
    let (path, folder) = (folder.join("script"), folder.display());
    let flush = if has_flush { 0 } else { 3 };
    let text = format!(
        "#!/bin/sh
case \"$1\" in
get_size) echo 8M;;
thread_model) echo parallel;;
can_write | can_multi_conn | flush) exit 0;;
can_flush) exit {flush};;
pread) dd if={folder}/image iflag=skip_bytes,count_bytes,fullblock skip=$4 count=$3 status=none;;
pwrite)
    cat >{folder}/write.$$
    while [ -e {folder}/stall ]; do touch {folder}/stalled; sleep 0.05; done
    dd if={folder}/write.$$ of={folder}/image oflag=seek_bytes conv=notrunc seek=$4 status=none
    rm -f {folder}/stalled;;
*) exit 2;;
esac
"
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    format!("sh {}", path.display())
}

fn wait_for(path: &Path, is_there: bool) {
    let start = clock::now();
    while path.exists() != is_there {
        assert!(start.elapsed() < Duration::from_secs(20), "{}", path.display());
        thread::sleep(Duration::from_millis(5));
    }
}

/// A write that times out is carried out before it is sent again, or the volume isn't written any more. Otherwise
/// it would, in the end, replace what was written and flushed after it.
#[test]
fn a_stalled_write_replaces_no_later_one() {
    let scratch = Scratch::new("nbd-stalled").unwrap();
    let (image, stall) = (scratch.join("image"), scratch.join("stall"));
    let stalled = scratch.join("stalled");
    std::fs::write(&image, vec![0; DISK_BYTES]).unwrap();
    let arguments = script(&scratch.join(""), true);
    let server = NbdServer::nbdkit(scratch.join("socket"), &arguments);
    let device = open_server(&server, "&timeout=1&reconnect=20").unwrap();
    std::fs::write(&stall, "").unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| device.write_at(0, &[1; 4096]));
        wait_for(&stalled, true);
        thread::sleep(Duration::from_millis(2500));
        let is_sent_again = writer.is_finished();
        // A second copy waits as well, if there is one.
        std::fs::remove_file(&stall).unwrap();
        writer.join().unwrap().unwrap();
        assert!(!is_sent_again);
    });
    device.write_at(0, &[2; 4096]).unwrap();
    device.flush().unwrap();
    wait_for(&stalled, false);
    assert_eq!(std::fs::read(&image).unwrap()[..4096], [2; 4096]);

    drop(device);
    let device = open_server(&server, "&timeout=1&reconnect=1").unwrap();
    std::fs::write(&stall, "").unwrap();
    let start = clock::now();
    let error = device.write_at(0, &[3; 4096]).unwrap_err().to_string();
    assert!(error.contains("may still carry out"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    std::fs::remove_file(&stall).unwrap();
    wait_for(&stalled, false);
    device.write_at(0, &[4; 4096]).unwrap_err();
}

/// A server that comes back slow is waited for no longer than one that doesn't come back.
#[test]
fn bringing_a_server_up_to_date_has_an_end() {
    let scratch = Scratch::new("nbd-slow-return").unwrap();
    let mut server = NbdServer::nbdkit(scratch.join("socket"), "memory 8M");
    let device = open_server(&server, "&timeout=5&reconnect=3").unwrap();
    (0..1000).for_each(|block| device.write_at(block * 8192, &[1; 4096]).unwrap());
    server.kill();
    let slow = "--filter=delay memory 8M wdelay=1";
    let _server = NbdServer::nbdkit(server.socket.clone(), slow);
    let start = clock::now();
    device.read_at(0, &mut [0; 512]).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

/// Changes are sent again side by side, as they were the first time.
#[test]
fn changes_sent_again_do_not_wait_for_each_other() {
    let scratch = Scratch::new("nbd-replay").unwrap();
    let mut server = NbdServer::nbdkit(scratch.join("socket"), "memory 8M");
    let device = open_server(&server, "").unwrap();
    let mut model = vec![0; DISK_BYTES];
    for block in 0..1000 {
        let range = block * 8192..block * 8192 + 4096;
        model[range.clone()].fill(block as u8);
        device.write_at(range.start as u64, &model[range]).unwrap();
    }
    server.kill();
    let slow = "--filter=delay memory 8M wdelay=50ms";
    let _server = NbdServer::nbdkit(server.socket.clone(), slow);
    let start = clock::now();
    expect(&*device, &model, 0);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

/// What a server without flush says was written may be lost with it all the same.
#[test]
fn a_server_without_flush_gets_the_last_changes_again() {
    let scratch = Scratch::new("nbd-no-flush").unwrap();
    let image = scratch.join("image");
    std::fs::write(&image, vec![0; DISK_BYTES]).unwrap();
    let arguments = script(&scratch.join(""), false);
    let mut server = NbdServer::nbdkit(scratch.join("socket"), &arguments);
    let device = open_server(&server, "").unwrap();
    device.write_at(0, &[1; 4096]).unwrap();
    device.flush().unwrap();
    server.kill();
    std::fs::write(&image, vec![0; DISK_BYTES]).unwrap();
    let _server = NbdServer::nbdkit(server.socket.clone(), &arguments);
    expect(&*device, &[1; 4096], 0);
}
