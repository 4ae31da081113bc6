//! `IMAGE[:PATH]`, the one way to name things in images. What may stand for IMAGE is up to
//! [`VolumeName`].

use crate::output::Escaped;
use clap::builder::{OsStringValueParser, TypedValueParser};
use drystone::VolumeName;
use drystone::build::followed;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A place in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The name of the volume that holds the image.
    pub image: PathBuf,
    /// The path in it, from its root.
    pub path: PathBuf,
}

impl Location {
    /// For clap.
    pub fn parser() -> impl TypedValueParser<Value = Location> {
        OsStringValueParser::new().try_map(|text| Location::parse(&text))
    }

    /// Reads `IMAGE`, `IMAGE:` or `IMAGE:/PATH`.
    pub fn parse(text: &OsStr) -> Result<Location, String> {
        let (image, path) = match split(text) {
            Some(parts) => parts,
            None => (not_slashless(text)?, OsStr::new("/")),
        };
        if image.is_empty() {
            return Err("the name of the image is missing before ':'".to_string());
        }
        Ok(Location { image: image.into(), path: path.into() })
    }

    /// For clap, where a path is required.
    pub fn path_parser() -> impl TypedValueParser<Value = Location> {
        OsStringValueParser::new().try_map(|text| match split(&text) {
            Some(_) => Location::parse(&text),
            None => Err(match not_slashless(&text) {
                Ok(image) => {
                    let image = Escaped(image.as_bytes());
                    format!("name the path: '{image}:/' is the root directory")
                }
                Err(problem) => problem,
            }),
        })
    }

    /// The path as bytes.
    pub fn path_bytes(&self) -> &[u8] {
        self.path.as_os_str().as_bytes()
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.image.display(), Escaped(self.path_bytes()))
    }
}

/// For clap: an image without a path in it.
pub fn whole_image() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| {
        let Location { image, path } = Location::parse(&text)?;
        match path.as_os_str() == "/" {
            true => Ok(image),
            false => Err(format!("this is about the whole image: write '{}'", image.display())),
        }
    })
}

/// A place in an image or on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnyLocation {
    /// In an image.
    Image(Location),
    /// On this machine.
    Host(PathBuf),
}

impl AnyLocation {
    /// For clap.
    pub fn parser() -> impl TypedValueParser<Value = AnyLocation> {
        OsStringValueParser::new().try_map(|text| AnyLocation::parse(&text))
    }

    /// What contains `:/` or ends in `:` is in an image, everything else is on this machine.
    pub fn parse(text: &OsStr) -> Result<AnyLocation, String> {
        match split(text) {
            Some(_) => Location::parse(text).map(AnyLocation::Image),
            None if text.is_empty() => Err("an empty path".to_string()),
            None => Ok(AnyLocation::Host(not_slashless(text)?.into())),
        }
    }

    /// The path, wherever it is.
    pub fn path(&self) -> &Path {
        match self {
            AnyLocation::Image(location) => &location.path,
            AnyLocation::Host(path) => path,
        }
    }
}

/// Refuses `IMAGE:PATH` with a path that lacks its slash, which would be the name of a file that isn't there. What
/// begins with `./` is a file.
fn not_slashless(text: &OsStr) -> Result<&OsStr, String> {
    let bytes = text.as_bytes();
    if bytes.starts_with(b"./") {
        return Ok(text);
    }
    let colons = bytes.iter().enumerate().filter(|(_, byte)| **byte == b':');
    let mut parts = colons.map(|(at, _)| (&bytes[..at], &bytes[at + 1..]));
    let is_image = |image: &[u8]| {
        std::fs::metadata(OsStr::from_bytes(image)).is_ok_and(|found| !found.is_dir())
    };
    match parts.find(|(image, _)| is_image(image)) {
        Some((image, path)) if std::fs::symlink_metadata(text).is_err() => {
            let (image, path) = (Escaped(image), Escaped(path));
            Err(format!("a path in an image begins with a slash: '{image}:/{path}'"))
        }
        _ => Ok(text),
    }
}

/// Cuts at the first `:/` after the scheme of an address, or a `:` at the end.
fn split(text: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = text.as_bytes();
    let is_address = VolumeName::is_address(Path::new(text));
    let scheme = bytes.windows(3).position(|window| window == b"://").filter(|_| is_address);
    let from = scheme.map_or(0, |at| at + 3);
    if let Some(at) = bytes[from..].windows(2).position(|window| window == b":/") {
        let at = from + at;
        return Some((OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])));
    }
    let image = bytes.strip_suffix(b":")?;
    Some((OsStr::from_bytes(image), OsStr::new("/")))
}

/// Groups locations by image, so that each image is opened once.
pub fn by_image(locations: &[Location]) -> Vec<(PathBuf, Vec<PathBuf>)> {
    let mut groups: Vec<(PathBuf, Vec<PathBuf>)> = Vec::new();
    for location in locations {
        match groups.iter_mut().find(|(image, _)| is_same_image(image, &location.image)) {
            Some((_, paths)) => paths.push(location.path.clone()),
            None => groups.push((location.image.clone(), vec![location.path.clone()])),
        }
    }
    groups
}

/// True if both name the same image, in whatever way.
pub fn is_same_image(a: &Path, b: &Path) -> bool {
    match (VolumeName::find(a), VolumeName::find(b)) {
        (Ok(a), Ok(b)) => a.is_same(&b),
        // Opening it will report why.
        _ => a == b,
    }
}

/// True if both name the same file, in whatever way.
pub fn is_same_file(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    a == b || real(a) == real(b)
}

