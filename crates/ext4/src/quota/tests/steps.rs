//! Steps that our mount takes, and that a kernel takes which runs as a program (user-mode Linux) and
//! mounts a twin image.

use crate::testing::TestImage;
use crate::{Ext4, QuotaLimits, credits};
use drystone_ext4_format::quota::{QuotaEntry, QuotaKind};
use drystone_testkit::judges::Scratch;
use drystone_testkit::uml::Guest;
use drystone_vfs::{
    Errno, FileFlags, FileSystem, InodeNumber, NewNode, RenameFlags, RequestContext, SetAttributes,
    XattrMode,
};
use std::cell::RefCell;
use std::time::Duration;

/// An image with blocks of this many bytes; `guest.pl` knows it too.
const IMAGE: &str = "quota-project";
const BLOCK: u64 = 1024;
const IMAGE_MIB: u64 = 32;
/// The directory whose inodes and space belong to a project.
const PROJECT_DIRECTORY: &str = "p";
/// A user in the group of the same number and in another group. The project has that group's number.
const USER: u32 = 1000;
const OTHER: u32 = 2000;
const KINDS: [QuotaKind; 3] = [QuotaKind::User, QuotaKind::Group, QuotaKind::Project];
const DAY_SECONDS: u64 = 86_400;
/// Steps that a failure shows.
const STEPS_SHOWN: usize = 12;
/// How long Linux may take for its steps.
const LIMIT: Duration = Duration::from_secs(300);

/// Our mount.
struct Ours {
    fs: Ext4,
    /// What has been looked up since the last step.
    held: RefCell<Vec<InodeNumber>>,
}

impl Ours {
    /// The directory of a path, and the name in it.
    fn find<'a>(&self, path: &'a str) -> drystone_vfs::Result<(InodeNumber, &'a str)> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = if directory.is_empty() { self.fs.root() } else { self.inode(directory)? };
        Ok((parent, name))
    }

    fn inode(&self, path: &str) -> drystone_vfs::Result<InodeNumber> {
        let (parent, name) = self.find(path)?;
        let inode = self.fs.lookup(&RequestContext::superuser(), parent, name.as_bytes())?.inode;
        self.held.borrow_mut().push(inode);
        Ok(inode)
    }

    /// Takes a step, in the words that `guest.pl` knows.
    fn take(&self, step: &str) -> Result<(), Errno> {
        let fs = &self.fs;
        let words: Vec<_> = step.split(' ').collect();
        let [by, what, how @ ..] = &*words else { panic!("{step}: no step") };
        let number = |word: &str| word.parse::<u64>().expect("a number");
        let context = match number(by) as u32 {
            0 => RequestContext::superuser(),
            user => RequestContext::user(user, user, vec![OTHER]),
        };
        let change = |name: &str, changes: SetAttributes| {
            fs.set_attributes(&context, self.inode(name)?, &changes)?;
            Ok(())
        };
        let make = |name: &str, node: NewNode<'_>, permissions: u16| {
            let (parent, name) = self.find(name)?;
            let made = fs.create(&context, parent, name.as_bytes(), node, permissions)?;
            self.held.borrow_mut().push(made.inode);
            Ok(())
        };
        let done = || match (*what, how) {
            ("limits", [kind, id, limits @ ..]) => {
                let limits: Vec<_> = limits.iter().map(|limit| number(limit)).collect();
                let &[space_soft, space_hard, inodes_soft, inodes_hard] = &*limits else {
                    panic!("{step}: no limits")
                };
                let limits = QuotaLimits { space_soft, space_hard, inodes_soft, inodes_hard };
                let kind = KINDS[number(kind) as usize];
                fs.set_quota_limits(kind, number(id) as u32, &limits).expect("limits");
                Ok(())
            }
            ("grace", [kind, space, inodes]) => {
                let (space, inodes) = (number(space) as u32, number(inodes) as u32);
                fs.set_quota_grace(KINDS[number(kind) as usize], space, inodes).expect("times");
                Ok(())
            }
            ("create", [name]) => make(name, NewNode::Regular, 0o666),
            ("directory", [name]) => make(name, NewNode::Directory, 0o777),
            ("symlink", [name]) => make(name, NewNode::Symlink(&[b'x'; 100]), 0o777),
            ("write", [name, first, count]) => {
                let inode = self.inode(name)?;
                for block in number(first)..number(first) + number(count) {
                    fs.write(&context, inode, block * BLOCK, &[b'x'; BLOCK as usize])?;
                }
                Ok(())
            }
            ("cut", [name, blocks]) => {
                let size = Some(number(blocks) * BLOCK);
                change(name, SetAttributes { size, ..SetAttributes::default() })
            }
            ("owner", [name, user, group]) => {
                let (user, group) = (Some(number(user) as u32), Some(number(group) as u32));
                change(name, SetAttributes { user, group, ..SetAttributes::default() })
            }
            ("project", [name, project]) => {
                let flags = fs.attributes(self.inode(name)?)?.flags | FileFlags::PROJECT_INHERIT;
                let (flags, project) = (Some(flags), Some(number(project) as u32));
                change(name, SetAttributes { flags, project, ..SetAttributes::default() })
            }
            ("unlink", [name]) => {
                let (parent, name) = self.find(name)?;
                fs.unlink(&context, parent, name.as_bytes())
            }
            ("remove-directory", [name]) => {
                let (parent, name) = self.find(name)?;
                fs.remove_directory(&context, parent, name.as_bytes())
            }
            ("rename", [from, into]) => {
                let ((from, name), (into, new)) = (self.find(from)?, self.find(into)?);
                let flags = RenameFlags::empty();
                fs.rename(&context, from, name.as_bytes(), into, new.as_bytes(), flags)
            }
            ("attribute", [name, length]) => {
                let value = vec![b'x'; number(length) as usize];
                fs.set_xattr(&context, self.inode(name)?, b"user.a", &value, XattrMode::Set)
            }
            ("sync", []) => fs.sync(),
            ("days", [days]) => {
                fs.sync()?;
                for file in fs.quotas.files() {
                    let mut handle = fs.volume.start(2 * credits::QUOTA_RECORD).expect("a handle");
                    file.pass(fs, &mut handle, number(days) * DAY_SECONDS).expect("records");
                    handle.stop().expect("the journal works");
                }
                Ok(())
            }
            _ => panic!("{step}: unknown"),
        };
        done().map_err(|error: drystone_vfs::Error| error.errno)
    }

    /// Takes a step, and returns what `guest.pl` prints.
    fn tell(&self, step: &str) -> String {
        let done = self.take(step);
        for inode in self.held.take() {
            self.fs.forget(inode, 1);
        }
        let fs = &self.fs;
        let now = drystone_sync::clock::wall().0;
        let left = |end: u64| match end {
            0 => "-".to_owned(),
            end => (end as i64 - now + 300).div_euclid(600).to_string(),
        };
        let owners = [(0, USER), (1, USER), (1, OTHER), (2, OTHER)];
        let owners = owners.map(|(file, id)| {
            let file = &fs.quotas.files()[file];
            let entry = file.get_with_claim(fs, id).expect("a record").unwrap_or_default();
            let QuotaEntry { space_bytes, inodes, .. } = entry;
            let space_end = left(entry.space_grace_end_seconds);
            format!("{space_bytes},{inodes},{space_end},{}", left(entry.inode_grace_end_seconds))
        });
        let directory = self.inode(PROJECT_DIRECTORY).unwrap_or(fs.root());
        let space = fs.statistics_at(directory).expect("statistics");
        let space = match space.blocks {
            1001.. => "-".to_owned(),
            blocks => format!(
                "{blocks},{},{},{}",
                space.blocks_available, space.inodes, space.inodes_free
            ),
        };
        let error = done.map_or_else(|errno| errno as i32, |()| 0);
        format!("{error} {} {space}", owners.join(" "))
    }
}

