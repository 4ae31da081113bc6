//! `quota`: shows and limits what users, groups and projects use.

mod show;
pub mod span;

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::{Intent, close, open};
use crate::location::whole_image;
use crate::size;
use crate::terminal::Output;
use anyhow::anyhow;
use drystone::{FileSystemKind, Image, QuotaKind, QuotaLimits};
use std::path::PathBuf;

/// Show and set what users, groups and projects may use
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without a limit or a grace period to set, the command lists the usage of everybody, or of the one that \
is named. A hard limit is never exceeded; a soft limit may be exceeded until its grace period has \
passed; 0 means no limit. Setting a limit that is exceeded begins a new grace period. Users and groups \
are numbers: an image has names of its own for them, if any. The image must count usage ('drystone \
mkfs -O quota,project'). Drystone enforces the limits in every mount; the kernel needs 'mount -o \
usrquota,grpquota,prjquota'.

Examples:
  drystone quota quota.img
  drystone quota quota.img --user 1000 --space-soft 1G --space-hard 2G
  drystone quota quota.img --project 7 --inodes-soft 1000 --inodes-hard 0
  drystone quota quota.img --space-grace 3d --inodes-grace 12h
  drystone quota quota.img --user 1000 --json")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
    #[command(flatten)]
    who: QuotaOwnerArguments,
    #[command(flatten)]
    limits: LimitChange,
    /// The grace period of soft limits of space, for users, groups and projects: 7d, 12h, 30m, 90s.
    #[arg(long, value_name = "TIME", value_parser = span::parse, conflicts_with_all = ["who", "limits"])]
    space_grace: Option<u32>,
    /// The grace period of soft limits of inodes.
    #[arg(long, value_name = "TIME", value_parser = span::parse, conflicts_with_all = ["who", "limits"])]
    inodes_grace: Option<u32>,
}

#[derive(Debug, clap::Args)]
#[group(id = "who", multiple = false)]
struct QuotaOwnerArguments {
    /// A user, as a number.
    #[arg(short, long, value_name = "ID")]
    user: Option<u32>,
    /// A group, as a number.
    #[arg(short, long, value_name = "ID")]
    group: Option<u32>,
    /// A project, as a number.
    #[arg(short = 'P', long, value_name = "ID")]
    project: Option<u32>,
}

#[derive(Debug, clap::Args)]
#[group(id = "limits", multiple = true, requires = "who")]
struct LimitChange {
    /// The soft limit of space: 500M, 1.5G.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    space_soft: Option<u64>,
    /// The hard limit of space.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    space_hard: Option<u64>,
    /// The soft limit of inodes: files, directories and all else.
    #[arg(long, value_name = "COUNT")]
    inodes_soft: Option<u64>,
    /// The hard limit of inodes.
    #[arg(long, value_name = "COUNT")]
    inodes_hard: Option<u64>,
}

impl QuotaOwnerArguments {
    fn owner(&self) -> Option<(QuotaKind, u32)> {
        let user = self.user.map(|id| (QuotaKind::User, id));
        let group = self.group.map(|id| (QuotaKind::Group, id));
        user.or(group).or(self.project.map(|id| (QuotaKind::Project, id)))
    }
}

impl LimitChange {
    fn is_any(&self) -> bool {
        let LimitChange { space_soft, space_hard, inodes_soft, inodes_hard } = self;
        [space_soft, space_hard, inodes_soft, inodes_hard].iter().any(|limit| limit.is_some())
    }

    /// The limits, where none is given those that there are.
    fn over(&self, before: QuotaLimits) -> QuotaLimits {
        let units = |bytes: u64| bytes.div_ceil(drystone::SPACE_LIMIT_UNIT);
        QuotaLimits {
            space_soft: self.space_soft.map_or(before.space_soft, units),
            space_hard: self.space_hard.map_or(before.space_hard, units),
            inodes_soft: self.inodes_soft.unwrap_or(before.inodes_soft),
            inodes_hard: self.inodes_hard.unwrap_or(before.inodes_hard),
        }
    }
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let path = &arguments.image;
    let sets_grace = arguments.space_grace.is_some() || arguments.inodes_grace.is_some();
    let sets_limits = arguments.limits.is_any();
    let intent = if sets_limits || sets_grace { Intent::Change } else { Intent::Read };
    let image = open(path, intent, global)?;
    let done = match arguments.who.owner() {
        Some((kind, id)) if sets_limits => set_limits(&image, kind, id, &arguments.limits),
        _ if sets_grace => set_grace(&image, arguments),
        owner => Output::with_stdout(global.json, |output| {
            show::reports(&reports(&image)?, owner, output)
        }),
    };
    let named = done.map_err(|failure| match failure {
        Failure::Failed(error) => Failure::Failed(error.context(path.display().to_string())),
        other => other,
    });
    close(path, image, named)
}

fn reports(image: &Image) -> Outcome<Vec<drystone::QuotaReport>> {
    let reports = image.quotas()?;
    if reports.is_empty() {
        return Err(match image.kind() {
            FileSystemKind::Ext4 => {
                anyhow!("usage isn't counted: the image lacks the feature 'quota'")
            }
            FileSystemKind::Nilfs2 => anyhow!("NILFS2 has no quotas"),
        }
        .into());
    }
    Ok(reports)
}

fn set_limits(image: &Image, kind: QuotaKind, id: u32, limits: &LimitChange) -> Outcome {
    let reports = reports(image)?;
    let report = reports.iter().find(|report| report.kind == kind);
    let report = report.ok_or_else(|| anyhow!("usage of {kind}s isn't counted"))?;
    let entry = report.entries.iter().find(|entry| entry.id == id);
    let before = entry.map_or(QuotaLimits::default(), QuotaLimits::of);
    Ok(image.set_quota_limits(kind, id, &limits.over(before))?)
}

fn set_grace(image: &Image, arguments: &Arguments) -> Outcome {
    for report in reports(image)? {
        let space = arguments.space_grace.unwrap_or(report.info.space_grace_seconds);
        let inodes = arguments.inodes_grace.unwrap_or(report.info.inode_grace_seconds);
        image.set_quota_grace(report.kind, space, inodes)?;
    }
    Ok(())
}
