//! Random paths, with everything that is odd about paths.

use fastrand::Rng;

/// A path below the base. Few names, so that calls meet what others have made.
pub fn random(rng: &mut Rng) -> String {
    match rng.u32(0..200) {
        0 => return String::new(),
        1 => return "/".into(),
        2 => return "a\0b".into(),
        3 => return "n".repeat(256),
        4 => return "a/".repeat(2100),
        5 => return ".".into(),
        6 => return "..".into(),
        _ => {}
    }
    let mut path = String::new();
    for index in 0..rng.usize(1..=3) {
        if index > 0 {
            path.push_str(if rng.u32(0..20) == 0 { "//" } else { "/" });
        }
        match rng.u32(0..30) {
            0 => path.push('.'),
            1 | 2 => path.push_str(".."),
            _ => path.push(char::from(rng.u8(b'a'..=b'f'))),
        }
    }
    match rng.u32(0..24) {
        0 | 1 => path.push('/'),
        2 => path.push_str("/."),
        3 => path.push_str("//"),
        _ => {}
    }
    path
}

/// A path that ends in a name of its own tree: no `..`, no slash at its end.
pub fn plain(rng: &mut Rng) -> String {
    loop {
        let path = random(rng);
        let parts = || path.split('/');
        if !path.is_empty() && parts().all(|part| part.len() == 1 && part != ".") {
            return path;
        }
    }
}
