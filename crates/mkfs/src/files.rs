//! The inodes that every image has: root, lost+found, journal, orphan file, quota files, the resize
//! inode.

use crate::error::Result;
use crate::map::{BlocksToWrite, map};
use crate::options::MkfsOptions;
use crate::plan::{ImagePlan, fast_commit_blocks};
use crate::resize;
use crate::space::{BlockRun, Space};
use drystone_ext4_format::dir::{
    self, DirectoryBlockBuilder, DirectoryLayout, EntryType, NewEntry,
};
use drystone_ext4_format::features::{Compat, Incompat, ReadOnlyCompat};
use drystone_ext4_format::inode::{Inode, InodeFlags, InodeTimestamp};
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::orphan_file::{self, OrphanPlace};
use drystone_ext4_format::quota::{QuotaEntry, QuotaKind, build};
use drystone_ext4_format::superblock::{JournalBackup, Superblock};
use drystone_ext4_format::{GroupNumber, InodeNumber, InodeSeed, PhysicalBlock};
use drystone_jbd2_format::{IncompatFeatures, NewJournal, format_journal_superblock};
use std::collections::BTreeMap;

/// Least bytes of lost+found: a checker must be able to add names there without allocating.
pub(crate) const LOST_FOUND_BYTES: usize = 16 * 1024;
/// Most blocks of lost+found: as many as an inode maps directly.
pub(crate) const LOST_FOUND_BLOCKS_MAX: usize = 12;
const FILE_MODE: u16 = 0o100_600;

/// All inodes of a new image, and the blocks that they fill.
pub(crate) struct SystemFiles {
    options: MkfsOptions,
    layout: Layout,
    pub space: Space,
    pub inodes: BTreeMap<u32, Inode>,
    pub blocks: BlocksToWrite,
    /// The first inode that isn't in use.
    pub next_inode: u32,
    /// Where the journal lies.
    pub journal: Vec<BlockRun>,
}

impl SystemFiles {
    /// No inodes yet; in `space` the fixed metadata is taken already.
    pub fn new(options: &MkfsOptions, layout: &Layout, space: Space) -> SystemFiles {
        SystemFiles {
            options: options.clone(),
            layout: *layout,
            space,
            inodes: BTreeMap::new(),
            blocks: BlocksToWrite::new(),
            next_inode: layout.first_inode().get(),
            journal: Vec::new(),
        }
    }

    /// Makes all that the plan asks for.
    pub fn make(&mut self, plan: &ImagePlan, superblock: &mut Superblock) -> Result<()> {
        self.make_directories(superblock)?;
        self.make_rest(plan, superblock)
    }

    /// Makes everything except the directories.
    pub fn make_rest(&mut self, plan: &ImagePlan, superblock: &mut Superblock) -> Result<()> {
        let features = superblock.features();
        if features.compat.contains(Compat::RESIZE_INODE) {
            self.make_resize_inode()?;
        }
        if plan.journal_blocks > 0 {
            self.make_journal(plan.journal_blocks, superblock)?;
        }
        if features.compat.contains(Compat::ORPHAN_FILE) {
            self.make_orphan_file(superblock)?;
        }
        if features.incompat.contains(Incompat::MMP) {
            let block =
                self.space.take_contiguous(GroupNumber::FIRST, 1, "multi-mount protection")?;
            superblock.set_mmp_block(Some(block));
        }
        if features.read_only_compat.contains(ReadOnlyCompat::QUOTA) {
            self.make_quota_files(superblock)?;
        }
        Ok(())
    }

    fn new_inode(&self, number: InodeNumber, mode: u16) -> Inode {
        // Times of inodes are signed; those of the superblock are not.
        let now = InodeTimestamp::from_seconds(self.options.time_seconds as i64);
        Inode::new(number, mode, now, &self.layout)
    }

