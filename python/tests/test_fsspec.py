"""The file system for fsspec: its own tests, and pandas."""

import errno
import subprocess
import sys
import threading

import drystone
import fsspec
import pandas
import pytest
from drystone.fsspec import DrystoneFileSystem
from fsspec.tests.abstract import AbstractFixtures
from fsspec.tests.abstract.copy import AbstractCopyTests
from fsspec.tests.abstract.get import AbstractGetTests
from fsspec.tests.abstract.open import AbstractOpenTests
from fsspec.tests.abstract.pipe import AbstractPipeTests
from fsspec.tests.abstract.put import AbstractPutTests


class DrystoneFixtures(AbstractFixtures):
    @pytest.fixture(scope="class")
    def fs(self, tmp_path_factory):
        name = tmp_path_factory.mktemp("fsspec") / "disk.img"
        drystone.mkfs(name, 32 << 20)
        fs = DrystoneFileSystem(fo=name, auto_mkdir=True)
        yield fs
        fs.close()
        assert drystone.check(name).is_clean

    @pytest.fixture
    def fs_path(self):
        return "/"


class TestCopy(AbstractCopyTests, DrystoneFixtures):
    pass


class TestGet(AbstractGetTests, DrystoneFixtures):
    pass


class TestPut(AbstractPutTests, DrystoneFixtures):
    pass


class TestPipe(AbstractPipeTests, DrystoneFixtures):
    pass


class TestOpen(AbstractOpenTests, DrystoneFixtures):
    pass


@pytest.fixture
def fs(name):
    fs = fsspec.filesystem("drystone", fo=str(name))
    yield fs
    fs.close()


def test_what_the_abstract_tests_leave_out(fs):
    assert isinstance(fs, DrystoneFileSystem)
    fs.makedirs("/a/b")
    fs.pipe_file("/a/f", b"0123456789")
    assert fs.cat_file("/a/f", 2, 5) == b"234" and fs.cat_file("/a/f", -2) == b"89"
    assert fs.ls("/a", detail=False) == ["/a/b", "/a/f"] and fs.ls("/a/f") == ["/a/f"]
    fs.symlink("f", "/a/l")
    fs.symlink("none", "/a/dangling")
    info = fs.info("/a/l")
    assert info["type"] == "file" and info["islink"] and info["size"] == 10
    assert fs.info("/a/dangling")["type"] == "link"
    assert fs.find("/a", withdirs=True) == ["/a", "/a/b", "/a/dangling", "/a/f", "/a/l"]
    fs.symlink(".", "/a/b/circle")
    fs.symlink("self", "/a/b/self")
    fs.pipe_file("/a/b/File::Temp", b"1")
    found = ["/a/b/File::Temp", "/a/b/circle", "/a/b/self"]
    assert fs.find("/a/b") == found and fs.cat_file(found[0]) == b"1"
    fs.rm("/a/b/File::Temp")
    assert not fs.exists("/a/b/File::Temp")
    fs.mv("/a/f", "/a/g")
    assert not fs.exists("/a/f") and fs.glob("/a/g*") == ["/a/g"]
    fs.touch("/a/g", truncate=False)
    assert fs.size("/a/g") == 10
    fs.touch("/a/g")
    assert fs.size("/a/g") == 0
    assert fs.modified("/a/g") >= fs.created("/a/g")
    fs.link("/a/g", "/a/h")
    fs.rm("/a/h")
    with pytest.raises(OSError):
        fs.rm("/a")
    fs.rm("/a", recursive=True)
    with pytest.raises(FileNotFoundError):
        fs.info("/a")
    with pytest.raises(ValueError):
        fsspec.filesystem("drystone")
    with pytest.raises(ValueError):
        fsspec.filesystem("drystone", fo="x", target_protocol="http")


