"""Open images, with the operations of os and shutil."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import shutil
import stat as _stat
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from . import _drystone
from ._file import open_file
from ._path import ImagePath

HostPath = str | os.PathLike[str]
Path = HostPath | ImagePath

# What says that a path leads nowhere.
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ENAMETOOLONG, errno.EINVAL)


class DiskUsage(NamedTuple):
    """Bytes, as in shutil."""

    total: int
    used: int
    free: int


class CopySummary(NamedTuple):
    """What was copied between an image and this machine."""

    files: int
    hard_links: int
    """Further names of files."""
    directories: int
    symlinks: int
    special: int
    """Device nodes, pipes and sockets."""
    bytes: int
    """Content, without holes."""
    not_made: int
    """Device nodes that only root may make."""
    not_kept: int
    """Owners, attributes and the like that the target can't hold or the caller may not set."""


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


class Listing(Iterator[DirEntry]):
    """What scandir returns: entries, and a context manager as in os."""

    def __init__(self, entries: Iterator[DirEntry]) -> None:
        self._entries = entries

    def __next__(self) -> DirEntry:
        return next(self._entries)

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


# What a program has opened and not forgotten.
_images: weakref.WeakSet[Image] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """What is open at the end of the program is made durable: not all of it is forgotten before."""
    failed: OSError | None = None
    for image in list(_images):
        # A forked child has none that is open: they belong to its parent.
        if image.closed:
            continue
        try:
            try:
                image.close()
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                # Files are open: what they have written is kept.
                image.sync()
        except OSError as error:
            # The others are closed all the same.
            failed = failed or error
    if failed is not None:
        raise failed


