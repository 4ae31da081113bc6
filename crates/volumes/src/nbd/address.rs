//! Addresses of NBD exports: `nbd://host:port/export`, `nbd+unix:///export?socket=/path`; `nbds` for TLS.

use std::path::PathBuf;
use std::time::Duration;

pub(super) const SCHEMES: [&str; 4] = ["nbd://", "nbd+unix://", "nbds://", "nbds+unix://"];
const PORT: u16 = 10_809;
const TIMEOUT: Duration = Duration::from_secs(60);
const CONNECTIONS: usize = 4;
const CONNECTIONS_MAX: usize = 16;

/// Where an export is, and how long to wait for its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdAddress {
    pub(super) socket: SocketAddress,
    pub(super) export: String,
    /// If no answer comes for this long, the connection counts as lost.
    pub(super) answer_timeout: Duration,
    /// How long to try to make a lost connection again.
    pub(super) reconnect_timeout: Duration,
    /// How many connections are made, if the server allows several.
    pub(super) connections: usize,
    /// The connections are encrypted.
    pub(super) tls: Option<TlsWish>,
}

/// Whom to trust, and who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TlsWish {
    /// The name that the server's certificate must have.
    pub(super) host: String,
    /// The folder with the authority and our certificate; without it the authorities of the machine count.
    pub(super) certificates: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SocketAddress {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl NbdAddress {
    /// Reads an address. The words `timeout=` and `reconnect=`, in seconds, and `connections=` may follow
    /// the `?`; with TLS `tls-certificates=` and `tls-hostname=` too.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<NbdAddress, String> {
        let wrong = |problem: &str| Err(format!("'{text}': {problem}"));
        let Some((scheme, rest)) = text.split_once("://") else {
            return wrong("not an address of an NBD export");
        };
        let is_encrypted = scheme.starts_with("nbds");
        if is_encrypted && !cfg!(feature = "tls") {
            return wrong("this program was built without the feature `tls`");
        }
        let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, export) = location.split_once('/').unwrap_or((location, ""));
        let (mut path, mut certificates, mut certified_host) = (None, None, None);
        let mut address = NbdAddress {
            socket: SocketAddress::Tcp(String::new(), PORT),
            export: decoded(export)?,
            answer_timeout: TIMEOUT,
            reconnect_timeout: TIMEOUT,
            connections: CONNECTIONS,
            tls: None,
        };
        for word in query.split('&').filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let number =
                || value.parse::<u64>().map_err(|_| format!("'{text}': {key} isn't a number"));
            match key {
                "socket" => path = Some(absolute(value)?),
                "timeout" => address.answer_timeout = Duration::from_secs(number()?.max(1)),
                "reconnect" => address.reconnect_timeout = Duration::from_secs(number()?),
                "connections" => {
                    address.connections = number()?.clamp(1, CONNECTIONS_MAX as u64) as usize;
                }
                "tls-certificates" if is_encrypted => {
                    certificates = Some(absolute(value)?);
                }
                "tls-hostname" if is_encrypted => certified_host = Some(decoded(value)?),
                _ if is_encrypted => {
                    return wrong(
                        "socket=, timeout=, reconnect=, connections=, tls-certificates= or \
                         tls-hostname= may follow '?'",
                    );
                }
                _ => return wrong("socket=, timeout=, reconnect= or connections= may follow '?'"),
            }
        }
        address.socket = match (scheme, path) {
            ("nbd+unix" | "nbds+unix", Some(path)) if host.is_empty() => SocketAddress::Unix(path),
            ("nbd" | "nbds", None) if !host.is_empty() => {
                let (name, port) = split_port(host);
                let Ok(port) = port.map_or(Ok(PORT), str::parse) else {
                    return wrong("the port isn't a number up to 65535");
                };
                SocketAddress::Tcp(name.to_owned(), port)
            }
            ("nbd+unix" | "nbds+unix", _) => {
                return wrong(&format!("{scheme}:///EXPORT?socket=PATH is expected"));
            }
            _ => return wrong(&format!("{scheme}://HOST[:PORT]/EXPORT is expected")),
        };
        if is_encrypted {
            let host = certified_host.unwrap_or_else(|| match &address.socket {
                SocketAddress::Tcp(host, _) => host.clone(),
                SocketAddress::Unix(_) => "localhost".to_owned(),
            });
            address.tls = Some(TlsWish { host, certificates });
        }
        Ok(address)
    }

    /// The server and the export, whatever else was said: two addresses of one export have one such name,
    /// as far as addresses tell.
    pub(crate) fn export_name(&self) -> String {
        let export = &self.export;
        match &self.socket {
            SocketAddress::Tcp(host, port) => {
                format!("nbd://{}:{port}/{export}", host.to_ascii_lowercase())
            }
            SocketAddress::Unix(path) => {
                let path = path.canonicalize().unwrap_or_else(|_| path.clone());
                format!("nbd+unix:///{export}?socket={}", path.display())
            }
        }
    }
}