    pub fn take_inode(&mut self) -> InodeNumber {
        self.next_inode += 1;
        InodeNumber::new(self.next_inode - 1)
    }

    fn seed(&self, inode: &Inode) -> Option<InodeSeed> {
        inode.seed(&self.layout)
    }

    /// Maps new blocks with this content; the last one is filled with zeros.
    fn fill(&mut self, inode: &mut Inode, content: &[u8], what: &'static str) -> Result<()> {
        let block_size = self.layout.block_size();
        let count = content.len().div_ceil(block_size) as u32;
        let runs = self.space.take_all(GroupNumber::FIRST, count, what)?;
        let numbers = runs.iter().flat_map(|run| run.start..run.start + u64::from(run.length));
        for (number, piece) in numbers.zip(content.chunks(block_size)) {
            let mut block = piece.to_vec();
            block.resize(block_size, 0);
            self.blocks.insert(number, block);
        }
        inode.size_bytes = content.len() as u64;
        let seed = self.seed(inode);
        map(inode, &runs, &self.layout, seed, &mut self.space, &mut self.blocks)
    }

    fn add(&mut self, inode: Inode) {
        self.inodes.insert(inode.number.get(), inode);
    }

    fn make_directories(&mut self, superblock: &mut Superblock) -> Result<()> {
        let lost_found = self.take_inode();
        let mut root = self.new_inode(InodeNumber::ROOT, 0o040_755);
        root.links_count = 3;
        (root.user, root.group) = self.options.root_owner;
        let shape = self.directory_layout(&root);
        let mut bytes = vec![0; self.layout.block_size()];
        let mut builder = DirectoryBlockBuilder::new(&mut bytes, &shape);
        let entries = [
            (&b"."[..], InodeNumber::ROOT),
            (b"..", InodeNumber::ROOT),
            (b"lost+found", lost_found),
        ];
        for (name, inode) in entries {
            let entry = NewEntry { name, inode, entry_type: EntryType::Directory, hash: None };
            assert!(builder.push(&entry).is_ok(), "the smallest block holds three entries");
        }
        builder.finish();
        dir::seal(&mut bytes, &shape);
        self.fill(&mut root, &bytes, "the root directory")?;
        self.add(root);

        let mut inode = self.new_inode(lost_found, 0o040_700);
        inode.links_count = 2;
        let shape = self.directory_layout(&inode);
        let block_size = self.layout.block_size();
        let blocks = (LOST_FOUND_BYTES / block_size).clamp(2, LOST_FOUND_BLOCKS_MAX);
        let mut content = vec![0; blocks * block_size];
        for (index, block) in content.chunks_mut(block_size).enumerate() {
            if index == 0 {
                dir::init_with_dots(block, &shape, lost_found, InodeNumber::ROOT);
            } else {
                dir::init_empty(block, &shape);
            }
            dir::seal(block, &shape);
        }
        self.fill(&mut inode, &content, "lost+found")?;
        self.add(inode);
        superblock.set_lost_found_inode(None);
        Ok(())
    }

    pub fn directory_layout(&self, inode: &Inode) -> DirectoryLayout {
        DirectoryLayout {
            file_type: self.layout.features().incompat.contains(Incompat::FILETYPE),
            checksum: self.seed(inode),
            encrypted: false,
            casefolded: false,
            inode_last: InodeNumber::new(self.layout.inodes_count()),
        }
    }

    fn make_resize_inode(&mut self) -> Result<()> {
        let mut inode = self.new_inode(InodeNumber::RESIZE, FILE_MODE);
        resize::map_reserved(&mut inode, &self.layout, &mut self.space, &mut self.blocks)?;
        self.add(inode);
        Ok(())
    }

