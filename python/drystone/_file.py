"""Files for io: an offset over reads and writes at any offset."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

from . import _drystone

if TYPE_CHECKING:
    from ._image import Image


def _close_forgotten(file: io.IOBase) -> None:
    """Closes a file that the program has forgotten. sys.unraisablehook gets an error, which io drops before
    Python 3.13."""
    try:
        is_closed = file.closed
    except ValueError:
        # It was detached from the file below, or has never had one.
        return
    if not is_closed:
        file.close()


class BufferedReader(io.BufferedReader):
    __del__ = _close_forgotten


class BufferedWriter(io.BufferedWriter):
    __del__ = _close_forgotten


class BufferedRandom(io.BufferedRandom):
    __del__ = _close_forgotten


class TextIOWrapper(io.TextIOWrapper):
    __del__ = _close_forgotten


class RawFile(io.RawIOBase):
    """An open file without buffers."""

    name: str
    __del__ = _close_forgotten

    def __init__(self, image: Image, path: str, mode: str) -> None:
        kinds = [kind for kind in mode if kind in "rwxa"]
        if len(kinds) != 1 or set(mode) - set("rwxab+t") or len(set(mode)) != len(mode):
            raise ValueError(f"invalid mode: {mode!r}")
        kind, update = kinds[0], "+" in mode
        self._reads = kind == "r" or update
        self._writes = kind != "r" or update
        self._appends = kind == "a"
        self._file = image._raw.open_file(
            path,
            self._reads,
            self._writes and not self._appends,
            self._appends,
            kind == "w",
            kind in "wa",
            kind == "x",
        )
        self._offset = self._file.size() if self._appends else 0
        self.name = path
        self.mode = mode

    def readable(self) -> bool:
        self._expect_open()
        return self._reads

    def writable(self) -> bool:
        self._expect_open()
        return self._writes

    def seekable(self) -> bool:
        self._expect_open()
        return True

    def read(self, size: int | None = -1) -> bytes:
        self._expect(self._reads, "read")
        if size is None or size < 0:
            return self.readall()
        data = self._file.pread(size, self._offset)
        self._offset += len(data)
        return data

    def readall(self) -> bytes:
        self._expect(self._reads, "read")
        return self.read(max(self._file.size() - self._offset, 0))

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer).cast("B") as view:
            data = self.read(len(view))
            view[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        self._expect(self._writes, "write")
        written = self._file.pwrite(bytes(memoryview(data)), self._offset)
        self._offset = self._file.size() if self._appends else self._offset + written
        return written

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._expect_open()
        if whence in (os.SEEK_DATA, os.SEEK_HOLE):
            self._offset = self._file.find(offset, whence == os.SEEK_HOLE)
            return self._offset
        base = {
            os.SEEK_SET: lambda: 0,
            os.SEEK_CUR: lambda: self._offset,
            os.SEEK_END: self._file.size,
        }.get(whence)
        if base is None:
            raise ValueError(f"invalid whence: {whence}")
        sought = base() + offset
        if sought < 0:
            raise OSError(22, "negative seek position")
        self._offset = sought
        return sought

    def tell(self) -> int:
        self._expect_open()
        return self._offset

    def truncate(self, size: int | None = None) -> int:
        self._expect(self._writes, "write")
        size = self._offset if size is None else size
        self._file.truncate(size)
        return size

    def sync(self) -> None:
        """Returns when everything that was written is durable, as os.fsync does."""
        self._expect_open()
        self._file.sync()

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()
            finally:
                # There is none if it couldn't be opened.
                if hasattr(self, "_file"):
                    self._file.close()

    def _expect(self, is_allowed: bool, what: str) -> None:
        self._expect_open()
        if not is_allowed:
            raise io.UnsupportedOperation(f"not open to {what}")

    def _expect_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


def open_file(
    image: Image,
    path: str,
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> io.IOBase:
    """Puts buffers and a codec over a file, by the rules of the built-in open."""
    is_binary = "b" in mode
    if is_binary and ("t" in mode or encoding or errors or newline is not None):
        raise ValueError("a binary file takes no encoding, errors or newline")
    if not is_binary and buffering == 0:
        raise ValueError("text files have buffers")
    raw = RawFile(image, path, mode)
    if buffering == 0:
        return raw
    size = buffering if buffering > 1 else 128 * 1024
    buffered: BufferedRandom | BufferedWriter | BufferedReader
    if "+" in mode:
        buffered = BufferedRandom(raw, size)
    elif raw.writable():
        buffered = BufferedWriter(raw, size)
    else:
        buffered = BufferedReader(raw, size)
    if is_binary:
        return buffered
    return TextIOWrapper(buffered, encoding or "utf-8", errors, newline, buffering == 1)
