//! TLS with nbdkit(1) and qemu-nbd(8).

use super::ended::cut_at_any_byte;
use super::*;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    let output = command.args(arguments.split_whitespace()).current_dir(folder).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {told}");
}

/// A folder with an authority, and certificates of it for a server at `localhost` and for a client.
fn certificates(scratch: &Scratch, name: &str) -> PathBuf {
    let folder = scratch.join(name);
    std::fs::create_dir(&folder).unwrap();
    let openssl = |arguments: &str| openssl(&folder, arguments);
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
        open_address(&name, OpenMode::ReadWrite)
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
    expect_error(&trusting(&bare), "it may want another certificate of ours");
    expect_error(&trusting(Path::new("/nowhere")), "/nowhere/ca-cert.pem");
    let error = open_server(&server, "").unwrap_err().to_string();
    assert!(error.contains("insists on TLS: an address with nbds:"), "{error}");
    drop(server);

    let server = NbdServer::nbdkit(socket.clone(), "--tls=off memory 8M");
    expect_error(&trusting(&ours), "refuses TLS");
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

/// A server whose key was stolen.
#[test]
fn a_revoked_server_is_refused() {
    let scratch = Scratch::new("nbd-revoked").unwrap();
    let socket = scratch.join("socket");
    let folder = certificates(&scratch, "authority");
    let settings = "[ca]\ndefault_ca=all\n[all]\ndatabase=index\ncrlnumber=number\n\
                    default_md=sha256\ndefault_crl_days=2\n";
    for (name, content) in [("settings", settings), ("index", ""), ("number", "01")] {
        std::fs::write(folder.join(name), content).unwrap();
    }
    let authority = "ca -config settings -keyfile ca-key.pem -cert ca-cert.pem";
    let address = format!(
        "nbds+unix:///?socket={}&timeout=20&tls-certificates={}",
        socket.display(),
        folder.display()
    );
    let arguments = format!("--tls=require --tls-certificates={} memory 8M", folder.display());
    let _server = NbdServer::nbdkit(socket.clone(), &arguments);
    openssl(&folder, &format!("{authority} -gencrl -out ca-crl.pem"));
    open_address(&address, OpenMode::ReadWrite).unwrap();
    openssl(&folder, &format!("{authority} -revoke server-cert.pem"));
    openssl(&folder, &format!("{authority} -gencrl -out ca-crl.pem"));
    let error = open_address(&address, OpenMode::ReadWrite).unwrap_err().to_string();
    assert!(error.contains("Revoked"), "{error}");
}

#[test]
fn an_encrypted_connection_may_be_cut_at_any_byte() {
    let scratch = Scratch::new("nbd-tls-cut").unwrap();
    let folder = certificates(&scratch, "authority");
    let arguments = format!("--tls=require --tls-certificates={} memory 8M", folder.display());
    let words = format!("&tls-certificates={}", folder.display());
    cut_at_any_byte(&arguments, "nbds+unix", &words);
}

/// A server that always has something to say, and never what is awaited, is given up in time.
#[test]
fn an_encrypted_flood_ends() {
    let scratch = Scratch::new("nbd-flood").unwrap();
    let folder = certificates(&scratch, "authority");
    let chain = CertificateDer::from_pem_file(folder.join("server-cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server-key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = Arc::new(config.with_single_cert(vec![chain], key).unwrap());
    let listener = UnixListener::bind(scratch.join("socket")).unwrap();
    let flood = move || -> std::io::Result<()> {
        let mut client = listener.accept()?.0;
        client.write_all(b"NBDMAGICIHAVEOPT\0\x01")?;
        // The client's flags, and its wish for TLS.
        client.read_exact(&mut [0; 4 + 16])?;
        let reply = |option: u8, kind: u8, data: &[u8]| {
            let mut bytes = b"\0\x03\xe8\x89\x04\x55\x65\xa9".to_vec();
            bytes.extend_from_slice(&[0, 0, 0, option, 0, 0, 0, kind, 0, 0, 0, data.len() as u8]);
            [&bytes, data].concat()
        };
        client.write_all(&reply(5, 1, &[]))?;
        let session = ServerConnection::new(config).map_err(std::io::Error::other)?;
        let mut client = StreamOwned::new(session, client);
        client.read_exact(&mut [0; 16])?;
        client.write_all(&reply(8, 1, &[]))?;
        let flood = reply(7, 3, &[0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 1]).repeat(1000);
        loop {
            client.write_all(&flood)?;
        }
    };
    let server = thread::spawn("flood", flood).unwrap();
    let start = clock::now();
    let name = format!(
        "nbds+unix:///?socket={}&timeout=1&tls-certificates={}",
        scratch.join("socket").display(),
        folder.display()
    );
    let error = open_address(&name, OpenMode::ReadWrite).unwrap_err().to_string();
    assert!(error.contains("takes or sends too little"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    server.join().unwrap().unwrap_err();
}
