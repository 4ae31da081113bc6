//! `setfattr`: sets and removes extended attributes.

use super::getfattr::lacks_attribute;
use crate::failure::{Failure, Outcome};
use crate::global::{Global, LongHelp};
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::output::Escaped;
use crate::tree::ImageTree;
use drystone::vfs::{Errno, XattrMode};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Set or remove an extended attribute
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
A value that begins with 0x is hexadecimal digits; one in double quotes is the text in them, with \\\" \
for a quote and \\\\ for a backslash; any other is text as it is. So what getfattr shows can be set again.

Examples:
  drystone setfattr -n user.origin --value 'the web' disk.img:/file
  drystone setfattr -n trusted.overlay.opaque --value 0x79 disk.img:/directory
  drystone setfattr -x user.origin disk.img:/file"
)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["name", "remove"]))]
pub struct Arguments {
    /// The full name of the attribute to set, like user.x.
    #[arg(short, long)]
    name: Option<OsString>,
    /// The value. [default: empty]
    #[arg(long, requires = "name", value_parser = parse_value_os())]
    value: Option<AttributeValue>,
    /// The full name of the attribute to remove.
    #[arg(short = 'x', long)]
    remove: Option<OsString>,
    /// The entries to change.
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = Location::path_parser())]
    places: Vec<Location>,
    /// Don't follow a symbolic link at the end of the path.
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    help: LongHelp,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AttributeValue(Vec<u8>);

fn parse_value_os() -> impl clap::builder::TypedValueParser<Value = AttributeValue> {
    use clap::builder::TypedValueParser;
    clap::builder::OsStringValueParser::new().try_map(|text| parse_value(text.as_bytes()))
}

fn parse_value(text: &[u8]) -> Result<AttributeValue, String> {
    if let Some(quoted) = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")) {
        return unquote(quoted);
    }
    let Some(digits) = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X")) else {
        return Ok(AttributeValue(text.to_vec()));
    };
    let wrong = || "after 0x come hexadecimal digits, two for each byte".to_string();
    let nibble = |digit: u8| (digit as char).to_digit(16).ok_or_else(wrong);
    if digits.len() % 2 != 0 {
        return Err(wrong());
    }
    let bytes = digits
        .chunks(2)
        .map(|pair| Ok((nibble(pair[0])? * 16 + nibble(pair[1])?) as u8))
        .collect::<Result<Vec<u8>, String>>()?;
    Ok(AttributeValue(bytes))
}

/// What stands between quotes.
fn unquote(text: &[u8]) -> Result<AttributeValue, String> {
    let mut value = Vec::new();
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        let escaped = if byte == b'\\' { bytes.next() } else { None };
        match (byte, escaped) {
            (b'\\', Some(&escaped @ (b'\\' | b'"'))) => value.push(escaped),
            (b'\\' | b'"', _) => {
                let message = "in double quotes, a quote or backslash needs a backslash before it";
                return Err(message.to_string());
            }
            _ => value.push(byte),
        }
    }
    Ok(AttributeValue(value))
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    // As setfattr(1) has it.
    if global.verbose > 0 && arguments.name.is_some() && arguments.value.is_none() {
        let message = "-v is --verbose; a value is given as '--value VALUE'";
        return Err(Failure::Usage(message.to_owned()));
    }
    with_each(&arguments.places, Intent::Change, global, |tree, paths| {
        tree.for_each(paths, |path| set(tree, path, arguments))
    })
}

fn set(tree: &ImageTree<'_>, path: &Path, arguments: &Arguments) -> Outcome {
    let node = tree.find(path, !arguments.no_dereference)?;
    let (context, inode) = (&tree.context, node.inode());
    let result = match (&arguments.name, &arguments.remove) {
        (Some(name), _) => {
            let value = arguments.value.as_ref().map_or(&[][..], |value| &value.0);
            let name = name.as_bytes();
            tree.file_system.set_xattr(context, inode, name, value, XattrMode::Set)
        }
        (None, Some(name)) => tree.file_system.remove_xattr(context, inode, name.as_bytes()),
        (None, None) => Ok(()),
    };
    Ok(result.map_err(|error| {
        let bytes = path.as_os_str().as_bytes();
        match (&arguments.name, &arguments.remove, error.errno) {
            (Some(name), _, Errno::EOPNOTSUPP) if !has_known_prefix(name.as_bytes()) => {
                let name = Escaped(name.as_bytes());
                let why = format!("'{name}' needs a prefix: user., trusted., security. or system.");
                tree.error(bytes, &why)
            }
            (None, Some(name), Errno::ENODATA) => tree.error(bytes, &lacks_attribute(name)),
            _ => tree.error(bytes, &error),
        }
    })?)
}

fn has_known_prefix(name: &[u8]) -> bool {
    [&b"user."[..], b"trusted.", b"security.", b"system."]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::getfattr::value_text;
    use crate::testing::{example, tree_of};
    use drystone::vfs::FileSystem;

    #[test]
    fn values_are_text_or_bytes() {
        assert_eq!(parse_value(b"a b"), Ok(AttributeValue(b"a b".to_vec())));
        assert_eq!(parse_value(b"0x00fF"), Ok(AttributeValue(vec![0, 255])));
        assert!(parse_value(b"0x0").is_err() && parse_value(b"0xzz").is_err());
        assert_eq!(parse_value(b"\""), Ok(AttributeValue(b"\"".to_vec())));
        assert!(parse_value(br#""a"b""#).is_err() && parse_value(br#""\a""#).is_err());
        assert!(parse_value(br#""a\""#).is_err());
    }

    #[test]
    fn what_getfattr_shows_comes_back() {
        for value in
            [&b"0x41"[..], b"plain", b"\"", b"\\", br#"a"b\c"#, br#""quoted""#, b"\0\xff", b""]
        {
            let shown = value_text(value);
            assert_eq!(
                parse_value(shown.as_bytes()),
                Ok(AttributeValue(value.to_vec())),
                "{shown}"
            );
        }
    }

    #[test]
    fn attributes_come_and_go() {
        let image = example(&["a"]);
        let tree = tree_of(&image);
        let arguments = |name: Option<&str>, remove: Option<&str>| Arguments {
            name: name.map(OsString::from),
            value: Some(AttributeValue(b"v".to_vec())),
            remove: remove.map(OsString::from),
            places: Vec::new(),
            no_dereference: false,
            help: LongHelp::default(),
        };
        let path = Path::new("/a");
        set(&tree, path, &arguments(Some("user.x"), None)).unwrap();
        let inode = tree.find(path, true).unwrap().inode();
        assert_eq!(image.xattr(&tree.context, inode, b"user.x").unwrap(), b"v");
        set(&tree, path, &arguments(None, Some("user.x"))).unwrap();
        assert!(set(&tree, path, &arguments(None, Some("user.x"))).is_err());
        assert_eq!(image.references(), 0);
    }
}