/// An image, and a twin for Linux.
pub struct Judged {
    image: TestImage,
    scratch: Scratch,
}

impl Judged {
    pub fn begin() -> Option<Judged> {
        let image = TestImage::new(IMAGE, IMAGE_MIB)?;
        Some(Judged { image, scratch: Scratch::new("quota").expect("a scratch directory") })
    }

    /// What Linux reports after each step; `None` where user-mode Linux is missing.
    pub fn ask_linux(&self, steps: &[String]) -> Option<Vec<String>> {
        let [script, list, twin] =
            ["guest.pl", "steps", "twin"].map(|name| self.scratch.join(name));
        std::fs::write(&script, include_str!("guest.pl")).expect("a script");
        std::fs::write(&list, steps.join("\n")).expect("a list");
        std::fs::copy(self.image.path(), &twin).expect("a copy");
        let guest = Guest::default().disk(twin).limit(LIMIT);
        let guest = guest.module("fs/quota/quota_tree").module("fs/quota/quota_v2");
        let (script, list) = (script.display(), list.display());
        let told = guest.run(&format!(
            "mount -t ext4 -o usrquota,grpquota,prjquota /dev/ubda /mnt; perl {script} {list}"
        ));
        let told = told.expect("user-mode Linux runs")?.expect_clean("the steps");
        Some(told.lines().map(str::to_owned).collect())
    }

    /// Takes the steps, and compares the report after each.
    pub fn take(&self, steps: &[String], expected: &[String]) {
        let ours = Ours { fs: self.image.open(), held: RefCell::default() };
        let everybody = SetAttributes { permissions: Some(0o777), ..SetAttributes::default() };
        let (superuser, root) = (RequestContext::superuser(), ours.fs.root());
        ours.fs.set_attributes(&superuser, root, &everybody).expect("permissions");
        assert_eq!(steps.len(), expected.len());
        for (number, (step, expected)) in steps.iter().zip(expected).enumerate() {
            let before = &steps[number.saturating_sub(STEPS_SHOWN)..=number];
            assert_eq!(&ours.tell(step), expected, "after step {number} of {before:#?}");
        }
        ours.fs.close().expect("a clean end");
        self.image.check("after limits");
    }
}
