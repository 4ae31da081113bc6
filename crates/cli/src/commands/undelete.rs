//! `undelete`: lists deleted files, and brings them back.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::AtImage;
use crate::location::whole_image;
use crate::messages::tell;
use crate::output::{Escaped, NameJson, counted, time_exact, type_letter};
use crate::progress::Steps;
use crate::size;
use crate::terminal::Output;
use drystone::inspection::{DeletedFile, KnowledgeSource, Recoverable};
use drystone::vfs::{FileType, Timestamp};
use drystone::{UndeleteOptions, Undeleted};
use jiff::tz::TimeZone;
use serde::Serialize;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// List deleted files of an ext4 image, and bring them back
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --to, the command lists the deleted files that the inode tables or the journal still know: inode, time of the \
deletion, type, size, how many blocks of data nothing else uses, where this was found, and the path, which starts \
with '…' if a directory above has no name. Nothing leads to the content of a 'lost' file any more: Linux and drystone \
clear the extents of a deleted file, so that only an earlier copy of its inode in the journal can bring it back.

With --to, the files are written into DIR, a new or empty directory outside the image, under their paths, or as inode-N. \
Unmount the image first, or remount it read-only, because every write may take blocks of deleted files. The command \
doesn't change the image. A file that has lost some of its blocks is written only with --partial, with zeros in their \
place. Permissions and times of files are kept, owners and extended attributes aren't. Only you may enter the \
new directories.

Exit codes: 0 done; 1 some files could not be brought back, and were named (with --all, lost files, devices, pipes and \
sockets are only counted); 2 called wrongly.

Examples:
  drystone undelete disk.img
  drystone undelete --json disk.img | jq 'select(.recoverable == \"whole\") | .name'
  drystone undelete disk.img --all --to recovered
  drystone undelete disk.img --all --partial --to pieces")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
    /// The inodes of the files to bring back, each with all its versions.
    #[arg(value_name = "INODE", requires = "to", conflicts_with = "all")]
    inodes: Vec<u32>,
    /// Bring back all files.
    #[arg(long, requires = "to")]
    all: bool,
    /// The directory to write the files into, which is made or must be empty.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Also write files of which only a part is left.
    #[arg(long, requires = "to")]
    partial: bool,
}

/// A deleted file in JSON.
#[derive(Serialize)]
struct DeletedJson {
    #[serde(flatten)]
    name: Option<NameJson>,
    inode: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    file_type: Option<FileType>,
    size: u64,
    blocks: u64,
    free_blocks: u64,
    recoverable: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<String>,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    committed: Option<String>,
    encrypted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<String>,
}

impl DeletedJson {
    fn new(file: &DeletedFile) -> DeletedJson {
        let (source, transaction, committed) = match file.source {
            KnowledgeSource::InodeTable => ("inode_table", None, None),
            KnowledgeSource::Journal { transaction, committed } => {
                ("journal", Some(transaction), committed)
            }
        };
        DeletedJson {
            name: file.path.as_deref().map(NameJson::from),
            inode: file.inode.get(),
            version: file.version,
            file_type: FileType::from_mode(file.mode),
            size: file.size_bytes,
            blocks: file.blocks,
            free_blocks: file.free_blocks,
            recoverable: match file.recoverable() {
                Recoverable::Whole => "whole",
                Recoverable::Part => "part",
                Recoverable::Nothing => "nothing",
            },
            deleted: file.deleted.map(|seconds| exact(seconds.into())),
            source,
            transaction,
            committed: committed.map(exact),
            encrypted: file.is_encrypted,
            written: None,
        }
    }
}

/// Seconds since 1970.
fn exact(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    time_exact(Timestamp { seconds, nanoseconds: 0 }, &TimeZone::UTC)
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    match &arguments.to {
        None => list(&arguments.image, global),
        Some(_) if arguments.inodes.is_empty() && !arguments.all => {
            Err(Failure::Usage("name the inodes to bring back, or use --all".to_string()))
        }
        Some(to) => bring_back(arguments, to, global),
    }
}

fn list(path: &Path, global: &Global) -> Outcome {
    let steps = Steps::new(global.quiet);
    let files =
        drystone::deleted_files(path, &mut |step, done, total| steps.step(step, done, total));
    steps.end();
    let files = files.at_image(path)?;
    if files.is_empty() && !global.quiet && !global.json {
        tell(format_args!("{}: nothing is known of deleted files", path.display()));
    }
    Output::with_stdout(global.json, |output| {
        if !output.json && !files.is_empty() {
            let [inode, deleted, size, left] = ["INODE", "DELETED (UTC)", "SIZE", "LEFT"];
            writeln!(
                output,
                "{inode:>8}  {deleted:<19}  T  {size:>6}  {left:<15}  {:<19}  PATH",
                "FROM"
            )?;
        }
        for file in &files {
            if output.json {
                output.json(&DeletedJson::new(file))?;
            } else {
                line(output, file)?;
            }
        }
        Ok(())
    })
}

