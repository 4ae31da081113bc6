//! TLS with nbdkit(1) and qemu-nbd(8).

use super::*;

/// A folder with an authority, and certificates of it for a server at `localhost` and for a client.
fn certificates(scratch: &Scratch, name: &str) -> PathBuf {
    let folder = scratch.join(name);
    std::fs::create_dir(&folder).unwrap();
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        command.args(arguments.split_whitespace()).current_dir(&folder);
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 2";
    openssl(&format!("req -x509 {key} -keyout ca-key.pem -out ca-cert.pem -subj /CN={name}"));
    for (role, host) in [("server", "localhost"), ("client", "client")] {
        openssl(&format!(
            "req -x509 {key} -CA ca-cert.pem -CAkey ca-key.pem -keyout {role}-key.pem \
             -out {role}-cert.pem -subj /CN={host} -addext subjectAltName=DNS:{host} \
             -addext basicConstraints=critical,CA:FALSE"
        ));
    }
    folder
}

/// Encrypted connections carry the same as plain ones, and only between those who trust each other.
#[test]
fn connections_are_encrypted() {
    let scratch = Scratch::new("nbd-tls").unwrap();
    let socket = scratch.join("socket");
    let (ours, others) = (certificates(&scratch, "ours"), certificates(&scratch, "others"));
    let bare = scratch.join("bare");
    std::fs::create_dir(&bare).unwrap();
    std::fs::copy(ours.join("ca-cert.pem"), bare.join("ca-cert.pem")).unwrap();
    let open = |words: &str| {
        let name = format!("nbds+unix:///?socket={}{words}", socket.display());
        open_as_named(&VolumeName::find(Path::new(&name)).unwrap(), OpenMode::ReadWrite)
    };
    let trusting = |folder: &Path| format!("&timeout=20&tls-certificates={}", folder.display());
    let expect_error = |words: &str, expected: &str| {
        let error = open(words).unwrap_err().to_string();
        assert!(error.contains(expected), "{words}: {error}");
    };

    let folder = ours.display();
    let nbdkit = format!("--tls=require --tls-certificates={folder} --tls-verify-peer memory 8M");
    let server = NbdServer::nbdkit(socket.clone(), &nbdkit);
    let device = open(&trusting(&ours)).unwrap();
    change(&*device, &mut vec![0; DISK_BYTES], 3, 150);
    drop(device);
    expect_error(&trusting(&others), "UnknownIssuer");
    expect_error(&format!("{}&tls-hostname=elsewhere", trusting(&ours)), "elsewhere");
    expect_error(&trusting(&bare), "it may want a certificate of ours");
    expect_error(&trusting(Path::new("/nowhere")), "/nowhere/ca-cert.pem");
    let error = open_server(&server, "").unwrap_err().to_string();
    assert!(error.contains("insists on TLS: an address with nbds:"), "{error}");
    drop(server);

    let server = NbdServer::nbdkit(socket.clone(), "--tls=off memory 8M");
    expect_error(&trusting(&ours), "offers no TLS");
    drop(server);

    let image = scratch.join("image");
    std::fs::write(&image, vec![0; DISK_BYTES]).unwrap();
    let qemu = format!(
        "-f raw --object tls-creds-x509,id=tls,endpoint=server,dir={folder},verify-peer=no \
         --tls-creds tls"
    );
    let server = NbdServer::qemu(socket.clone(), &qemu, &image);
    change(&*open(&trusting(&bare)).unwrap(), &mut vec![0; DISK_BYTES], 4, 150);
    drop(server);
}
