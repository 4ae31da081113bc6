//! Writing a tree through the engine, in batches that each end with a checkpoint.

use crate::Error;
use crate::transfer::facts::ACCESS_ACL;
use drystone_ext4_format::acl::permissions_without_list;
use drystone_mkfs::Error as MakeError;
use drystone_mkfs::build::{BuildMonitor, InodeOrder};
use drystone_mkfs::tree::{FileTree, InodeTimestamp, NodeKind, Segment, TreeNodeId};
use drystone_nilfs2::Nilfs2;
use drystone_sync::atomic::{AtomicUsize, Ordering};
use drystone_sync::{Arc, LockClass, Mutex, thread};
use drystone_vfs::{
    DeviceNumber, FileSystem, InodeGuard, InodeNumber, NewNode, RequestContext, SetAttributes,
    SetTime, find_path,
};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The first error of the threads that copy.
static FIRST_ERROR: LockClass = LockClass::new("first error of a build", 5);

/// What is written with one call: the engine keeps room for each.
pub(super) const WRITE_BYTES: usize = 64 << 10;
/// Threads that copy, at most.
pub(super) const WRITERS_MAX: usize = 64;
/// What the engine keeps room for while a name is added.
pub(super) const NAME_CLAIM_BLOCKS: u64 = 6;

/// How many blocks the engine counts as dirty, at most.
pub(super) struct DirtyWeights;

impl DirtyWeights {
    /// What a thread copies at once.
    pub(super) const PIECE_BYTES: u64 = 1 << 20;
    /// A name: the record of its inode, and a block of the directory.
    pub(super) const NAME: u64 = 2;
    /// A directory that has all of its names: its record.
    pub(super) const COMPLETE: u64 = 1;

    /// What a new inode has beside its name: its first block, with a node above it.
    pub(super) fn of_new(kind: NodeKind<'_>) -> u64 {
        match kind {
            NodeKind::Directory | NodeKind::Symlink(_) => 2,
            _ => 0,
        }
    }

    /// How many pieces so much data is copied in. Each counts a block more than it has if it begins in the middle
    /// of one, and a node.
    pub(super) fn pieces(bytes: u64) -> u64 {
        bytes.div_ceil(Self::PIECE_BYTES)
    }
}

/// Data to be copied into a file.
#[derive(Clone, Copy, Debug)]
struct CopyJob {
    inode: InodeNumber,
    node: TreeNodeId,
    /// None for what the tree keeps itself.
    piece: Option<Segment>,
}

/// A batch that is being filled.
#[derive(Debug, Default)]
struct Batch<'a> {
    /// Blocks that the engine counts as dirty when it is copied.
    weight: u64,
    jobs: Vec<CopyJob>,
    /// Files that are complete when the jobs are done.
    complete: Vec<(Arc<InodeGuard<'a>>, TreeNodeId)>,
}

