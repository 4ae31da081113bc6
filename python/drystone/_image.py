"""Open images, with the operations of os and shutil."""

from __future__ import annotations

import os
import stat as _stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from . import _drystone
from ._file import open_file
from ._path import ImagePath

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class DirEntry:
    """An entry of a directory, as in os."""

    name: str
    path: str
    _inode: int
    _kind: int
    _image: Image

    def inode(self) -> int:
        return self._inode

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        if follow_symlinks and self.is_symlink():
            return self._image.isdir(self.path)
        return _stat.S_ISDIR(self._kind)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        if follow_symlinks and self.is_symlink():
            return self._image.isfile(self.path)
        return _stat.S_ISREG(self._kind)

    def is_symlink(self) -> bool:
        return _stat.S_ISLNK(self._kind)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._image.stat(self.path, follow_symlinks=follow_symlinks)


class Image:
    """An open image. Leaving a with statement, or close(), makes everything durable."""

    def __init__(
        self,
        name: Path,
        *,
        read_only: bool = False,
        ignore_journal: bool = False,
        user: tuple[int, int, list[int]] | None = None,
        umask: int = 0o022,
    ) -> None:
        self.name = os.fspath(name)
        self._raw = _drystone.Image(
            name, read_only=read_only, ignore_journal=ignore_journal, user=user, umask=umask
        )

    def close(self) -> None:
        """Makes everything durable and closes the image.

        Files must be closed before: an OSError says so, and the image stays open.
        """
        self._raw.close()

    @property
    def closed(self) -> bool:
        return self._raw.closed

    @property
    def kind(self) -> str:
        """What it holds: "ext4" or "nilfs2"."""
        return self._raw.kind

    def __enter__(self) -> Image:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<drystone.Image {self.name!r}{', closed' if self.closed else ''}>"

    def path(self, *parts: str) -> ImagePath:
        """A path of the image, like pathlib's."""
        return ImagePath(self, *parts)

    def sync(self) -> None:
        """Returns when everything is durable."""
        self._raw.sync()

    def open(
        self,
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Opens a file, as the built-in open does; text is UTF-8 unless said. Writing is buffered:
        errors may come with flush() or close()."""
        return open_file(  # type: ignore[return-value]
            self, os.fspath(path), mode, buffering, encoding, errors, newline
        )

    def read_bytes(self, path: Path) -> bytes:
        return self._raw.read_bytes(path)

    def write_bytes(self, path: Path, data: bytes | bytearray | memoryview) -> int:
        return self._raw.write_bytes(path, bytes(data))

    def read_text(self, path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
        with self.open(path, "r", encoding=encoding, errors=errors) as file:
            text: str = file.read()
        return text

    def write_text(self, path: Path, text: str, encoding: str = "utf-8") -> int:
        with self.open(path, "w", encoding=encoding) as file:
            return file.write(text)

    # As in os.

    def listdir(self, path: Path = "/") -> list[str]:
        return [name for name, _, _ in self._raw.list(path)]

    def scandir(self, path: Path = "/") -> Iterator[DirEntry]:
        top = os.fspath(path)
        for name, inode, kind in self._raw.list(path):
            yield DirEntry(name, os.path.join(top, name), inode, kind, self)

    def walk(
        self,
        top: Path = "/",
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """As os.walk; symbolic links aren't followed."""
        try:
            entries = self._raw.list(top)
        except OSError as error:
            if onerror is not None:
                onerror(error)
            return
        top = os.fspath(top)
        directories = [name for name, _, kind in entries if _stat.S_ISDIR(kind)]
        files = [name for name, _, kind in entries if not _stat.S_ISDIR(kind)]
        if topdown:
            yield top, directories, files
        for name in directories:
            yield from self.walk(os.path.join(top, name), topdown, onerror)
        if not topdown:
            yield top, directories, files

    def stat(self, path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        (mode, inode, links, user, group, size, times, created, sectors, block_size, device) = (
            self._raw.stat(path, follow_symlinks)
        )
        seconds = [time // 1_000_000_000 for time in times]
        more: dict[str, Any] = {
            "st_blksize": block_size,
            "st_blocks": sectors,
            "st_rdev": os.makedev(*device),
        }
        for name, time in zip(("atime", "mtime", "ctime"), times):
            more[f"st_{name}"] = time / 1e9
            more[f"st_{name}_ns"] = time
        if created is not None:
            more["st_birthtime"] = created / 1e9
        return os.stat_result((mode, inode, 0, links, user, group, size, *seconds), more)

    def lstat(self, path: Path) -> os.stat_result:
        return self.stat(path, follow_symlinks=False)

    def statvfs(self) -> os.statvfs_result:
        block_size, blocks, free, available, inodes, inodes_free, longest = self._raw.statvfs()
        return os.statvfs_result(
            (
                block_size,
                block_size,
                blocks,
                free,
                available,
                inodes,
                inodes_free,
                inodes_free,
                0,
                longest,
            )
        )

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        self._raw.mkdir(path, mode)

    def makedirs(self, path: Path, exist_ok: bool = False) -> None:
        if not exist_ok and self.lexists(path):
            raise FileExistsError(17, os.strerror(17), os.fspath(path))
        self._raw.makedirs(path)

    def mknod(self, path: Path, mode: int = 0o600 | _stat.S_IFREG, device: int = 0) -> None:
        self._raw.mknod(path, mode, (os.major(device), os.minor(device)))

    def symlink(self, target: Path, path: Path) -> None:
        self._raw.symlink(target, path)

    def link(self, original: Path, path: Path) -> None:
        self._raw.link(original, path)

    def readlink(self, path: Path) -> str:
        return self._raw.readlink(path)

    def rename(self, source: Path, target: Path) -> None:
        """As rename in Linux: a target that may be replaced is."""
        self._raw.rename(source, target)

    replace = rename

    def remove(self, path: Path) -> None:
        self._raw.remove(path)

    unlink = remove

    def rmdir(self, path: Path) -> None:
        self._raw.rmdir(path)

    def chmod(self, path: Path, mode: int) -> None:
        self._raw.chmod(path, mode)

    def chown(self, path: Path, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """-1 leaves the user or the group."""
        user, group = (None if number == -1 else number for number in (uid, gid))
        self._raw.chown(path, user, group, follow_symlinks)

    def utime(
        self,
        path: Path,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        if times is not None:
            if ns is not None:
                raise ValueError("times and ns exclude each other")
            ns = (round(times[0] * 1e9), round(times[1] * 1e9))
        self._raw.utime(path, ns, follow_symlinks)

    def truncate(self, path: Path, length: int) -> None:
        self._raw.truncate(path, length)

    def getxattr(self, path: Path, attribute: str) -> bytes:
        return self._raw.getxattr(path, attribute)

    def setxattr(self, path: Path, attribute: str, value: bytes) -> None:
        self._raw.setxattr(path, attribute, bytes(value))

    def listxattr(self, path: Path) -> list[str]:
        return self._raw.listxattr(path)

    def removexattr(self, path: Path, attribute: str) -> None:
        self._raw.removexattr(path, attribute)

    # As in os.path.

    def exists(self, path: Path) -> bool:
        return self._mode(path, True) != 0

    def lexists(self, path: Path) -> bool:
        return self._mode(path, False) != 0

    def isdir(self, path: Path) -> bool:
        return _stat.S_ISDIR(self._mode(path, True))

    def isfile(self, path: Path) -> bool:
        return _stat.S_ISREG(self._mode(path, True))

    def islink(self, path: Path) -> bool:
        return _stat.S_ISLNK(self._mode(path, False))

    def getsize(self, path: Path) -> int:
        return self.stat(path).st_size

    def realpath(self, path: Path) -> str:
        return self._raw.realpath(path)

    def _mode(self, path: Path, follow_symlinks: bool) -> int:
        try:
            return self._raw.stat(path, follow_symlinks)[0]
        except OSError:
            return 0

    # As in shutil.

    def rmtree(self, path: Path) -> None:
        self._raw.rmtree(path)

    def copyfile(self, source: Path, target: Path) -> None:
        """Copies a file within the image, with its permissions."""
        self._raw.copy(source, target)

    def copy_in(self, source: Path, target: Path) -> None:
        """Copies a file or a tree of this machine into the image, with owners, permissions, times, extended
        attributes, hard links and holes."""
        self._raw.copy_in(source, target)

    def copy_out(self, source: Path, target: Path) -> None:
        """Copies a file or a tree of the image to this machine, as copy_in does. Owners are kept only for
        root."""
        self._raw.copy_out(source, target)
