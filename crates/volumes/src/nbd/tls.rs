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
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

static NBD_TLS: LockClass = LockClass::new("nbd tls", 957);

/// Names of files in a folder of certificates, as other clients of NBD expect them.
const AUTHORITY: &str = "ca-cert.pem";
const CERTIFICATE: &str = "client-cert.pem";
const KEY: &str = "client-key.pem";
const REVOKED: &str = "ca-crl.pem";

#[derive(Debug)]
pub(super) struct Session(Mutex<ClientConnection>);

impl Session {
    /// A session that has exchanged nothing yet. The files are read again for each connection: certificates
    /// are replaced while a volume is open.
    pub fn new(wish: &TlsWish) -> io::Result<Session> {
        let roots = match &wish.certificates {
            Some(folder) => trusted_by(folder)?,
            None => trusted_by_system()?,
        };
        let revoked = wish.certificates.as_deref().map(revoked_in).transpose()?.unwrap_or_default();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .with_crls(revoked)
                // An authority without a list has revoked nothing.
                .allow_unknown_revocation_status()
                .build()
                .map_err(|error| wrong(&format!("TLS: {error}")))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_webpki_verifier(verifier);
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

    /// Moves data that was taken in to `bytes`: how many, 0 after the last. `None` if more must be taken in.
    pub fn read(&self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        match self.0.lock().reader().read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            read => read.map(Some),
        }
    }

    /// Takes in and decrypts some of what has arrived: how many bytes, 0 if `receive` would have to wait.
    pub fn take_in(&self, receive: &mut dyn Read) -> io::Result<usize> {
        let mut session = self.0.lock();
        let count = match session.read_tls(receive) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error),
        };
        session.process_new_packets().map_err(failed)?;
        Ok(count)
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
        let none = "this machine trusts no authority (Debian has ca-certificates); \
                    tls-certificates=FOLDER names one";
        let cause = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        return Err(wrong(&format!("{none}{cause}")));
    }
    Ok(roots)
}

/// The lists of revoked certificates in a folder, if it has any.
fn revoked_in(folder: &Path) -> io::Result<Vec<CertificateRevocationListDer<'static>>> {
    let path = folder.join(REVOKED);
    let bytes = match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        bytes => bytes?,
    };
    let lists: Result<_, _> = CertificateRevocationListDer::pem_slice_iter(&bytes).collect();
    lists.map_err(|error| wrong(&format!("{}: {error}", path.display())))
}

/// The client's own certificate and key in a folder, if it has both. In a shared folder not all users can
/// read the key, and not all servers ask for a certificate.
fn own_certificate(
    folder: &Path,
) -> io::Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>> {
    let (path, key_path) = (folder.join(CERTIFICATE), folder.join(KEY));
    let (chain, key) = match (certificates(&path), read(&key_path)) {
        (Ok(chain), Ok(key)) => (chain, key),
        (Err(error), _) | (_, Err(error)) => {
            return match error.kind() {
                io::ErrorKind::NotFound => Ok(None),
                io::ErrorKind::PermissionDenied => {
                    tracing::warn!("the server is shown no certificate: {error}");
                    Ok(None)
                }
                _ => Err(error),
            };
        }
    };
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|error| wrong(&format!("{}: {error}", key_path.display())))?;
    Ok(Some((chain, key)))
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(wrong(&format!("{}: holds no certificate", path.display()))),
        Err(error) => Err(wrong(&format!("{}: {error}", path.display()))),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
