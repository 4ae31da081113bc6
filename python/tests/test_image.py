"""Images and operations by path."""

import errno
import gc
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import drystone
import pytest

from nbd import Server


def test_making_and_opening(tmp_path):
    name = tmp_path / "a.img"
    drystone.mkfs(name, 16 << 20, label="data", uuid="0123456789abcdef0123456789abcdef")
    with pytest.raises(FileExistsError):
        drystone.mkfs(name, 16 << 20)
    drystone.mkfs(name, 256 << 20, kind="nilfs2", overwrite=True)
    with drystone.open(name) as image:
        assert image.kind == "nilfs2"
        with pytest.raises(OSError) as refused:
            drystone.open(name)
        assert refused.value.errno == errno.EBUSY
    assert drystone.check(name).is_clean
    with pytest.raises(ValueError):
        image.listdir()
    image.close()
    with pytest.raises(FileNotFoundError) as missing:
        drystone.open(tmp_path / "none.img")
    assert missing.value.filename == str(tmp_path / "none.img")
    for wrong in [dict(kind="ext5"), dict(uuid="x")]:
        with pytest.raises(ValueError):
            drystone.mkfs(name, 16 << 20, overwrite=True, **wrong)


def test_an_image_with_open_files_stays_open(name):
    image = drystone.open(name)
    file = image.open("/a", "wb")
    with pytest.raises(OSError) as busy:
        image.close()
    assert busy.value.errno == errno.EBUSY and not image.closed
    file.write(b"x")
    file.close()
    image.close()
    assert image.closed


def test_an_exception_is_not_hidden_by_open_files(name):
    with pytest.raises(ValueError), drystone.open(name) as image:
        file = image.open("/a", "wb", buffering=0)
        file.write(b"kept")
        raise ValueError
    assert not image.closed
    file.close()
    image.close()
    with drystone.open(name) as image:
        assert image.read_bytes("/a") == b"kept"


def test_forked_processes_leave_the_image_alone(name):
    """A child has none of the threads of an image, and its parent goes on writing."""
    image = drystone.open(name)
    file = image.open("/f", "wb", buffering=0)
    file.write(b"parent")
    waiting = image.open("/waiting", "wb")
    waiting.write(b"once")
    child = os.fork()
    if child == 0:
        try:
            for call in (image.listdir, image.sync, image.close, lambda: file.write(b"child")):
                with pytest.raises(OSError, match="forked") as refused:
                    call()
                assert refused.value.errno == errno.EBADF
            with pytest.raises(OSError):
                waiting.flush()
            file.close()
            with pytest.raises(OSError):
                drystone.open(name)
            # What is forgotten isn't closed either.
            del image, file
            gc.collect()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    file.write(b", too")
    waiting.close()
    file.close()
    image.close()
    with drystone.open(name) as image:
        assert image.read_bytes("/f") == b"parent, too" and image.read_bytes("/waiting") == b"once"


def test_an_image_that_is_forgotten_is_closed(name):
    image = drystone.open(name)
    image.write_text("/f", "x")
    with pytest.warns(ResourceWarning, match="unclosed"):
        del image
    with drystone.open(name, read_only=True, ignore_journal=True) as image:
        assert image.read_text("/f") == "x"


def test_threads_run_while_a_forgotten_image_is_closed(name, tmp_path):
    """The disk is served by threads of this program, which would wait forever."""
    server = Server(tmp_path / "socket", name.read_bytes())
    image = drystone.open(server.address)
    image.write_text("/f", "x")
    before = server.requests
    with pytest.warns(ResourceWarning, match="unclosed"):
        del image
    assert server.requests > before
    with drystone.open(server.address, read_only=True, ignore_journal=True) as image:
        assert image.read_text("/f") == "x"


def test_a_forgotten_image_is_closed_with_its_last_file(name):
    image = drystone.open(name)
    files = [image.open(f"/{number}", "wb") for number in range(2)]
    with pytest.warns(ResourceWarning, match="unclosed"):
        del image
    for file in files:
        file.write(b"x")
        with pytest.raises(OSError) as busy:
            drystone.open(name)
        assert busy.value.errno == errno.EBUSY
        file.close()
    with drystone.open(name, read_only=True, ignore_journal=True) as image:
        assert image.read_bytes("/0") == image.read_bytes("/1") == b"x"