fn line(output: &mut Output<'_>, file: &DeletedFile) -> Outcome {
    let inode = numbered(file);
    let deleted = file.deleted.map_or("-".to_string(), |seconds| {
        // Without fraction and zone.
        exact(seconds.into()).replace('T', " ").chars().take(19).collect()
    });
    let letter = FileType::from_mode(file.mode).map_or('?', type_letter);
    let left = match file.recoverable() {
        Recoverable::Nothing if file.blocks == 0 => "lost".to_string(),
        _ if file.blocks == 0 => "all".to_string(),
        _ => format!("{} of {}", file.free_blocks, file.blocks),
    };
    let from = match file.source {
        KnowledgeSource::InodeTable => "inode table".to_string(),
        KnowledgeSource::Journal { transaction, .. } => format!("journal {transaction}"),
    };
    let size = size::human(file.size_bytes);
    write!(output, "{inode:>8}  {deleted:<19}  {letter}  {size:>6}  {left:<15}  ")?;
    match &file.path {
        Some(path) => {
            write!(output, "{from:<19}  ")?;
            output.name(path)?;
        }
        None => write!(output, "{from}")?,
    }
    writeln!(output)?;
    Ok(())
}

/// The inode, with the version if it has been several files.
fn numbered(file: &DeletedFile) -> String {
    let version = file.version.map_or(String::new(), |version| format!(".{version}"));
    format!("{}{version}", file.inode)
}

fn bring_back(arguments: &Arguments, to: &Path, global: &Global) -> Outcome {
    let path = &arguments.image;
    let mut options = UndeleteOptions::default();
    options.inodes.clone_from(&arguments.inodes);
    options.partial = arguments.partial;
    let mut unknown = arguments.inodes.clone();
    let (mut failed, mut lost, mut not_made, mut written) = (0u64, 0u64, 0u64, Vec::new());
    let steps = Steps::new(global.quiet);
    let mut told = |file: &DeletedFile, became: &Undeleted| {
        steps.end();
        unknown.retain(|inode| *inode != file.inode.get());
        let name = match &file.path {
            Some(path) => format!("inode {} ({})", numbered(file), Escaped(path)),
            None => format!("inode {}", numbered(file)),
        };
        let problem = match became {
            Undeleted::Written(at) | Undeleted::WrittenBare(at, _) => {
                if let Undeleted::WrittenBare(_, error) = became {
                    tell(format_args!("{name}: permissions and times aren't kept: {error}"));
                }
                if is_directory(file) && !arguments.all {
                    tell(format_args!(
                        "{name}: made without its files; name their inodes too, or use --all"
                    ));
                }
                if file.free_blocks < file.blocks && !is_directory(file) {
                    let missing = file.blocks - file.free_blocks;
                    tell(format_args!("{name}: {missing} of {} blocks are zeros", file.blocks));
                }
                written.push((file.clone(), at.clone()));
                return;
            }
            Undeleted::Lost if arguments.all => {
                lost += 1;
                return;
            }
            Undeleted::NotMade if arguments.all => {
                not_made += 1;
                return;
            }
            Undeleted::Partial => format!(
                "only {} of {} blocks are left: --partial writes them",
                file.free_blocks, file.blocks
            ),
            Undeleted::Lost => "nothing leads to its content any more".to_string(),
            Undeleted::Encrypted => "it is encrypted".to_string(),
            Undeleted::Failed(error) => error.to_string(),
            _ => "only files, symbolic links and directories with names are written".to_string(),
        };
        tell(format_args!("{name}: {problem}"));
        failed += 1;
    };
    let mut progress = |step: &'static str, done: u64, total: u64| steps.step(step, done, total);
    let done = drystone::undelete(path, to, &options, &mut progress, &mut told);
    steps.end();
    done.at_image(path)?;
    for inode in &unknown {
        tell(format_args!("inode {inode}: no deleted file with it is known"));
    }
    if lost > 0 && !global.quiet {
        let files = counted(lost, "file");
        tell(format_args!("lost, because nothing leads to the content any more: {files}"));
    }
    if not_made > 0 && !global.quiet {
        let files = counted(not_made, "file");
        tell(format_args!("not made (devices, pipes, sockets, nameless directories): {files}"));
    }
    Output::with_stdout(global.json, |output| {
        for (file, at) in &written {
            if output.json {
                let written = Some(at.to_string_lossy().into_owned());
                output.json(&DeletedJson { written, ..DeletedJson::new(file) })?;
            } else if !global.quiet {
                write!(output, "{}: ", numbered(file))?;
                output.name(at.as_os_str().as_bytes())?;
                writeln!(output)?;
            }
        }
        Ok(())
    })?;
    if failed > 0 || !unknown.is_empty() { Err(Failure::Reported) } else { Ok(()) }
}

fn is_directory(file: &DeletedFile) -> bool {
    FileType::from_mode(file.mode) == Some(FileType::Directory)
}