def test_a_move_is_a_rename(fs):
    fs.makedirs("/a/below")
    fs.pipe_file("/a/below/f", b"1")
    number = fs.info("/a/below/f")["ino"]
    fs.mv("/a", "/new/place", recursive=True)
    assert fs.info("/new/place/below/f")["ino"] == number
    fs.mkdir("/there")
    fs.mv("/new/place", "/there")
    fs.mv("/there/place/below/f", "/other/")
    assert fs.info("/other/f")["ino"] == number
    fs.mv("/other/f", "/other/f")
    fs.pipe_file("/other/[f]", b"2")
    fs.mv("/other/[f]", "/other/g")
    fs.mv("/other/*", "/third")
    assert fs.find("/third") == ["/third/f", "/third/g"] and fs.find("/other") == []
    assert fs.cat_file("/third/g") == b"2"
    fs.mv(["/third/f", "/third/g"], ["/f", "/g"])
    assert fs.info("/f")["ino"] == number
    with pytest.raises(FileNotFoundError):
        fs.mv("/none*", "/third")
    with pytest.raises(FileNotFoundError):
        fs.mv("/none", "/nowhere/x")
    assert not fs.exists("/nowhere")


def test_a_move_replaces_nothing_of_itself(fs):
    for name in ["/1", "/2"]:
        fs.makedirs(name)
        fs.pipe_file(f"{name}/f", name.encode())
    with pytest.raises(FileExistsError):
        fs.mv("/*/f", "/both")
    assert fs.cat_file("/1/f") == b"/1" and fs.cat_file("/2/f") == b"/2"


def test_a_link_to_a_directory_is_removed_alone(fs):
    fs.makedirs("/kept")
    fs.pipe_file("/kept/f", b"1")
    fs.symlink("kept", "/link")
    fs.rm("/link", recursive=True)
    assert not fs.lexists("/link") and fs.cat_file("/kept/f") == b"1"


def test_files_that_a_thread_is_about_to_close_are_waited_for(name):
    fs = fsspec.filesystem("drystone", fo=str(name))
    file = fs.open("/f", "wb")
    thread = threading.Timer(0.1, file.close)
    thread.start()
    fs.close()
    assert fs.image.closed
    thread.join()


def test_an_image_that_could_not_be_closed_well_is_opened_again(name, monkeypatch):
    fs = fsspec.filesystem("drystone", fo=str(name))
    with fs.open("/f", "wb") as file:
        file.write(b"x")
        with pytest.raises(OSError) as busy:
            fs.close()
        assert busy.value.errno == errno.EBUSY
        assert fsspec.filesystem("drystone", fo=str(name)) is fs
    close = fs.image.close

    def fail():
        close()
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(fs.image, "close", fail)
    with pytest.raises(OSError, match="lost"):
        fs.close()
    other = fsspec.filesystem("drystone", fo=str(name))
    assert other.cat_file("/f") == b"x"
    other.close()


def test_addresses(name):
    opened = fsspec.open(f"drystone:///motd::{name}", "w")
    with opened as file:
        file.write("hello")
    assert opened.fs.cat_file("drystone:///motd") == b"hello"
    opened.fs.close()


def test_parquet(fs, name):
    table = pandas.DataFrame({"number": range(10_000), "word": ["x" * (n % 7) for n in range(10_000)]})
    options = {"fo": str(name)}
    table.to_parquet("drystone:///table.parquet", storage_options=options)
    back = pandas.read_parquet("drystone:///table.parquet", storage_options=options)
    assert back.equals(table)
    table.to_csv("drystone:///table.csv", index=False, storage_options=options)
    assert fs.cat_file("/table.csv").startswith(b"number,word\n0,")
    fs.mkdir("/parts")
    table.assign(part=table.number % 3).to_parquet(
        "drystone:///parts", partition_cols=["part"], storage_options=options
    )
    columns = pandas.read_parquet("drystone:///parts", columns=["number"], storage_options=options)
    assert sorted(columns.number) == list(range(10_000))


def test_the_end_of_a_program_closes_the_image(name):
    program = "import fsspec, sys; fsspec.filesystem('drystone', fo=sys.argv[1]).pipe_file('/f', b'x')"
    # Not here, where the sources are.
    subprocess.run([sys.executable, "-c", program, name], check=True, cwd=name.parent)
    with drystone.open(name, read_only=True, ignore_journal=True) as image:
        assert image.read_bytes("/f") == b"x"
