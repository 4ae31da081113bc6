//! Installs the command with its manual pages, completions and the links for mount(8), below a prefix.
//! Packages are made from the same tree.

use crate::manual;
use crate::notices;
use crate::process;
use anyhow::Context;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Scripts for shells: the shell, and where below the prefix it looks.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/drystone"),
    ("zsh", "share/zsh/site-functions/_drystone"),
    ("fish", "share/fish/vendor_completions.d/drystone.fish"),
];

/// The names that mount(8) and umount(8) call the command by, in `sbin`.
const HELPERS: [&str; 2] = ["mount.fuse.drystone", "umount.fuse.drystone"];

/// Texts, in `share/doc/drystone`.
const TEXTS: [&str; 5] =
    ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "docs/srv-data.mount"];

/// The licences of libraries in the program.
const NOTICES: &str = "share/doc/drystone/third-party-licences";

/// The list of what is installed, for who removes it.
const LIST: &str = "share/doc/drystone/installed";

#[derive(clap::Args)]
pub struct Options {
    /// Where bin/, sbin/ and share/ are.
    #[arg(long, default_value = "/usr/local")]
    prefix: PathBuf,
    /// A folder that stands for the root directory: files go to DESTDIR/PREFIX.
    #[arg(long)]
    destdir: Option<PathBuf>,
}

/// Builds the command and installs it.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let prefix = std::path::absolute(&options.prefix)?;
    let below_root = prefix.strip_prefix("/").unwrap_or(&prefix);
    let place = options.destdir.as_ref().map(|root| root.join(below_root));
    let place = place.unwrap_or(prefix.clone());
    let mut tree = Tree::new(&place);
    tree.fill(&build()?)?;
    let count = tree.list()?;
    println!("installed {count} files below {}", place.display());
    if prefix != Path::new("/usr") && options.destdir.is_none() {
        println!("for mount(8): ln -s {}/bin/drystone /sbin/{}", prefix.display(), HELPERS[0]);
    }
    Ok(())
}

/// Builds the command; gives its path.
fn build() -> anyhow::Result<PathBuf> {
    let words = ["build", "--release", "--locked", "--package", "drystone-cli"];
    process::run(&mut process::cargo(words))?;
    Ok(process::target_directory().join("release/drystone"))
}

/// What is installed below a prefix.
pub struct Tree {
    prefix: PathBuf,
    /// Relative to the prefix.
    files: Vec<String>,
}

impl Tree {
    /// Nothing yet.
    pub fn new(prefix: &Path) -> Tree {
        Tree { prefix: prefix.to_path_buf(), files: Vec::new() }
    }

    /// Installs everything.
    pub fn fill(&mut self, program: &Path) -> anyhow::Result<()> {
        self.copy(program, "bin/drystone", 0o755)?;
        for helper in HELPERS {
            self.link("../bin/drystone", &format!("sbin/{helper}"))?;
        }
        for (shell, name) in COMPLETIONS {
            let script = process::output(Command::new(program).args(["completions", shell]))?;
            self.write(name, &script)?;
        }
        let pages = process::target_directory().join("manual");
        manual::write(&pages)?;
        for page in manual::names(&pages)? {
            self.copy(&pages.join(&page), &format!("share/man/man1/{page}"), 0o644)?;
        }
        for helper in HELPERS {
            let command = helper.split('.').next().unwrap_or_default();
            let text = format!(".so man1/drystone-{command}.1\n");
            self.write(&format!("share/man/man8/{helper}.8"), &text)?;
        }
        for text in TEXTS {
            let name = text.rsplit('/').next().unwrap_or(text);
            self.copy(Path::new(text), &format!("share/doc/drystone/{name}"), 0o644)?;
        }
        self.write(NOTICES, &notices::text()?)
    }

    /// Installs the list of what has been installed; gives the number of files in it.
    pub fn list(mut self) -> anyhow::Result<usize> {
        self.files.push(LIST.to_owned());
        let lines: String = self.files.iter().map(|file| format!("{file}\n")).collect();
        self.write(LIST, &lines)?;
        Ok(self.files.len() - 1)
    }

    /// The path of a file, below folders that there are.
    fn place(&mut self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.prefix.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        // Programs that use an old file go on with it.
        let _ = fs::remove_file(&path);
        self.files.push(name.to_owned());
        Ok(path)
    }

    fn copy(&mut self, from: &Path, name: &str, mode: u32) -> anyhow::Result<()> {
        let path = self.place(name)?;
        fs::copy(from, &path)
            .and_then(|_| fs::set_permissions(&path, PermissionsExt::from_mode(mode)))
            .with_context(|| format!("{} to {}", from.display(), path.display()))
    }

    fn write(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.place(name)?;
        fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, PermissionsExt::from_mode(0o644)))
            .with_context(|| path.display().to_string())
    }

    fn link(&mut self, target: &str, name: &str) -> anyhow::Result<()> {
        let path = self.place(name)?;
        symlink(target, &path).with_context(|| path.display().to_string())
    }
}
