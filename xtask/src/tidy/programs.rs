//! Programs that tests call: `./dev` has to install each.

use super::Finding;

/// What starts a program by its name, in tests.
const CALLS: [&str; 7] =
    ["Command::new(\"", "have(\"", "has(\"", " run(\"", "try_run(\"", "tool(\"", "(run(\""];

/// Programs that come with a package which `./dev` names by another program.
const RELATED: [(&str, &[&str]); 9] = [
    ("rbd", &["ceph"]),
    ("cc", &["c++", "nm"]),
    (
        "mke2fs",
        &["chattr", "dumpe2fs", "e2fsck", "e2image", "filefrag", "lsattr", "resize2fs", "tune2fs"],
    ),
    ("losetup", &["blkid", "fallocate", "mkswap", "mountpoint", "partx", "unshare", "wipefs"]),
    ("mount", &["umount"]),
    ("setfacl", &["getfacl"]),
    ("mtype", &["mdir"]),
    ("qemu-img", &["qemu-io", "qemu-nbd"]),
    ("mkfs.nilfs2", &["chcp", "dumpseg", "lscp", "lssu", "mkcp", "nilfs-tune", "rmcp"]),
];

/// What every Debian has, what Rust comes with, and what no test finds.
const EVERYWHERE: [&str; 21] = [
    "chmod",
    "cp",
    "dd",
    "df",
    "du",
    "find",
    "install",
    "ls",
    "mkfifo",
    "mv",
    "prlimit",
    "rm",
    "script",
    "sh",
    "stat",
    "sync",
    "timeout",
    "true",
    "truncate",
    "rustc",
    "no-such-program",
];

/// Checks a test at `path`; `dev` is the text of that script.
pub fn check(path: &str, text: &str, dev: &str) -> Vec<Finding> {
    if !path.starts_with("crates/") || !path.contains("/tests/") || !path.ends_with(".rs") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for call in CALLS {
            for (_, rest) in line.match_indices(call).map(|(at, _)| line.split_at(at + call.len()))
            {
                let name = rest.split('"').next().unwrap_or_default();
                // A command line goes to the program that the test is about.
                if !name.contains([' ', '{']) && !name.is_empty() && !is_there(name, dev) {
                    let place = format!("{path}:{}", index + 1);
                    let problem = format!("./dev doesn't install {name}: see `need_tools` there");
                    findings.push(Finding::error(place, problem));
                }
            }
        }
    }
    findings
}

fn is_there(program: &str, dev: &str) -> bool {
    let is_needed = |program: &str| {
        let mut words = dev.split_whitespace();
        words.any(|word| {
            word.trim_end_matches(';').split_once(':').is_some_and(|(_, p)| p == program)
        })
    };
    let related = RELATED.iter().find(|(_, programs)| programs.contains(&program));
    EVERYWHERE.contains(&program)
        || is_needed(related.map_or(program, |(installed_for, _)| installed_for))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_nobody_installs_are_found() {
        let dev = "need e2fsprogs:mke2fs tar:tar; fi";
        let text =
            "let a = Command::new(\"tar\");\nlet b = run(\"e2fsck\", x);\nif have(\"odd\") {}\n";
        let found = check("crates/x/tests/a.rs", text, dev);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place, "crates/x/tests/a.rs:3");
        assert_eq!(check("crates/x/src/a.rs", text, dev), []);
    }
}