class Image:
    """An open image. Leaving a with statement, or close(), makes everything durable."""

    def __init__(
        self,
        name: HostPath,
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
        _images.add(self)

    def close(self) -> None:
        """Makes everything durable and closes the image.

        Files must be closed before: an OSError (EBUSY) says so, and the image stays open. After any other
        error it is closed, and is recovered when it is opened the next time.
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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except OSError as error:
            # Files that an exception left open are no reason to hide it; what they wrote is kept.
            if kind is None or error.errno != errno.EBUSY:
                raise
            self.sync()

    def __del__(self) -> None:
        # One that could not be opened has nothing to close. What is forgotten is closed, too; sys.unraisablehook gets
        # the error.
        if "_raw" in self.__dict__ and not self.closed:
            try:
                warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self)
            finally:
                try:
                    self._raw.close()
                except OSError as error:
                    # Files are open: it is closed with the last of them.
                    if error.errno != errno.EBUSY:
                        raise

    def __repr__(self) -> str:
        return f"<drystone.Image {self.name!r}{', closed' if self.closed else ''}>"

    def path(self, *parts: str) -> ImagePath:
        """A path of the image, like pathlib's."""
        return ImagePath(self, *parts)

    def _at(self, path: Path) -> str:
        if not isinstance(path, ImagePath):
            return os.fspath(path)
        if path.image is not self:
            raise ValueError(f"{path!r} is a path of another image")
        return str(path)

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
            self, self._at(path), mode, buffering, encoding, errors, newline
        )

    def read_bytes(self, path: Path) -> bytes:
        return self._raw.read_bytes(self._at(path))

    def write_bytes(self, path: Path, data: bytes | bytearray | memoryview) -> int:
        return self._raw.write_bytes(self._at(path), bytes(memoryview(data)))

    def read_text(self, path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
        with self.open(path, "r", encoding=encoding, errors=errors) as file:
            text: str = file.read()
        return text

    def write_text(
        self,
        path: Path,
        text: str,
        encoding: str = "utf-8",
        errors: str = "strict",
        newline: str | None = None,
    ) -> int:
        with self.open(path, "w", encoding=encoding, errors=errors, newline=newline) as file:
            return file.write(text)

    # As in os.

    def listdir(self, path: Path = "/") -> list[str]:
        return [name for name, _, _ in self._raw.list(self._at(path))]

    def scandir(self, path: Path = "/") -> Listing:
        top = self._at(path)
        entries = self._raw.list(top)
        return Listing(
            DirEntry(name, os.path.join(top, name), inode, kind, self)
            for name, inode, kind in entries
        )

    def walk(
        self,
        top: Path = "/",
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        followlinks: bool = False,
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """As os.walk: symbolic links to directories are among the directories, and aren't followed
        unless followlinks is true."""
        return self._walk(self._at(top), topdown, onerror, DirEntry.is_dir, followlinks)

    def _walk(
        self,
        top: str,
        topdown: bool,
        onerror: Callable[[OSError], object] | None,
        is_directory: Callable[[DirEntry], bool],
        followlinks: bool,
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        try:
            entries = list(self.scandir(top))
        except OSError as error:
            if onerror is not None:
                onerror(error)
            return
        directories: list[str] = []
        files: list[str] = []
        for entry in entries:
            try:
                is_below = is_directory(entry)
            except OSError:
                # As os.walk has it: what can't be looked at is listed as a file.
                is_below = False
            (directories if is_below else files).append(entry.name)
        links = {entry.name for entry in entries if entry.is_symlink()}
        if topdown:
            yield top, directories, files
        for name in directories:
            if followlinks or name not in links:
                below = os.path.join(top, name)
                yield from self._walk(below, topdown, onerror, is_directory, followlinks)
        if not topdown:
            yield top, directories, files

    def stat(self, path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        (mode, inode, links, user, group, size, times, sectors, block_size, device) = (
            self._raw.stat(self._at(path), follow_symlinks)
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
        self._raw.mkdir(self._at(path), mode)

    def makedirs(self, path: Path, mode: int = 0o777, exist_ok: bool = False) -> None:
        """mode is for the last directory; those above it get 0o777."""
        name = self._at(path)
        above = os.path.dirname(name.rstrip("/"))
        if above:
            self._raw.makedirs(above)
        try:
            self._raw.mkdir(name, mode)
        except OSError:
            if not exist_ok or not self.isdir(name):
                raise

    def mkfifo(self, path: Path, mode: int = 0o666) -> None:
        self._raw.mknod(self._at(path), _stat.S_IMODE(mode) | _stat.S_IFIFO, (0, 0))

    def mknod(self, path: Path, mode: int = 0o600 | _stat.S_IFREG, device: int = 0) -> None:
        self._raw.mknod(self._at(path), mode, (os.major(device), os.minor(device)))

    def symlink(self, target: Path, path: Path) -> None:
        self._raw.symlink(self._at(target), self._at(path))

    def link(self, original: Path, path: Path) -> None:
        self._raw.link(self._at(original), self._at(path))

    def readlink(self, path: Path) -> str:
        return self._raw.readlink(self._at(path))

    def rename(self, source: Path, target: Path) -> None:
        """As rename in Linux: a target that may be replaced is."""
        self._raw.rename(self._at(source), self._at(target))

    replace = rename

    def renames(self, source: Path, target: Path) -> None:
        """As rename; makes the directories above the target, and removes those that are empty then above
        the source."""
        source, target = self._at(source), self._at(target)
        self._raw.makedirs(os.path.dirname(target))
        self._raw.rename(source, target)
        self._remove_empty_above(source)

    def remove(self, path: Path) -> None:
        self._raw.remove(self._at(path))

    unlink = remove

    def rmdir(self, path: Path) -> None:
        self._raw.rmdir(self._at(path))

    def removedirs(self, path: Path) -> None:
        """As rmdir, and then removes the directories above that are empty."""
        self.rmdir(path)
        self._remove_empty_above(self._at(path))

    def _remove_empty_above(self, path: str) -> None:
        above = os.path.dirname(path.rstrip("/"))
        while above.strip("/"):
            try:
                self._raw.rmdir(above)
            except OSError:
                return
            above = os.path.dirname(above.rstrip("/"))

    def chmod(self, path: Path, mode: int) -> None:
        self._raw.chmod(self._at(path), mode)

    def chown(self, path: Path, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """-1 leaves the user or the group."""
        user, group = (None if number == -1 else number for number in (uid, gid))
        self._raw.chown(self._at(path), user, group, follow_symlinks)

    def lchown(self, path: Path, uid: int, gid: int) -> None:
        self.chown(path, uid, gid, follow_symlinks=False)

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
        self._raw.utime(self._at(path), ns, follow_symlinks)

    def truncate(self, path: Path, length: int) -> None:
        self._raw.truncate(self._at(path), length)

    def getxattr(self, path: Path, attribute: str, *, follow_symlinks: bool = True) -> bytes:
        return self._raw.getxattr(self._at(path), attribute, follow_symlinks)

    def setxattr(
        self,
        path: Path,
        attribute: str,
        value: bytes | bytearray | memoryview,
        *,
        follow_symlinks: bool = True,
    ) -> None:
        """Makes the attribute, or replaces its value."""
        self._raw.setxattr(self._at(path), attribute, bytes(memoryview(value)), follow_symlinks)

    def listxattr(self, path: Path = "/", *, follow_symlinks: bool = True) -> list[str]:
        return self._raw.listxattr(self._at(path), follow_symlinks)

    def removexattr(self, path: Path, attribute: str, *, follow_symlinks: bool = True) -> None:
        self._raw.removexattr(self._at(path), attribute, follow_symlinks)

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

    def getatime(self, path: Path) -> float:
        return self.stat(path).st_atime

    def getmtime(self, path: Path) -> float:
        return self.stat(path).st_mtime

    def getctime(self, path: Path) -> float:
        return self.stat(path).st_ctime

    def samefile(self, path1: Path, path2: Path) -> bool:
        return self.stat(path1).st_ino == self.stat(path2).st_ino

    def realpath(self, path: Path) -> str:
        """Without symbolic links; everything on the way must exist."""
        return self._raw.realpath(self._at(path))

    def _mode(self, path: Path, follow_symlinks: bool) -> int:
        path = self._at(path)
        try:
            return self._raw.stat(path, follow_symlinks)[0]
        except OSError as error:
            # An image that is damaged, or not ours, doesn't say that there is nothing.
            if error.errno in _NOT_THERE:
                return 0
            raise

    # As in shutil.

    def rmtree(self, path: Path, ignore_errors: bool = False) -> None:
        """With ignore_errors, what can be removed is."""
        name = self._at(path)
        try:
            if self.islink(name):
                raise OSError("Cannot call rmtree on a symbolic link")
            self._raw.rmtree(name)
        except OSError:
            if not ignore_errors:
                raise
            if self._is_real_directory(name):
                self._remove_what_can_be(name)

    def _is_real_directory(self, path: str) -> bool:
        try:
            return _stat.S_ISDIR(self._mode(path, False))
        except OSError:
            return False

    def _remove_what_can_be(self, directory: str) -> None:
        entries: list[tuple[str, int, int]] = []
        with contextlib.suppress(OSError):
            entries = self._raw.list(directory)
        for name, _, kind in entries:
            path = os.path.join(directory, name)
            if _stat.S_ISDIR(kind):
                self._remove_what_can_be(path)
            else:
                with contextlib.suppress(OSError):
                    self._raw.remove(path)
        with contextlib.suppress(OSError):
            self._raw.rmdir(directory)

    def copyfile(self, source: Path, target: Path) -> str:
        """Copies a file within the image, with its permissions, and returns the new path. Raises
        shutil.SameFileError if both are the same file."""
        name = self._at(target)
        if self.exists(name) and self.samefile(source, name):
            raise shutil.SameFileError(f"{self._at(source)!r} and {name!r} are the same file")
        self._raw.copy(self._at(source), name)
        return name

    def copy(self, source: Path, target: Path) -> str:
        """As copyfile; the target may be a directory to copy into."""
        return self.copyfile(source, self._into(source, target))

    def copy2(self, source: Path, target: Path) -> str:
        """As copy, with times and extended attributes."""
        name = self.copy(source, target)
        found = self.stat(source)
        for attribute in self.listxattr(source):
            self.setxattr(name, attribute, self.getxattr(source, attribute))
        self.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns))
        return name

    def move(self, source: Path, target: Path) -> str:
        """As rename; the target may be a directory to move into, and the new path is returned."""
        name = self._into(source, target)
        if name != self._at(target) and self.lexists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self.rename(source, name)
        return name

    def _into(self, source: Path, target: Path) -> str:
        name = self._at(target)
        if self.isdir(name):
            return os.path.join(name, os.path.basename(self._at(source).rstrip("/")))
        return name

    def disk_usage(self) -> DiskUsage:
        """The space of the image in bytes. free is what users without privileges may take."""
        room = self.statvfs()
        used = (room.f_blocks - room.f_bfree) * room.f_frsize
        return DiskUsage(room.f_blocks * room.f_frsize, used, room.f_bavail * room.f_frsize)

    def copy_in(self, source: HostPath, target: Path) -> CopySummary:
        """Copies a file or a tree of this machine into the image, with owners, permissions, times, extended
        attributes, hard links and holes. The file that the image is in is left out."""
        return CopySummary(*self._raw.copy_in(source, self._at(target)))

    def copy_out(self, source: Path, target: HostPath) -> CopySummary:
        """Copies a file or a tree of the image to this machine, as copy_in does. Owners are kept only for
        root."""
        return CopySummary(*self._raw.copy_out(self._at(source), target))
