//! Programs in C are compiled against the header and the libraries, and run.
#![allow(clippy::unwrap_used)]

use drystone_testkit::judges;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEADER: &str = "include/drystone.h";

/// Where cargo has put the libraries: beside this program.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    said
}

fn compiler() -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g"]);
    cc.arg("-I").arg(Path::new(HEADER).parent().unwrap());
    cc
}

#[test]
fn the_header_is_current() {
    let mut made = Vec::new();
    let bindings = cbindgen::generate(env!("CARGO_MANIFEST_DIR")).unwrap();
    bindings.write(&mut made);
    let made = String::from_utf8(made).unwrap();
    if std::env::var_os("DRYSTONE_WRITE_HEADER").is_some() {
        fs::write(HEADER, &made).unwrap();
    }
    let there = fs::read_to_string(HEADER).unwrap();
    assert!(there == made, "run this test with DRYSTONE_WRITE_HEADER=1, and commit {HEADER}");
}

/// The names of functions that the header declares.
fn declared(header: &str) -> BTreeSet<&str> {
    let words = header.split(|c: char| !c.is_alphanumeric() && c != '_');
    let is_function = |word: &&str| header.contains(&format!("{word}("));
    words.filter(|word| word.starts_with("drystone_")).filter(is_function).collect()
}

#[test]
fn the_header_suits_old_and_strict_compilers() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("only.c");
    fs::write(&source, "#include <drystone.h>\nint main(void) { return drystone_errno(); }\n")
        .unwrap();
    for [compiler, language, standard] in [
        ["cc", "c", "-std=c99"],
        ["cc", "c", "-std=c17"],
        ["c++", "c++", "-std=c++98"],
        ["c++", "c++", "-std=c++20"],
    ] {
        let mut command = Command::new(compiler);
        // C++98 has no integer types of a certain size, but its compilers do.
        command.args(["-x", language, standard, "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]);
        command.arg("-I").arg(Path::new(HEADER).parent().unwrap()).arg(&source);
        run(&mut command);
    }
}

#[test]
fn the_library_has_the_functions_of_the_header_and_no_other() {
    let header = fs::read_to_string(HEADER).unwrap();
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only", "--format=just-symbols"]);
    let exported = run(nm.arg(libraries().join("libdrystone_capi.so")));
    assert_eq!(exported.lines().collect::<BTreeSet<_>>(), declared(&header));
}

/// What runs outside the border can't fail: it returns a constant, or what a thread has noted.
#[test]
fn every_function_catches_panics() {
    const CANNOT_PANIC: [&str; 4] =
        ["drystone_errno", "drystone_message", "drystone_version", "drystone_free"];
    let mut seen = 0;
    for entry in fs::read_dir("src").unwrap() {
        let source = fs::read_to_string(entry.unwrap().path()).unwrap();
        for function in source.split("extern \"C\" fn ").skip(1) {
            let (name, rest) = function.split_once('(').unwrap();
            if !name.starts_with("drystone_") || CANNOT_PANIC.contains(&name) {
                continue;
            }
            let (_, body) = rest.split_once("{\n").unwrap();
            let first =
                body.lines().find(|line| !line.trim_start().starts_with("use ")).unwrap().trim();
            let is_caught =
                ["answer(||", "done(||", "at(image, "].iter().any(|call| first.starts_with(call));
            assert!(is_caught, "{name} begins with: {first}");
            seen += 1;
        }
    }
    let header = fs::read_to_string(HEADER).unwrap();
    assert_eq!(seen + CANNOT_PANIC.len(), declared(&header).len());
}

#[test]
fn every_function_does_what_the_header_says() {
    let program = fs::read_to_string("tests/every_function.c").unwrap();
    let header = fs::read_to_string(HEADER).unwrap();
    for function in declared(&header) {
        assert!(program.contains(&format!("{function}(")), "{function} isn't called");
    }

    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("here");
    fs::create_dir(&here).unwrap();
    fs::write(here.join("file"), "content").unwrap();
    let binary = folder.path().join("every_function");
    let library = libraries().join("libdrystone_capi.so");
    // Under its name; the file of that name is made when it is installed.
    std::os::unix::fs::symlink(&library, folder.path().join("libdrystone.so.0")).unwrap();
    let version = format!("-DVERSION=\"{}\"", env!("CARGO_PKG_VERSION"));
    let mut cc = compiler();
    cc.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", &version]);
    cc.arg("tests/every_function.c").arg(&library).arg("-o").arg(&binary);
    run(&mut cc);
    let mut program = Command::new(&binary);
    run(program.arg(folder.path()).env("LD_LIBRARY_PATH", folder.path()));
    // The sanitizer watches: the same program with a fault is stopped.
    let mut faulty = Command::new(&binary);
    faulty.arg(folder.path()).arg("read into a buffer that is too small");
    let stopped = faulty.env("LD_LIBRARY_PATH", folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&stopped.stderr);
    assert!(!stopped.status.success() && said.contains("heap-buffer-overflow"), "{said}");
    assert_eq!(fs::read(folder.path().join("back/file")).unwrap(), b"content");
    judges::e2fsck_check(&folder.path().join("disk.img"))
        .unwrap()
        .expect_clean("after all functions");
}

#[test]
fn the_code_of_an_unloaded_library_stays() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("unload");
    let mut cc = compiler();
    run(cc.arg("tests/unload.c").args(["-ldl", "-lpthread", "-o"]).arg(&binary));
    let image = folder.path().join("disk.img");
    run(Command::new(&binary).arg(libraries().join("libdrystone_capi.so")).arg(image));
}

#[test]
fn the_example_of_the_guide_links_statically() {
    let guide = fs::read_to_string("../../docs/src/guide/c.md").unwrap();
    let (_, from) = guide.split_once("```c\n").unwrap();
    let (example, _) = from.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("example.c");
    fs::write(&source, example).unwrap();
    let binary = folder.path().join("example");
    let mut cc = compiler();
    cc.arg(&source).arg(libraries().join("libdrystone_capi.a"));
    cc.args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-o"]).arg(&binary);
    run(&mut cc);
    let said = run(Command::new(&binary).current_dir(folder.path()));
    assert_eq!(said, "/\n/greeting: 6 bytes\n/lost+found\n");
}
