//! Names of images: `rbd:pool/image@snapshot?id=user`.

use std::path::PathBuf;
use std::time::Duration;

const SCHEME: &str = "rbd:";
const TIMEOUT: Duration = Duration::from_secs(60);
/// Where Ceph looks for the configuration of a cluster that isn't named.
const CONFIGURATION_VARIABLE: &str = "CEPH_CONF";
const CONFIGURATION: &str = "/etc/ceph/ceph.conf";

/// Where an image is, and how long to wait for its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RbdAddress {
    pub(crate) pool: String,
    /// A namespace of the pool; empty for none.
    pub(crate) namespace: String,
    pub(crate) image: String,
    pub(crate) snapshot: Option<String>,
    /// The file that describes the cluster.
    pub(crate) configuration: Option<PathBuf>,
    /// The user whose key is used.
    pub(crate) user: Option<String>,
    /// A request that isn't answered for this long fails, and all later ones with it.
    pub(crate) timeout: Duration,
}

impl RbdAddress {
    /// Whether a name is one of an image in a cluster.
    #[must_use]
    pub fn is_address(name: &[u8]) -> bool {
        name.starts_with(SCHEME.as_bytes())
    }

    /// How many bytes of a name belong to the image at least. The first `@` before `?` and `#` names a snapshot,
    /// even if that is called by a number.
    #[must_use]
    pub fn base_length(name: &[u8]) -> usize {
        let end = name.iter().position(|byte| b"?#".contains(byte)).unwrap_or(name.len());
        let snapshot = name[..end].iter().position(|byte| *byte == b'@');
        let Some(snapshot) = snapshot else { return 0 };
        let more = name[snapshot + 1..end].iter().position(|byte| *byte == b'@');
        more.map_or(end, |more| snapshot + 1 + more)
    }

    /// Reads an address. The words `conf=`, `id=` and `timeout=`, in seconds, may follow the `?`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<RbdAddress, String> {
        let wrong = |problem: &str| format!("'{text}': {problem}");
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong("no name of an RBD image"))?;
        let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (path, snapshot) = match location.split_once('@') {
            Some((path, snapshot)) => (path, Some(decoded(snapshot)?)),
            None => (location, None),
        };
        let mut names = path.split('/').map(decoded).collect::<Result<Vec<String>, String>>()?;
        let (Some(image), Some(namespace), Some(pool), None) = (
            names.pop(),
            Some(if names.len() == 2 { names.remove(1) } else { String::new() }),
            names.pop(),
            names.pop(),
        ) else {
            return Err(wrong("rbd:POOL/IMAGE or rbd:POOL/NAMESPACE/IMAGE is expected"));
        };
        let is_missing = |name: &String| name.is_empty();
        if is_missing(&pool) || is_missing(&image) || snapshot.as_ref().is_some_and(is_missing) {
            return Err(wrong("rbd:POOL/IMAGE[@SNAPSHOT] is expected"));
        }
        let mut address = RbdAddress {
            pool,
            namespace,
            image,
            snapshot,
            configuration: None,
            user: None,
            timeout: TIMEOUT,
        };
        for word in query.split('&').filter(|word| !word.is_empty()) {
            match word.split_once('=').unwrap_or((word, "")) {
                ("conf", path) => address.configuration = Some(PathBuf::from(decoded(path)?)),
                ("id", user) => address.user = Some(decoded(user)?),
                ("timeout", seconds) => {
                    let seconds: u64 =
                        seconds.parse().map_err(|_| wrong("timeout isn't a number"))?;
                    address.timeout = Duration::from_secs(seconds.max(1));
                }
                _ => return Err(wrong("conf=, id= or timeout= may follow '?'")),
            }
        }
        Ok(address)
    }

    /// The cluster and the image, whatever else was said: two addresses of one image have one such name, as
    /// far as addresses tell.
    #[must_use]
    pub fn image_name(&self) -> String {
        let configuration = self.configuration.clone().unwrap_or_else(|| {
            std::env::var_os(CONFIGURATION_VARIABLE).unwrap_or(CONFIGURATION.into()).into()
        });
        let configuration = configuration.canonicalize().unwrap_or(configuration);
        let RbdAddress { pool, namespace, image, .. } = self;
        format!("rbd:{pool}/{namespace}/{image}?conf={}", configuration.display())
    }
}

/// Resolves `%20` and the like.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || format!("'{text}': '%' must be followed by two hexadecimal digits");
    let mut bytes = Vec::new();
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let digits = part.get(..2).ok_or_else(wrong)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    match String::from_utf8(bytes) {
        Ok(name) if !name.contains('\0') => Ok(name),
        _ => Err(format!("'{text}' isn't UTF-8 without zeros")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, pool, namespace, image, snapshot) in [
            ("rbd:p/i", "p", "", "i", None),
            ("rbd:p/n/i@s", "p", "n", "i", Some("s")),
            ("rbd:p/a%2fb@%23%40?", "p", "", "a/b", Some("#@")),
        ] {
            let address = RbdAddress::parse(text).unwrap();
            assert_eq!(
                (&*address.pool, &*address.namespace, &*address.image, address.snapshot.as_deref()),
                (pool, namespace, image, snapshot),
                "{text}"
            );
        }
        let address = RbdAddress::parse("rbd:p/i?conf=/a%20b&id=me&timeout=5").unwrap();
        assert_eq!(address.configuration, Some("/a b".into()));
        assert_eq!(address.user.as_deref(), Some("me"));
        assert_eq!(address.timeout, Duration::from_secs(5));
        let other = RbdAddress::parse("rbd:p/i@s?conf=/a%20b").unwrap();
        assert_eq!(address.image_name(), other.image_name());
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "rbd:",
            "rbd:i",
            "rbd:/i",
            "rbd:p/",
            "rbd:p/i@",
            "rbd:p/n/i/x",
            "rbd:p/%zz",
            "rbd:p/%2",
            "rbd:p/%00",
            "rbd:p/i?timeout=x",
            "rbd:p/i?a=b",
        ] {
            assert!(RbdAddress::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_snapshot_belongs_to_the_image() {
        for (name, base) in [
            ("rbd:p/i", ""),
            ("rbd:p/i@12", "rbd:p/i@12"),
            ("rbd:p/i@12@13", "rbd:p/i@12"),
            ("rbd:p/i@a#2@13", "rbd:p/i@a"),
            ("rbd:p/i?@12", ""),
            ("rbd:p/i#a@12", ""),
        ] {
            assert_eq!(RbdAddress::base_length(name.as_bytes()), base.len(), "{name}");
        }
    }
}
