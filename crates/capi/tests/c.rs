//! Programs in C are compiled against the header and the libraries, and run.
#![allow(clippy::unwrap_used)]

use drystone_testkit::judges;
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

#[test]
fn every_function_does_what_the_header_says() {
    let program = fs::read_to_string("tests/every_function.c").unwrap();
    let header = fs::read_to_string(HEADER).unwrap();
    let declared = header
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("drystone_") && header.contains(&format!("{word}(")));
    for function in declared {
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
    assert_eq!(fs::read(folder.path().join("back/file")).unwrap(), b"content");
    judges::e2fsck_check(&folder.path().join("disk.img"))
        .unwrap()
        .expect_clean("after all functions");
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
