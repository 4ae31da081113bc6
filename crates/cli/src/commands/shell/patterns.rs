//! Patterns in words, and what they match in the image or on this machine.

use super::words::ShellWord;
use drystone::glob;

/// Lists the names in a directory; none where there is no directory.
pub type ListNames<'l> = dyn Fn(&[u8]) -> Vec<Vec<u8>> + 'l;

/// The paths that a word matches, sorted; its text if it isn't a pattern or matches nothing.
pub fn expand(word: &ShellWord, list: &ListNames<'_>) -> Vec<Vec<u8>> {
    if !word.is_pattern {
        return vec![word.text.clone()];
    }
    let is_absolute = word.pattern.starts_with(b"/");
    let mut found = vec![if is_absolute { b"/".to_vec() } else { Vec::new() }];
    for part in word.pattern.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        let mut longer = Vec::new();
        for path in found {
            let mut names = list(if path.is_empty() { b"." } else { &path });
            if part == b"." || part == b".." {
                names = vec![part.to_vec()];
            }
            // As in sh, a dot at the beginning is matched only by a dot.
            names.retain(|name| {
                (!name.starts_with(b".") || part.starts_with(b".")) && glob::matches(part, name)
            });
            names.sort();
            longer.extend(names.into_iter().map(|name| {
                let mut path = path.clone();
                if !path.is_empty() && !path.ends_with(b"/") {
                    path.push(b'/');
                }
                path.extend(name);
                path
            }));
        }
        found = longer;
    }
    if found.is_empty() {
        return vec![word.text.clone()];
    }
    // A name is never taken for an option, nor for standard input.
    let as_path =
        |path: Vec<u8>| if path.starts_with(b"-") { [b"./", &path[..]].concat() } else { path };
    found.into_iter().map(as_path).collect()
}

#[cfg(test)]
mod tests {
    use super::super::words::split;
    use super::*;

    #[test]
    fn patterns_are_those_of_sh() {
        let list = |directory: &[u8]| -> Vec<Vec<u8>> {
            let names: &[&str] = match directory {
                b"." => &["b", "a1", "a2", ".a3", "a*", "-r"],
                b"a1" | b"/x" => &["y.c", "z.c"],
                b"/" => &["x"],
                _ => &[],
            };
            names.iter().map(|name| name.as_bytes().to_vec()).collect()
        };
        let expanded = |line: &str| {
            let (words, _) = split(line.as_bytes()).unwrap();
            let found = words.iter().flat_map(|word| expand(word, &list));
            found.map(|path| String::from_utf8(path).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(expanded("a*"), ["a*", "a1", "a2"]);
        assert_eq!(expanded(".a* 'a'? a\\*"), [".a3", "a*", "a1", "a2", "a*"]);
        assert_eq!(expanded("*/*.c /?/y*"), ["a1/y.c", "a1/z.c", "/x/y.c"]);
        assert_eq!(expanded("none* ./b*"), ["none*", "./b"]);
        assert_eq!(expanded("-* -r"), ["./-r", "-r"]);
    }
}
