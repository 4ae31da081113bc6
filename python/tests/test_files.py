"""Files that io, tarfile, zipfile and shutil take."""

import errno
import io
import os
import random
import shutil
import tarfile
import zipfile

import pytest


def test_modes(image):
    with pytest.raises(FileNotFoundError):
        image.open("/f", "rb")
    with image.open("/f", "xb") as file:
        assert isinstance(file, io.BufferedWriter) and not file.readable() and file.seekable()
        file.write(b"one")
    with pytest.raises(FileExistsError):
        image.open("/f", "xb")
    with image.open("/f", "ab") as file:
        assert file.tell() == 3
        file.write(b"two")
    with image.open("/f", "r+b") as file:
        assert file.read(3) == b"one"
        file.write(b"T")
        file.seek(-1, os.SEEK_END)
        assert file.read() == b"o"
        file.truncate(5)
    with image.open("/f", "w+b") as file:
        assert file.read() == b""
    with pytest.raises(IsADirectoryError):
        image.open("/", "rb")
    for mode in ["", "rw", "q", "rbb", "rbt", "+"]:
        with pytest.raises(ValueError):
            image.open("/f", mode)
    with pytest.raises(ValueError):
        image.open("/f", "rb", encoding="utf-8")
    with pytest.raises(ValueError):
        image.open("/f", "r", buffering=0)


def test_raw_files(image):
    file = image.open("/f", "w+b", buffering=0)
    assert file.write(memoryview(b"hello")) == 5
    file.sync()
    file.seek(1)
    buffer = bytearray(10)
    assert file.readinto(buffer) == 4 and bytes(buffer[:4]) == b"ello"
    assert file.read(1) == b"" and file.readall() == b""
    with pytest.raises(OSError):
        file.seek(-1)
    with pytest.raises(ValueError):
        file.seek(0, 9)
    with pytest.raises(io.UnsupportedOperation):
        file.fileno()
    file.close()
    file.close()
    for call in [file.read, file.tell, lambda: file.write(b""), lambda: file.seek(0)]:
        with pytest.raises(ValueError):
            call()
    with image.open("/f", "rb", buffering=0) as file:
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
    with image.open("/f", "wb", buffering=0) as file:
        with pytest.raises(io.UnsupportedOperation):
            file.read()


def test_holes_are_found(image):
    with image.open("/f", "wb") as file:
        file.seek(1 << 20)
        file.write(b"far away")
    with image.open("/f", "rb") as file:
        assert file.seek(0, os.SEEK_DATA) == 1 << 20 and file.read(3) == b"far"
        assert file.seek(0, os.SEEK_HOLE) == 0
        with pytest.raises(OSError) as end:
            file.seek(2 << 20, os.SEEK_DATA)
        assert end.value.errno == errno.ENXIO


def test_what_was_written_before_space_ran_out_is_not_written_again(image):
    """As with the built-in open: a buffer keeps only what wasn't written."""
    content = random.Random(7).randbytes(4 << 20)
    image.write_bytes("/to remove", bytes(8 << 20))
    image.write_bytes("/filler", bytes(image.disk_usage().free - (300 << 10)))
    log = image.open("/log", "ab", 8 << 20)
    log.write(content)
    with pytest.raises(OSError) as full:
        log.flush()
    assert full.value.errno == errno.ENOSPC
    assert 0 < image.getsize("/log") < len(content)
    image.remove("/to remove")
    image.sync()
    log.close()
    assert image.read_bytes("/log") == content
    image.remove("/filler")


def test_text(image):
    with image.open("/t", "w", newline="\r\n") as file:
        print("ä", "ö", sep="\n", file=file)
    assert image.read_bytes("/t") == "ä\r\nö\r\n".encode()
    with image.open("/t") as file:
        assert list(file) == ["ä\n", "ö\n"]
    image.write_text("/t", "ß", encoding="latin-1")
    assert image.read_text("/t", encoding="latin-1") == "ß"


def test_the_same_calls_on_the_host(image, tmp_path):
    """Random calls on a file of the image and on one of the host give the same."""
    chance = random.Random(14)
    for mode in ["w+b", "a+b", "r+b"]:
        with image.open("/f", mode, 4096) as ours, open(tmp_path / "f", mode, 4096) as theirs:
            for _ in range(300):
                call, number = chance.choice("rwstk"), chance.randrange(20_000)
                both = []
                for file in ours, theirs:
                    if call == "r":
                        both.append(file.read(number))
                    elif call == "w":
                        both.append(file.write(bytes([number % 251]) * (number % 3000)))
                    elif call == "s":
                        both.append(file.seek(number))
                    elif call == "t":
                        both.append(file.truncate(number))
                    else:
                        both.append(file.tell())
                assert both[0] == both[1], (mode, call, number)
        assert image.read_bytes("/f") == (tmp_path / "f").read_bytes()


def test_archives(image, tmp_path):
    image.makedirs("/d")
    content = os.urandom(300_000)
    with image.open("/a.zip", "wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x", content)
    with image.open("/a.zip", "rb") as file, zipfile.ZipFile(file) as archive:
        assert archive.read("x") == content
    with image.open("/a.tar.gz", "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            member = tarfile.TarInfo("y")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    with image.open("/a.tar.gz", "rb") as file, tarfile.open(fileobj=file) as archive:
        assert archive.extractfile("y").read() == content
    with image.open("/a.zip", "rb") as file, open(tmp_path / "a.zip", "wb") as copy:
        shutil.copyfileobj(file, copy)
    assert (tmp_path / "a.zip").read_bytes() == image.read_bytes("/a.zip")


def test_what_is_not_closed_is_still_written(image):
    file = image.open("/f", "wb")
    file.write(b"x")
    del file
    assert image.read_bytes("/f") == b"x"