    fn make_journal(&mut self, length: u32, superblock: &mut Superblock) -> Result<()> {
        let mut inode = self.new_inode(InodeNumber::JOURNAL, FILE_MODE);
        // The middle of the device is the nearest to everything.
        let goal = GroupNumber::new(self.layout.group_count() / 2);
        let runs = self.space.take_all(goal, length, "the journal")?;
        let seed = self.seed(&inode);
        map(&mut inode, &runs, &self.layout, seed, &mut self.space, &mut self.blocks)?;
        let block_size = self.layout.block_size() as u32;
        inode.size_bytes = u64::from(length) * u64::from(block_size);
        let journal = NewJournal {
            block_size_bytes: block_size,
            length_blocks: length,
            first_block: 1,
            uuid: superblock.uuid(),
            users: Vec::new(),
            user_count: 1,
            incompat: IncompatFeatures::empty(),
            fast_commit_blocks: fast_commit_blocks(superblock.features(), length),
        };
        self.blocks.insert(runs[0].start, format_journal_superblock(&journal).into_vec());
        self.journal = runs;
        superblock.set_journal_inode(Some(inode.number));
        superblock.set_journal_backup(Some(&JournalBackup {
            block_area: inode.block_area,
            size_bytes: inode.size_bytes,
        }));
        self.add(inode);
        Ok(())
    }

    fn make_orphan_file(&mut self, superblock: &mut Superblock) -> Result<()> {
        let number = self.take_inode();
        let mut inode = self.new_inode(number, FILE_MODE);
        let blocks = orphan_file::default_length(self.layout.blocks_count());
        let runs = self.space.take_all(GroupNumber::FIRST, blocks, "the orphan file")?;
        let seed = self.seed(&inode);
        for block in runs.iter().flat_map(|run| run.start..run.start + u64::from(run.length)) {
            let mut bytes = vec![0; self.layout.block_size()];
            orphan_file::init(&mut bytes);
            let place =
                OrphanPlace { inode: number, block: PhysicalBlock::new(block), checksum: seed };
            orphan_file::seal(&mut bytes, &place);
            self.blocks.insert(block, bytes);
        }
        map(&mut inode, &runs, &self.layout, seed, &mut self.space, &mut self.blocks)?;
        inode.size_bytes = u64::from(blocks) * self.layout.block_size() as u64;
        superblock.set_orphan_file_inode(Some(number));
        self.add(inode);
        Ok(())
    }

    /// Usage of the only owners there are: those of the directories.
    fn make_quota_files(&mut self, superblock: &mut Superblock) -> Result<()> {
        let project = superblock.features().read_only_compat.contains(ReadOnlyCompat::PROJECT);
        let mut kinds = vec![
            (QuotaKind::User, InodeNumber::USER_QUOTA),
            (QuotaKind::Group, InodeNumber::GROUP_QUOTA),
        ];
        if project {
            kinds.push((QuotaKind::Project, self.take_inode()));
        }
        for (kind, number) in kinds {
            let mut usage: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
            for inode in self.inodes.values().filter(|inode| inode.is_directory()) {
                let owner = match kind {
                    QuotaKind::User => inode.user,
                    QuotaKind::Group => inode.group,
                    QuotaKind::Project => inode.project.unwrap_or(0),
                };
                let entry = usage.entry(owner).or_default();
                entry.0 += inode.sectors * 512;
                entry.1 += 1;
            }
            let entries = usage.into_iter().map(|(id, (space_bytes, inodes))| QuotaEntry {
                id,
                space_bytes,
                inodes,
                ..QuotaEntry::default()
            });
            let content = build(kind, entries);
            let mut inode = self.new_inode(number, FILE_MODE);
            inode.flags |= InodeFlags::IMMUTABLE;
            self.fill(&mut inode, &content, "quota files")?;
            self.add(inode);
            match kind {
                QuotaKind::User => superblock.set_user_quota_inode(Some(number)),
                QuotaKind::Group => superblock.set_group_quota_inode(Some(number)),
                QuotaKind::Project => superblock.set_project_quota_inode(Some(number)),
            }
        }
        Ok(())
    }
}