/// See the module.
pub(super) struct Writer<'a> {
    tree: &'a FileTree,
    volume: &'a Nilfs2,
    context: RequestContext,
    threads: usize,
    monitor: &'a dyn BuildMonitor,
    block_bytes: u64,
    batch_blocks: u64,
    batch: Batch<'a>,
    /// What gets further names, by index of node: directories, and files with several names.
    named: Vec<Option<Arc<InodeGuard<'a>>>>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        tree: &'a FileTree,
        volume: &'a Nilfs2,
        threads: usize,
        monitor: &'a dyn BuildMonitor,
        block_bytes: u64,
        batch_blocks: u64,
    ) -> Self {
        Self {
            tree,
            volume,
            context: RequestContext::superuser(),
            threads: threads.clamp(1, WRITERS_MAX),
            monitor,
            block_bytes,
            batch_blocks,
            batch: Batch::default(),
            named: vec![None; tree.node_count()],
        }
    }

    /// Writes all files of the tree.
    pub(super) fn write(mut self, order: &InodeOrder) -> Result<(), Error> {
        let tree = self.tree;
        let root = find_path(self.volume, &self.context, b"/", true);
        let root = root.map_err(|error| self.problem(TreeNodeId::ROOT, &error))?;
        self.set(TreeNodeId::ROOT, root.inode(), &self.owner_and_mode(TreeNodeId::ROOT))?;
        self.named[TreeNodeId::ROOT.index()] = Some(Arc::new(root));
        for &directory in order.nodes().iter().filter(|node| tree.parent(**node).is_some()) {
            let parent = self.named[directory.index()].take();
            let parent = parent.expect("a directory is made with the names of the one above it");
            let mut children: Vec<(&[u8], TreeNodeId)> = tree.children(directory).collect();
            children.sort_unstable_by_key(|&(name, _)| name);
            for (name, node) in children {
                self.add_name(parent.inode(), name, node)?;
            }
            // No name comes or goes any more.
            self.set_time(directory, parent.inode())?;
            self.monitor.wrote(0, 1);
            self.grow(DirtyWeights::COMPLETE)?;
        }
        self.end_batch()
    }

    fn add_name(
        &mut self,
        parent: InodeNumber,
        name: &[u8],
        node: TreeNodeId,
    ) -> Result<(), Error> {
        match &self.named[node.index()] {
            None => self.create(parent, name, node)?,
            Some(known) => {
                let (volume, known) = (self.volume, known.inode());
                let linked = InodeGuard::link(volume, &self.context, known, parent, name);
                linked.map_err(|error| self.problem(node, &error))?;
            }
        }
        self.grow(DirtyWeights::NAME)
    }

    fn create(&mut self, parent: InodeNumber, name: &[u8], node: TreeNodeId) -> Result<(), Error> {
        let kind = self.tree.node(node).kind();
        let device = |major, minor| DeviceNumber { major, minor };
        let new = match kind {
            NodeKind::Directory => NewNode::Directory,
            NodeKind::File { .. } => NewNode::Regular,
            NodeKind::Symlink(target) => NewNode::Symlink(target),
            NodeKind::CharacterDevice { major, minor } => {
                NewNode::CharacterDevice(device(major, minor))
            }
            NodeKind::BlockDevice { major, minor } => NewNode::BlockDevice(device(major, minor)),
            NodeKind::Fifo => NewNode::Fifo,
            NodeKind::Socket => NewNode::Socket,
        };
        let permissions = self.tree.node(node).metadata().permissions;
        let (volume, context) = (self.volume, &self.context);
        let made = InodeGuard::create(volume, context, parent, name, new, permissions);
        let made = Arc::new(made.map_err(|error| self.problem(node, &error))?);
        if matches!(kind, NodeKind::Directory) || self.tree.node(node).links() > 1 {
            self.named[node.index()] = Some(Arc::clone(&made));
        }
        self.batch.weight += DirtyWeights::of_new(kind);
        let size = match kind {
            NodeKind::File { size } if size > 0 => Some(size),
            _ => None,
        };
        self.set(node, made.inode(), &SetAttributes { size, ..self.owner_and_mode(node) })?;
        match kind {
            // When all of its names are there.
            NodeKind::Directory => Ok(()),
            NodeKind::File { .. } => self.add_content(made, node),
            _ => self.complete(made.inode(), node),
        }
    }

    /// Has the content of a file copied, in this batch and in others if it is large.
    fn add_content(&mut self, made: Arc<InodeGuard<'a>>, node: TreeNodeId) -> Result<(), Error> {
        let (file, inode) = (self.tree.node(node), made.inode());
        if let Some(bytes) = file.inline_bytes().filter(|bytes| !bytes.is_empty()) {
            self.batch.jobs.push(CopyJob { inode, node, piece: None });
            self.grow_by_piece(bytes.len() as u64)?;
        }
        for mut rest in file.segments() {
            while rest.length > 0 {
                let length = rest.length.min(DirtyWeights::PIECE_BYTES);
                let piece = Some(Segment { length, ..rest });
                self.batch.jobs.push(CopyJob { inode, node, piece });
                rest.logical += length;
                rest.offset += length;
                rest.length -= length;
                self.grow_by_piece(length)?;
            }
        }
        self.batch.complete.push((made, node));
        Ok(())
    }

    fn grow_by_piece(&mut self, bytes: u64) -> Result<(), Error> {
        self.grow(bytes.div_ceil(self.block_bytes) + 2)
    }

    fn grow(&mut self, weight: u64) -> Result<(), Error> {
        self.batch.weight += weight;
        if self.batch.weight >= self.batch_blocks { self.end_batch() } else { Ok(()) }
    }

    /// Copies what the batch has, and writes a checkpoint.
    fn end_batch(&mut self) -> Result<(), Error> {
        let batch = std::mem::take(&mut self.batch);
        self.copy(&batch.jobs)?;
        for (made, node) in batch.complete {
            self.complete(made.inode(), node)?;
        }
        self.volume.make_checkpoint()?;
        Ok(())
    }

    fn copy(&self, jobs: &[CopyJob]) -> Result<(), Error> {
        let next = AtomicUsize::new(0);
        let failure = Mutex::new(&FIRST_ERROR, None);
        let work = || {
            let mut buffer = vec![0; DirtyWeights::PIECE_BYTES as usize];
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let is_cancelled = self.monitor.is_cancelled();
                let done = if is_cancelled {
                    Err(MakeError::Cancelled.into())
                } else {
                    self.copy_piece(job, &mut buffer)
                };
                if let Err(error) = done {
                    failure.lock().get_or_insert(error);
                    next.store(jobs.len(), Ordering::Relaxed);
                }
            }
        };
        thread::together("build", self.threads.min(jobs.len()).max(1), work);
        failure.into_inner().map_or(Ok(()), Err)
    }

    fn copy_piece(&self, job: &CopyJob, buffer: &mut [u8]) -> Result<(), Error> {
        let (mut offset, bytes) = match job.piece {
            Some(piece) => {
                // A job is at most as long as a buffer.
                let buffer = &mut buffer[..piece.length as usize];
                let source = self.tree.source(piece.source);
                source.read_at(piece.object, piece.offset, buffer).map_err(MakeError::from)?;
                (piece.logical, &*buffer)
            }
            None => (0, self.tree.node(job.node).inline_bytes().unwrap_or_default()),
        };
        for part in bytes.chunks(WRITE_BYTES) {
            let written = self.volume.write_all(&self.context, job.inode, offset, part);
            written.map_err(|error| self.problem(job.node, &error))?;
            offset += part.len() as u64;
        }
        self.monitor.wrote(bytes.len() as u64, 0);
        Ok(())
    }

    /// A node has its content, and nothing will change it any more but further names.
    fn complete(&self, inode: InodeNumber, node: TreeNodeId) -> Result<(), Error> {
        self.set_time(node, inode)?;
        self.monitor.wrote(0, 1);
        Ok(())
    }

    fn owner_and_mode(&self, node: TreeNodeId) -> SetAttributes {
        let node = self.tree.node(node);
        let metadata = node.metadata();
        let is_link = matches!(node.kind(), NodeKind::Symlink(_));
        let acl = metadata.xattrs.iter().find(|xattr| xattr.name == ACCESS_ACL);
        let permissions = acl.map_or(metadata.permissions, |acl| {
            permissions_without_list(metadata.permissions, &acl.value)
        });
        SetAttributes {
            permissions: (!is_link).then_some(permissions),
            user: Some(metadata.user),
            group: Some(metadata.group),
            ..SetAttributes::default()
        }
    }

    fn set_time(&self, node: TreeNodeId, inode: InodeNumber) -> Result<(), Error> {
        let InodeTimestamp { seconds, nanoseconds } = self.tree.node(node).modified();
        let time = drystone_vfs::Timestamp { seconds, nanoseconds };
        let changes =
            SetAttributes { modified: Some(SetTime::At(time)), ..SetAttributes::default() };
        self.set(node, inode, &changes)
    }

    fn set(&self, node: TreeNodeId, inode: InodeNumber, to: &SetAttributes) -> Result<(), Error> {
        let set = self.volume.set_attributes(&self.context, inode, to);
        set.map(|_| ()).map_err(|error| self.problem(node, &error))
    }

    fn problem(&self, node: TreeNodeId, error: &drystone_vfs::Error) -> Error {
        let path = OsString::from_vec(self.tree.path_of(node));
        Error::from(error.clone()).during("write").at(path.as_ref())
    }
}
