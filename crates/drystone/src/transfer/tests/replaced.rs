//! What a copy replaces, and what it may leave behind if it fails.

use super::*;

/// Asks for the end once something was copied.
struct EndsEarly(GatheredProblems, drystone_sync::atomic::AtomicBool);

impl CopyMonitor for EndsEarly {
    fn bytes(&self, _count: u64) {
        self.1.store(true, drystone_sync::atomic::Ordering::Relaxed);
    }

    fn problem(&self, problem: &CopyProblem) {
        self.0.problem(problem);
    }

    fn is_cancelled(&self) -> bool {
        self.1.load(drystone_sync::atomic::Ordering::Relaxed)
    }
}

/// Copies until the first bytes are there.
fn copy_a_part(from: Endpoint<'_>, item: CopyItem, to: Endpoint<'_>, into: &Path) -> CopySummary {
    let monitor = EndsEarly(GatheredProblems::new(), Default::default());
    copy(from, &[item], to, into, &options(1), &monitor).unwrap()
}

/// A file of the model.
fn make(image: &MemoryFileSystem, name: &[u8], content: &[u8], changes: &SetAttributes) {
    let context = RequestContext::superuser();
    let made = image.create(&context, image.root(), name, NewNode::Regular, 0o600).unwrap();
    image.write_all(&context, made.inode, 0, content).unwrap();
    image.set_attributes(&context, made.inode, changes).unwrap();
    image.forget(made.inode, 1);
}

fn names(image: &MemoryFileSystem) -> Vec<String> {
    let mut names = Vec::new();
    let listed =
        image.read_directory(&RequestContext::superuser(), image.root(), 0, &mut |entry| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            true
        });
    listed.unwrap();
    names.retain(|name| name != "." && name != "..");
    names
}

static LONG: [u8; 3 << 20] = [7; 3 << 20];

#[test]
fn what_is_replaced_stays_until_the_new_file_is_complete() {
    let (folder, image) = (tempfile::tempdir().unwrap(), memory());
    let path = folder.path().join("long");
    std::fs::write(&path, &LONG[..]).unwrap();
    // Of the caller, who may not be able to give files away.
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let own = SetAttributes {
        user: Some(user.as_raw()),
        group: Some(group.as_raw()),
        ..SetAttributes::default()
    };
    make(&image, b"file", b"old", &own);
    let root = Path::new("/");
    let summary = copy_a_part(Endpoint::Host, item(&path, "file"), Endpoint::Image(&image), root);
    assert!(summary.is_stopped);
    assert_eq!(names(&image), ["file"]);
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    copy_well(Endpoint::Image(&image), item("/file", "file"), Endpoint::Host, &out);
    assert_eq!(std::fs::read(out.join("file")).unwrap(), b"old");

    make(&image, b"long", &LONG, &own);
    let summary = copy_a_part(Endpoint::Image(&image), item("/long", "file"), Endpoint::Host, &out);
    assert!(summary.is_stopped);
    assert_eq!(std::fs::read(out.join("file")).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1);

    copy_well(Endpoint::Image(&image), item("/long", "file"), Endpoint::Host, &out);
    assert!(std::fs::read(out.join("file")).unwrap() == LONG);
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1);
    assert_eq!(image.references(), 0);
}

/// Space that one new file lacks beside its old one may do for the others.
#[test]
fn a_file_without_room_beside_its_old_one_does_not_stop_the_copy() {
    let folder = tempfile::tempdir().unwrap();
    for (name, length) in [("large", LONG.len()), ("small", 1000)] {
        std::fs::write(folder.path().join(name), &LONG[..length]).unwrap();
    }
    let space_max = Some(LONG.len() as u64 + (1 << 20));
    let image = MemoryFileSystem::new(Configuration { space_max, ..Configuration::default() });
    make(&image, b"large", &LONG[..LONG.len() - 1], &SetAttributes::default());
    let merged = CopyItem { path: folder.path().into(), name: None };
    let (to, monitor) = (Endpoint::Image(&image), GatheredProblems::new());
    let root = Path::new("/");
    let summary = copy(Endpoint::Host, &[merged], to, root, &options(1), &monitor).unwrap();
    assert_eq!((summary.failed, summary.files, summary.is_stopped), (1, 1, false));
    assert!(monitor.texts()[0].contains("large: no space"), "{:?}", monitor.texts());
    let large = find_path(&image, &RequestContext::superuser(), b"/large", true).unwrap();
    assert_eq!(large.attributes().size, LONG.len() as u64 - 1);
    assert_eq!(names(&image).len(), 2);
}

/// A half of a user's program that runs as that user must not be one that runs as root.
#[test]
fn what_is_incomplete_lends_nobody_rights() {
    let (source, target) = (memory(), memory());
    let of_a_user =
        SetAttributes { user: Some(1000), group: Some(100), ..SetAttributes::default() };
    make(&source, b"program", &LONG, &of_a_user);
    let set_id = SetAttributes { permissions: Some(0o6755), ..SetAttributes::default() };
    let context = RequestContext::superuser();
    let program = find_path(&source, &context, b"/program", true).unwrap();
    source.set_attributes(&context, program.inode(), &set_id).unwrap();
    drop(program);
    let (from, to, root) = (Endpoint::Image(&source), Endpoint::Image(&target), Path::new("/"));
    let permissions = |name: &[u8]| {
        let found = find_path(&target, &context, name, true).unwrap();
        (found.attributes().user, found.attributes().permissions)
    };
    copy_a_part(from, item("/program", "part"), to, root);
    assert_eq!(permissions(b"/part"), (0, 0o600));
    let (from, to) = (Endpoint::Image(&source), Endpoint::Image(&target));
    copy_well(from, item("/program", "whole"), to, root);
    assert_eq!(permissions(b"/whole"), (1000, 0o6755));
    let (from, to) = (Endpoint::Image(&source), Endpoint::Image(&target));
    let without = options(1).keep_owners(false);
    copy(from, &[item("/program", "given")], to, root, &without, &GatheredProblems::new()).unwrap();
    assert_eq!(permissions(b"/given"), (0, 0o755));
}
