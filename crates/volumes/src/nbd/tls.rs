//! TLS of a connection, after NBD's option STARTTLS: certificates of X.509, by rustls.
//!
//! # Locking
//!
//! [`NBD_TLS`] guards a session's state and is never held while a thread waits for the socket, so a thread
//! that awaits answers doesn't keep others from sending. Senders are one at a time, by the connection's
//! own lock: records must reach the socket in the order in which they were encrypted. The thread that reads
//! never sends: what the protocol owes the server, such as new keys, goes out before the next request.

use super::address::TlsWish;
use super::protocol::wrong;
use drystone_sync::{Arc, LockClass, Mutex};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

static NBD_TLS: LockClass = LockClass::new("nbd tls", 957);

/// Names of files in a folder of certificates, as other clients of NBD expect them.
const AUTHORITY: &str = "ca-cert.pem";
const CERTIFICATE: &str = "client-cert.pem";
const KEY: &str = "client-key.pem";

#[derive(Debug)]
pub(super) struct Session(Mutex<ClientConnection>);

impl Session {
    /// A session that has exchanged nothing yet. The files are read anew for each connection: certificates
    /// are replaced while a volume is open.
    pub fn new(wish: &TlsWish) -> io::Result<Session> {
        let roots = match &wish.certificates {
            Some(folder) => trusted_by(folder)?,
            None => trusted_by_system()?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&error.to_string()))?
            .with_root_certificates(roots);
        let own = wish.certificates.as_deref().map(own_certificate).transpose()?.flatten();
        let config = match own {
            Some((chain, key)) => config
                .with_client_auth_cert(chain, key)
                .map_err(|error| wrong(&format!("{CERTIFICATE} and {KEY}: {error}")))?,
            None => config.with_no_client_auth(),
        };
        let host = ServerName::try_from(wish.host.clone())
            .map_err(|_| wrong(&format!("'{}' can't be a certificate's name", wish.host)))?;
        let session = ClientConnection::new(Arc::new(config), host).map_err(failed)?;
        Ok(Session(Mutex::new(&NBD_TLS, session)))
    }

    /// Whether the handshake isn't over.
    pub fn is_shaking_hands(&self) -> bool {
        self.0.lock().is_handshaking()
    }

    /// Moves what has arrived into `bytes`. `Ok(None)` if nothing has: `receive` would have to wait.
    pub fn read(&self, bytes: &mut [u8], receive: &mut dyn Read) -> io::Result<Option<usize>> {
        let mut session = self.0.lock();
        loop {
            match session.reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done.map(Some),
            }
            if !take_in(&mut session, receive)? {
                return Ok(None);
            }
        }
    }

    /// Takes in what has arrived of the handshake. False if nothing has.
    pub fn take_in(&self, receive: &mut dyn Read) -> io::Result<bool> {
        take_in(&mut self.0.lock(), receive)
    }

    /// Encrypts the beginning of `bytes`: how many of them, and what has to be sent.
    pub fn encrypt(&self, bytes: &[u8]) -> io::Result<(usize, Vec<u8>)> {
        let mut session = self.0.lock();
        let count = session.writer().write(bytes)?;
        Ok((count, outgoing(&mut session)?))
    }

    /// What has to be sent apart from data.
    pub fn outgoing(&self) -> io::Result<Vec<u8>> {
        outgoing(&mut self.0.lock())
    }
}

fn take_in(session: &mut ClientConnection, receive: &mut dyn Read) -> io::Result<bool> {
    match session.read_tls(receive) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
        Err(error) => return Err(error),
    }
    session.process_new_packets().map_err(failed)?;
    Ok(true)
}

fn outgoing(session: &mut ClientConnection) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut bytes)?;
    }
    Ok(bytes)
}

fn failed(error: rustls::Error) -> io::Error {
    wrong(&format!("TLS: {error}"))
}

/// The authorities in a folder of certificates.
fn trusted_by(folder: &Path) -> io::Result<RootCertStore> {
    let path = folder.join(AUTHORITY);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&path)? {
        roots.add(certificate).map_err(|error| wrong(&format!("{}: {error}", path.display())))?;
    }
    Ok(roots)
}

/// The authorities that this machine trusts.
fn trusted_by_system() -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(wrong(
            "this machine trusts no authority (Debian has ca-certificates); \
             tls-certificates=FOLDER names one",
        ));
    }
    Ok(roots)
}

/// The client's own certificate and key in a folder, if it has any.
fn own_certificate(
    folder: &Path,
) -> io::Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>> {
    let (path, key_path) = (folder.join(CERTIFICATE), folder.join(KEY));
    if !path.try_exists()? {
        return Ok(None);
    }
    let chain = certificates(&path)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&key_path)?);
    let key = key.map_err(|error| wrong(&format!("{}: {error}", key_path.display())))?;
    Ok(Some((chain, key)))
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(wrong(&format!("{}: no certificate", path.display()))),
        Err(error) => Err(wrong(&format!("{}: {error}", path.display()))),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