def test_an_image_is_closed_by_the_last_call(name, tmp_path):
    """A file is closed while another thread reads it. Its disk is served by threads of this program."""
    with drystone.open(name) as image:
        image.write_bytes("/f", b"x" * 10_000)
    server = Server(tmp_path / "socket", name.read_bytes())
    image = drystone.open(server.address)
    file = image.open("/f", "rb", buffering=0)
    image.write_text("/g", "y")
    with pytest.warns(ResourceWarning, match="unclosed"):
        del image
    before = server.reads
    server.gate.clear()
    read = []
    reader = threading.Thread(target=lambda: read.append(file.read(1)))
    reader.start()
    while server.reads == before:
        time.sleep(0.001)
    file.close()
    server.gate.set()
    reader.join()
    assert read == [b"x"]
    with drystone.open(server.address, read_only=True, ignore_journal=True) as image:
        assert image.read_text("/g") == "y"


@pytest.mark.parametrize(
    "forget",
    [
        "image.close()",
        "del image",
        "import gc; image.itself = image; del image; gc.collect()",
        "file = image.open('/g', 'wb'); del image; file.close()",
        "file = image.open('/g', 'wb'); del image; del file",
        "file = image.open('/g', 'wb', buffering=0); del image; del file",
        "file = image.open('/f'); del image; del file",
        "file = image.open('/g', 'w+'); del image; del file",
        "",
    ],
)
def test_a_forgotten_image_tells_why_it_could_not_be_closed(name, forget):
    program = f"""
import drystone, resource, sys
image = drystone.open(sys.argv[1])
image.write_bytes("/f", bytes(100_000))
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
{forget}
"""
    # Not here, where the sources are.
    ended = subprocess.run(
        [sys.executable, "-c", program, name], cwd=name.parent, capture_output=True, text=True
    )
    assert "File too large" in ended.stderr, ended.stderr
    with drystone.open(name) as image:
        image.sync()


@pytest.mark.parametrize("more", ["", "; i.itself = i", "; f = i.open('/g', 'w'); f.write('y')"])
def test_the_end_of_a_program_closes_images(name, more):
    program = "import drystone, sys; i = drystone.open(sys.argv[1]); i.write_text('/f', 'x')" + more
    ended = subprocess.run([sys.executable, "-c", program, name], cwd=name.parent)
    assert ended.returncode == 0
    with drystone.open(name, read_only=True, ignore_journal=True) as image:
        assert image.read_text("/f") == "x"


def test_the_end_of_a_program_closes_every_image(name, tmp_path, monkeypatch):
    def refuse():
        raise OSError("full")

    drystone.mkfs(tmp_path / "other.img", 8 << 20)
    with drystone.open(name) as image, drystone.open(tmp_path / "other.img") as other:
        with monkeypatch.context() as patch:
            patch.setattr(image, "close", refuse)
            with pytest.raises(OSError, match="full"):
                drystone._image._close_all()
        assert other.closed and not image.closed


def test_read_only(name):
    with drystone.open(name, read_only=True) as image:
        with pytest.raises(OSError) as refused:
            image.mkdir("/a")
        assert refused.value.errno == errno.EROFS


def test_users(name):
    with drystone.open(name) as image:
        image.mkdir("/home", 0o777)
        image.chmod("/home", 0o777)
    with drystone.open(name, user=(1000, 100, []), umask=0o077) as image:
        with pytest.raises(PermissionError):
            image.mkdir("/a")
        image.mkdir("/home/a")
        found = image.stat("/home/a")
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1000, 100, 0o700)