/// Splits a port off; an IPv6 address is in brackets.
fn split_port(host: &str) -> (&str, Option<&str>) {
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (address, rest.strip_prefix(':'));
    }
    host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)))
}

/// A path, which still names the same after the process has changed its directory.
fn absolute(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(decoded(text)?).map_err(|error| format!("'{text}': {error}"))
}

/// Resolves `%20` and the like.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || format!("'{text}': '%' must be followed by two hexadecimal digits");
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = tail;
            continue;
        }
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(value.ok_or_else(wrong)?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| format!("'{text}' isn't UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let tcp = |host: &str, port| SocketAddress::Tcp(host.to_owned(), port);
        for (text, socket, export) in [
            ("nbd://host", tcp("host", PORT), ""),
            ("nbd://host:99/a%20b/c", tcp("host", 99), "a b/c"),
            ("nbd://[::1]:99/", tcp("::1", 99), ""),
            ("nbd+unix:///x?socket=/run/a%3fb", SocketAddress::Unix("/run/a?b".into()), "x"),
        ] {
            let address = NbdAddress::parse(text).unwrap();
            assert_eq!((address.socket, address.export.as_str()), (socket, export), "{text}");
        }
        let address = NbdAddress::parse("nbd://h/?timeout=5&reconnect=0&connections=99").unwrap();
        assert_eq!(address.answer_timeout, Duration::from_secs(5));
        assert_eq!((address.reconnect_timeout, address.connections), (Duration::ZERO, 16));
    }

    #[test]
    fn addresses_with_tls_are_read() {
        for (text, host, certificates) in [
            ("nbds://Host:99/a", "Host", None),
            ("nbds://[::1]/a", "::1", None),
            ("nbds://h/?tls-hostname=other&tls-certificates=/a%20b", "other", Some("/a b")),
            ("nbds+unix:///?socket=/s", "localhost", None),
        ] {
            let tls = NbdAddress::parse(text).unwrap().tls.unwrap();
            assert_eq!(
                (&*tls.host, tls.certificates),
                (host, certificates.map(PathBuf::from)),
                "{text}"
            );
        }
        assert_eq!(NbdAddress::parse("nbd://h/").unwrap().tls, None);
    }

    /// A mount in the background works in another directory, and connects again from there.
    #[test]
    fn paths_are_made_absolute() {
        let here = |name: &str| std::env::current_dir().unwrap().join(name);
        let address = NbdAddress::parse("nbds+unix:///?socket=s&tls-certificates=c").unwrap();
        assert_eq!(address.socket, SocketAddress::Unix(here("s")));
        assert_eq!(address.tls.unwrap().certificates, Some(here("c")));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "nbd://",
            "nbd:///x",
            "nbd://h:x/",
            "nbd+unix:///x",
            "nbd+unix://h/x?socket=/s",
            "nbds:///x",
            "nbds+unix://h/x?socket=/s",
            "nbd://h/x?tls-hostname=h",
            "nbd://h/%zz",
            "nbd://h/%2",
            "nbd://h/%+1",
            "nbd://h/?timeout=x",
            "nbd://h/?a=b",
            "nbd://h/x?socket=/s",
        ] {
            assert!(NbdAddress::parse(text).is_err(), "{text}");
        }
    }
}