/// True if a file at `path` would be in `directory` or below it, whether the two are there yet or not.
pub fn is_below(path: &Path, directory: &Path) -> bool {
    // A link that can't be followed is ignored: writing there will report why.
    let path = followed(path).unwrap_or_else(|_| path.to_path_buf());
    real(&path).starts_with(real(directory))
}

/// The real path, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut there =
        absolute.ancestors().filter_map(|above| Some((above, above.canonicalize().ok()?)));
    let Some((above, real)) = there.next() else { return absolute };
    match absolute.strip_prefix(above) {
        Ok(rest) if rest != Path::new("") => real.join(rest),
        _ => real,
    }
}

/// The last name of a path; none for the root and for what ends in `.` or `..`.
pub fn last_name(path: &Path) -> Option<OsString> {
    let bytes = path.as_os_str().as_bytes();
    let is_dot = bytes == b"." || bytes.ends_with(b"/.");
    if is_dot { None } else { path.file_name().map(OsStr::to_os_string) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, String) {
        let location = Location::parse(OsStr::new(text)).unwrap();
        let text = |path: PathBuf| path.into_os_string().into_string().unwrap();
        (text(location.image), text(location.path))
    }

    #[test]
    fn images_and_paths() {
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(parsed("a.img"), pair("a.img", "/"));
        assert_eq!(parsed("a.img:"), pair("a.img", "/"));
        assert_eq!(parsed("a.img:/"), pair("a.img", "/"));
        assert_eq!(parsed("dir/a:b.img:/etc/x:/y"), pair("dir/a:b.img", "/etc/x:/y"));
        assert!(Location::parse(OsStr::new(":/x")).is_err());
    }

    #[test]
    fn addresses_have_a_colon_of_their_own() {
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(parsed("nbd://host:1/x"), pair("nbd://host:1/x", "/"));
        assert_eq!(parsed("nbd://host/x#2:/etc"), pair("nbd://host/x#2", "/etc"));
        for range in ["@offset=1M", "@offset=1M,size=32M", "@offset=1x"] {
            let (image, unix) =
                (format!("nbd://h/x{range}"), format!("nbd+unix:///?socket=/s{range}"));
            assert_eq!(parsed(&format!("{image}:/etc")), pair(&image, "/etc"));
            assert_eq!(parsed(&format!("{unix}:/")), pair(&unix, "/"));
            assert_eq!(parsed(&format!("{unix}:")), pair(&unix, "/"));
        }
        let unix = "nbd+unix:///?socket=/run/a";
        assert_eq!(parsed(&format!("{unix}:/a:/b")), pair(unix, "/a:/b"));
    }

    #[test]
    fn the_host_has_no_colon_and_slash() {
        assert!(matches!(AnyLocation::parse(OsStr::new("a:b")), Ok(AnyLocation::Host(_))));
        assert!(matches!(AnyLocation::parse(OsStr::new("a:/b")), Ok(AnyLocation::Image(_))));
        assert!(matches!(AnyLocation::parse(OsStr::new("a:")), Ok(AnyLocation::Image(_))));
        assert!(AnyLocation::parse(OsStr::new("")).is_err());
    }

    #[test]
    fn names_that_are_not_utf8() {
        let location = Location::parse(OsStr::from_bytes(b"a:/\xff")).unwrap();
        assert_eq!(location.path_bytes(), b"/\xff");
        assert_eq!(location.to_string(), "a:/\\xff");
    }

    #[test]
    fn a_path_without_its_slash_is_explained() {
        let folder = tempfile::tempdir().unwrap();
        let text = |end: &str| format!("{}/disk.img{end}", folder.path().display());
        let both = |text: &str| {
            let text = OsStr::new(text);
            (Location::parse(text).err(), AnyLocation::parse(text).err())
        };
        assert_eq!(both(&text(":etc")), (None, None), "there is no such image");
        std::fs::write(text(""), "").unwrap();
        let (one, other) = both(&text(":etc"));
        assert!(one.unwrap().ends_with("disk.img:/etc'") && other.is_some());
        std::fs::write(text(":etc"), "").unwrap();
        assert_eq!(both(&text(":etc")), (None, None), "that is its name");
        assert_eq!(not_slashless("./Cargo.toml:etc".as_ref()).err(), None, "a file");
        assert!(not_slashless("Cargo.toml:etc".as_ref()).is_err());
    }

    #[test]
    fn images_are_opened_once() {
        let locations: Vec<Location> = ["a:/1", "b:/2", "a:/3"]
            .map(|text| Location::parse(OsStr::new(text)).unwrap())
            .to_vec();
        let groups = by_image(&locations);
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].1, [PathBuf::from("/1"), PathBuf::from("/3")]);
    }

    #[test]
    fn what_is_below_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("there/d")).unwrap();
        std::os::unix::fs::symlink("there", at("link")).unwrap();
        std::os::unix::fs::symlink("there/new", at("to-new")).unwrap();
        for path in ["there/m", "there/d/m", "link/m", "link/no/m", "to-new"] {
            assert!(is_below(&at(path), &at("there")), "{path}");
            assert!(is_below(&at(path), &at("link")), "{path}");
        }
        assert!(is_below(&at("no/m"), &at("no")) && is_below(Path::new("m"), Path::new("")));
        for path in ["m", "therefore", "link-2/m"] {
            assert!(!is_below(&at(path), &at("there")), "{path}");
        }
    }

    #[test]
    fn last_names() {
        assert_eq!(last_name(Path::new("/a/b/")), Some("b".into()));
        for path in ["/", ".", "a/.", "a/.."] {
            assert_eq!(last_name(Path::new(path)), None, "{path}");
        }
    }
}
