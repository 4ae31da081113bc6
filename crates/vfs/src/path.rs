//! What names and paths may be.

use crate::{Errno, Error, Result};

/// Longest name in a directory, in bytes.
pub const NAME_LENGTH_MAX: usize = 255;
/// Longest path and longest symbolic link target, in bytes, without the final NUL.
pub const PATH_LENGTH_MAX: usize = 4095;

/// Checks that `name` may be given to a new entry: 1 to 255 bytes without `/` and NUL, not `.` or
/// `..`.
pub fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Errno::ENOENT.into()),
        b"." | b".." => Err(Errno::EEXIST.into()),
        _ if name.len() > NAME_LENGTH_MAX => Err(Errno::ENAMETOOLONG.into()),
        _ if name.iter().any(|&byte| byte == b'/' || byte == 0) => Err(Errno::EINVAL.into()),
        _ => Ok(()),
    }
}

/// Which of `.` and `..` a directory has listed so far.
#[derive(Debug, Default)]
pub struct Dots([bool; 2]);

/// Whether a listed name is an entry other than `.` and `..`.
///
/// # Errors
/// `EUCLEAN` for a name that no entry can have, which only a damaged image holds: `.` or `..` once more,
/// one that is empty or too long, or one with `/` or NUL.
pub fn check_listed(name: &[u8], dots: &mut Dots) -> Result<bool> {
    let dot = [&b"."[..], b".."].iter().position(|dot| *dot == name);
    let is_entry = match dot {
        Some(dot) if !std::mem::replace(&mut dots.0[dot], true) => return Ok(false),
        Some(_) => false,
        None => check_name(name).is_ok(),
    };
    if is_entry {
        return Ok(true);
    }
    let name = String::from_utf8_lossy(name);
    let detail = format!("the directory has the impossible name '{}'", name.escape_debug());
    Err(Error::with_detail(Errno::EUCLEAN, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_lists_its_dots_once() {
        let mut dots = Dots::default();
        for dot in [&b"."[..], b".."] {
            assert_eq!(check_listed(dot, &mut dots), Ok(false));
            assert_eq!(check_listed(dot, &mut dots).unwrap_err().errno, Errno::EUCLEAN);
        }
        assert_eq!(check_listed(b"...", &mut dots), Ok(true));
        for name in [&b""[..], b"a/b", b"a\0", &[b'n'; 256]] {
            assert_eq!(check_listed(name, &mut dots).unwrap_err().errno, Errno::EUCLEAN);
        }
    }
}