def test_names(image):
    image.makedirs("/a/b/c")
    with pytest.raises(FileExistsError):
        image.makedirs("/a/b")
    image.makedirs("/a/b", exist_ok=True)
    image.makedirs("/m/n", 0o700)
    modes = [stat.S_IMODE(image.stat(path).st_mode) for path in ("/m", "/m/n")]
    assert modes == [0o755, 0o700]
    image.removedirs("/m/n")
    assert not image.exists("/m")
    image.write_text("/a/f", "text")
    with pytest.raises(FileExistsError):
        image.makedirs("/a/f", exist_ok=True)
    image.symlink("f", "/a/l")
    image.link("/a/f", "/a/g")
    image.mknod("/a/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    assert image.stat("/a/null").st_rdev == os.makedev(1, 3)
    assert image.listdir("/a") == ["b", "f", "g", "l", "null"]
    assert image.readlink("/a/l") == "f"
    assert image.realpath("a/b/../l") == "/a/f"
    assert image.islink("/a/l") and image.isfile("/a/l") and image.isdir("/a")
    assert not image.exists("/b") and image.lexists("/a/l") and image.getsize("/a/f") == 4
    with image.scandir("/a") as listing:
        entries = {entry.name: entry for entry in listing}
    assert entries["l"].is_symlink() and entries["l"].is_file() and entries["b"].is_dir()
    assert not entries["l"].is_file(follow_symlinks=False)
    assert entries["f"].inode() == image.stat("/a/g").st_ino == entries["f"].stat().st_ino
    for same in ("/a/f", "/a/g", "/a/l", "/a"):
        with pytest.raises(shutil.SameFileError):
            image.copy("/a/f", same)
    assert image.read_text("/a/f") == "text"
    with pytest.raises(TypeError):
        image.write_bytes("/a/f", 5)
    image.rename("/a/g", "/a/h")
    image.remove("/a/h")
    with pytest.raises(FileNotFoundError) as missing:
        image.unlink("/a/h")
    assert missing.value.filename == "/a/h"
    with pytest.raises(FileNotFoundError) as missing:
        image.rename("/a/h", "/a/i")
    assert missing.value.filename2 == "/a/i"
    with pytest.raises(IsADirectoryError):
        image.remove("/a/b")
    with pytest.raises(IsADirectoryError) as directory:
        image.open("/a/b", "rb")
    assert directory.value.filename == "/a/b"
    assert not image.exists("/a/f/below")
    with pytest.raises(NotADirectoryError):
        image.listdir("/a/f")
    with pytest.raises(OSError) as full:
        image.rmdir("/a/b")
    assert full.value.errno == errno.ENOTEMPTY
    assert [top for top, _, _ in image.walk("/a")] == ["/a", "/a/b", "/a/b/c"]
    assert [top for top, _, _ in image.walk("/a", topdown=False)] == ["/a/b/c", "/a/b", "/a"]
    image.symlink("b", "/a/to_b")
    assert next(image.walk("/a"))[1] == ["b", "to_b"]
    assert [top for top, _, _ in image.walk("/a")] == ["/a", "/a/b", "/a/b/c"]
    followed = [top for top, _, _ in image.walk("/a", followlinks=True)]
    assert followed == ["/a", "/a/b", "/a/b/c", "/a/to_b", "/a/to_b/c"]
    assert next(image.path("/a").walk())[1:] == (["b"], ["f", "l", "null", "to_b"])
    image.remove("/a/to_b")
    errors = []
    assert list(image.walk("/none", onerror=errors.append)) == [] and len(errors) == 1
    image.rmdir("/a/b/c")
    image.rmtree("/a")
    assert image.listdir() == ["lost+found"]


def test_names_that_are_no_text(image):
    name = os.fsdecode(b"/\xff")
    image.write_bytes(name, b"x")
    assert name[1:] in image.listdir()
    assert image.read_bytes(name) == b"x"


def test_attributes(image):
    image.write_bytes("/f", bytearray(b"12345"))
    image.chmod("/f", 0o4711)
    image.chown("/f", 7, 8)
    image.chown("/f", -1, 9)
    image.utime("/f", ns=(-1, 1_600_000_000_123_456_789))
    found = image.stat("/f")
    assert stat.filemode(found.st_mode) in ("-rwx--x--x", "-rws--x--x")
    assert (found.st_uid, found.st_gid, found.st_size, found.st_nlink) == (7, 9, 5, 1)
    assert (found.st_atime_ns, found.st_mtime_ns) == (-1, 1_600_000_000_123_456_789)
    image.utime("/f", (1.5, 2.5))
    assert image.stat("/f").st_mtime == 2.5
    with pytest.raises(ValueError):
        image.utime("/f", (1, 2), ns=(1, 2))
    image.utime("/f")
    assert image.stat("/f").st_mtime > 1e9
    image.truncate("/f", 2)
    assert image.read_bytes("/f") == b"12"
    image.setxattr("/f", "user.k", b"\0v")
    assert image.listxattr("/f") == ["user.k"] and image.getxattr("/f", "user.k") == b"\0v"
    image.removexattr("/f", "user.k")
    with pytest.raises(OSError) as none:
        image.getxattr("/f", "user.k")
    assert none.value.errno == errno.ENODATA
    assert none.value.filename == "/f"
    image.symlink("f", "/l")
    image.setxattr("/l", "trusted.t", b"1", follow_symlinks=False)
    assert image.listxattr("/l", follow_symlinks=False) == ["trusted.t"] and not image.listxattr("/l")
    image.lchown("/l", 5, 5)
    assert image.lstat("/l").st_uid == 5 and image.stat("/l").st_uid == 7
    room = image.statvfs()
    assert room.f_blocks > room.f_bfree > 0 and room.f_namemax == 255
    usage = image.disk_usage()
    assert usage.total > usage.free > 0 and usage.total >= usage.used + usage.free
    assert image.getmtime("/f") == image.stat("/f").st_mtime
    image.mkfifo("/fifo", 0o640)
    assert stat.filemode(image.stat("/fifo").st_mode) == "prw-r-----"


def test_paths(image):
    top = image.path("/")
    top = top / "a" / "b"
    top.mkdir(parents=True)
    top.mkdir(parents=True, exist_ok=True)
    with pytest.raises(FileExistsError):
        top.mkdir()
    file = top / "f.txt"
    file.touch()
    with pytest.raises(FileExistsError):
        file.touch(exist_ok=False)
    assert file.write_text("ä\n") == 2 and file.read_text() == "ä\n"
    assert file.read_bytes() == "ä\n".encode()
    with file.open("a") as appended:
        appended.write("more")
    assert file.read_text().splitlines() == ["ä", "more"]
    (top / "l").symlink_to(file)
    (top / "h").hardlink_to(file)
    assert (top / "l").resolve() == file and (top / "l").readlink() == "/a/b/f.txt"
    assert (top / "l").is_symlink() and (top / "l").is_file() and top.is_dir()
    assert sorted(path.name for path in top.iterdir()) == ["f.txt", "h", "l"]
    assert [str(path) for path in image.path().rglob("*.txt")] == ["/a/b/f.txt"]
    assert file.with_suffix(".md").name == "f.md" and file.stem == "f" and file.parent == top
    moved = file.rename(top / "g.txt")
    assert moved.exists() and not file.exists()
    moved.unlink()
    moved.unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        moved.unlink()
    with pytest.raises(TypeError):
        open(moved)


def test_patterns(image):
    for path in ["/d/a.txt", "/d/e/b.txt", "/d/e/f/c.txt", "/d/e/f/.d"]:
        image.makedirs(os.path.dirname(path), exist_ok=True)
        image.write_text(path, "")
    image.symlink("e", "/d/link")
    top = image.path("/d")

    def found(pattern):
        return [str(path.relative_to(top)) for path in top.glob(pattern)]

    assert found("*.txt") == ["a.txt"] and found("?.txt") == ["a.txt"]
    assert found("e/*") == ["e/b.txt", "e/f"] and found("link/*.txt") == ["link/b.txt"]
    assert found("**/*.txt") == ["a.txt", "e/b.txt", "e/f/c.txt"]
    assert found("e/../a.txt") == ["e/../a.txt"] and found("none") == []
    assert found("**/f/[!c]*") == ["e/f/.d"] and found("**") == [".", "e", "e/f"]
    assert [path.name for path in top.rglob("c.*")] == ["c.txt"]
    for pattern in ["", "/d"]:
        with pytest.raises(ValueError):
            list(top.glob(pattern))


def test_every_operation_takes_paths_of_the_image(image, tmp_path):
    name = tmp_path / "other.img"
    drystone.mkfs(name, 16 << 20)
    path = image.path("/d")
    image.mkdir(path)
    image.write_text(path / "f", "x")
    image.rename(path / "f", path / "g")
    assert image.listdir(path) == ["g"] and image.getsize(path / "g") == 1
    assert image.samefile(path / "g", "/d/../d/g") and (path / "g").samefile("/d/g")
    assert not (path / "g").is_fifo()
    with image.open(path / "g") as file:
        assert file.read() == "x"
    with drystone.open(name) as other:
        with pytest.raises(ValueError, match="another image"):
            other.exists(path)
        with pytest.raises(ValueError, match="another image"):
            (path / "g").rename(other.path("/g"))


def test_copies(image, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "f").write_text("x")
    copied = image.copy_in(tree, "/tree")
    assert (copied.files, copied.directories, copied.bytes, copied.not_kept) == (1, 1, 1, 0)
    image.copyfile("/tree/f", "/g")
    assert image.copy_out("/tree", tmp_path / "back").files == 1
    assert (tmp_path / "back/f").read_text() == "x" and image.read_text("/g") == "x"
    image.mkdir("/d")
    image.setxattr("/g", "user.k", b"v")
    image.utime("/g", (1, 2))
    assert image.copy("/tree/f", "/d") == "/d/f"
    assert image.copy2("/g", "/d") == "/d/g"
    assert image.getxattr("/d/g", "user.k") == b"v" and image.getmtime("/d/g") == 2
    assert image.move("/g", "/tree") == "/tree/g" and not image.exists("/g")
    with pytest.raises(FileExistsError):
        image.move("/d/g", "/tree")
    image.renames("/d/f", "/new/below/f")
    image.renames("/d/g", "/new/below/g")
    assert not image.exists("/d") and image.listdir("/new/below") == ["f", "g"]
    image.rmtree("/none", ignore_errors=True)


def test_a_tree_is_removed_as_far_as_possible(image, name):
    image.makedirs("/t/a-locked")
    for path in ("/t/a-locked/f", "/t/z", "/kept"):
        image.write_bytes(path, b"x")
    image.chown("/t", 1000, 1000)
    image.symlink("t", "/link")
    image.close()
    with drystone.open(name, user=(1000, 1000, [])) as other:
        with pytest.raises(OSError):
            other.rmtree("/t")
        other.rmtree("/t", ignore_errors=True)
        assert other.listdir("/t") == ["a-locked"]
        other.rmtree("/kept", ignore_errors=True)
        other.rmtree("/link", ignore_errors=True)
        assert other.islink("/link") and other.exists("/kept")
        with pytest.raises(OSError, match="symbolic link"):
            other.rmtree("/link")


def test_a_walk_lists_what_can_not_be_looked_at(image, monkeypatch):
    image.makedirs("/a/b")

    def damaged(entry, **_):
        raise OSError(errno.EUCLEAN, "damaged")

    monkeypatch.setattr(drystone.DirEntry, "is_dir", damaged)
    assert list(image.walk("/a")) == [("/a", [], ["b"])]


def test_threads_run_meanwhile(image):
    """Calls from many threads, of which each sees the whole content."""
    problems = []

    def work(number):
        try:
            for round in range(50):
                image.write_bytes(f"/{number}", bytes([number]) * 10_000)
                assert image.read_bytes(f"/{number}") == bytes([number]) * 10_000
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_building(tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub/f").write_text("x")
    (tree / "sub/f.pyc").write_text("x")
    name = tmp_path / "a.img"
    name.touch()
    assert drystone.build(name, tree, owner=(1, 2), exclude="*.pyc", label="a", free=1 << 20) == []
    first = name.read_bytes()
    with pytest.raises(FileExistsError):
        drystone.build(name, tree)
    drystone.build(
        name, [tree], owner=(1, 2), exclude=["*.pyc"], label="a", free=1 << 20, overwrite=True
    )
    assert name.read_bytes() == first
    assert drystone.check(name).is_clean
    assert stat.S_IMODE(name.stat().st_mode) & 0o600 == 0o600
    with drystone.open(name) as image:
        assert image.listdir("/sub") == ["f"] and image.stat("/sub/f").st_gid == 2
        with pytest.raises(OSError):
            drystone.build(name, tree, overwrite=True)
    with pytest.raises(FileNotFoundError, match="none") as missing:
        drystone.build(tmp_path / "b.img", tmp_path / "none")
    assert missing.value.filename == str(tmp_path / "none")
    (tree / "large").write_bytes(b"x" * (1 << 20))
    with pytest.raises(OSError) as full:
        drystone.build(tmp_path / "b.img", tree, size=1 << 18)
    assert full.value.errno == errno.ENOSPC
    with pytest.raises(ValueError):
        drystone.build(name, tree, size=1 << 20, free=1)
    assert sorted(os.listdir(tmp_path)) == ["a.img", "tree"]


def test_damage_is_found(tmp_path):
    name = tmp_path / "a.img"
    drystone.mkfs(name, 16 << 20)
    with open(name, "r+b") as file:
        file.seek(4096 + 12)
        file.write(b"\xff\xff")
    report = drystone.check(name)
    assert report.errors > 0 and not report.is_clean and report.problems
