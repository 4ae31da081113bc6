"""Paths of an image, like pathlib's."""

from __future__ import annotations

import stat as _stat
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from ._image import DirEntry, Image


class ImagePath:
    """A path of an image, with the methods of pathlib.Path.

    It isn't os.PathLike: it names nothing on this machine.
    """

    __slots__ = ("image", "pure")

    def __init__(self, image: Image, *parts: str) -> None:
        self.image = image
        self.pure = PurePosixPath("/", *parts)

    def _at(self, pure: PurePosixPath) -> ImagePath:
        return ImagePath(self.image, str(pure))

    def __str__(self) -> str:
        return str(self.pure)

    def __repr__(self) -> str:
        return f"ImagePath({self.image!r}, {str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ImagePath)
            and self.image is other.image
            and self.pure == other.pure
        )

    def __lt__(self, other: ImagePath) -> bool:
        return self.pure < other.pure

    def __hash__(self) -> int:
        return hash((id(self.image), self.pure))

    def __truediv__(self, other: str) -> ImagePath:
        return self._at(self.pure / other)

    def joinpath(self, *others: str) -> ImagePath:
        return self._at(self.pure.joinpath(*others))

    @property
    def name(self) -> str:
        return self.pure.name

    @property
    def stem(self) -> str:
        return self.pure.stem

    @property
    def suffix(self) -> str:
        return self.pure.suffix

    @property
    def suffixes(self) -> list[str]:
        return self.pure.suffixes

    @property
    def parts(self) -> tuple[str, ...]:
        return self.pure.parts

    @property
    def parent(self) -> ImagePath:
        return self._at(self.pure.parent)

    @property
    def parents(self) -> list[ImagePath]:
        return [self._at(parent) for parent in self.pure.parents]

    def with_name(self, name: str) -> ImagePath:
        return self._at(self.pure.with_name(name))

    def with_suffix(self, suffix: str) -> ImagePath:
        return self._at(self.pure.with_suffix(suffix))

    def with_stem(self, stem: str) -> ImagePath:
        return self._at(self.pure.with_stem(stem))

    def as_posix(self) -> str:
        return str(self)

    def is_relative_to(self, other: str | ImagePath) -> bool:
        return self.pure.is_relative_to(str(other))

    def relative_to(self, other: str | ImagePath) -> PurePosixPath:
        """The rest of the path. It belongs to no image, which paths from the root do."""
        return self.pure.relative_to(str(other))

    def match(self, pattern: str) -> bool:
        return self.pure.match(pattern)

    def open(self, mode: str = "r", buffering: int = -1, **options: Any) -> IO[Any]:
        return self.image.open(str(self), mode, buffering, **options)

    def read_bytes(self) -> bytes:
        return self.image.read_bytes(str(self))

    def write_bytes(self, data: bytes) -> int:
        return self.image.write_bytes(str(self), data)

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.image.read_text(str(self), encoding, errors)

    def write_text(
        self,
        text: str,
        encoding: str = "utf-8",
        errors: str = "strict",
        newline: str | None = None,
    ) -> int:
        return self.image.write_text(self, text, encoding, errors, newline)

    def iterdir(self) -> Iterator[ImagePath]:
        for name in self.image.listdir(str(self)):
            yield self / name

    def walk(
        self,
        top_down: bool = True,
        on_error: Callable[[OSError], object] | None = None,
        follow_symlinks: bool = False,
    ) -> Iterator[tuple[ImagePath, list[str], list[str]]]:
        """As in pathlib: symbolic links that aren't followed are among the files."""

        def is_directory(entry: DirEntry) -> bool:
            return entry.is_dir(follow_symlinks=follow_symlinks)

        for top, directories, files in self.image._walk(
            str(self), top_down, on_error, is_directory, follow_symlinks
        ):
            yield ImagePath(self.image, top), directories, files

    def glob(self, pattern: str) -> Iterator[ImagePath]:
        """Everything below that the pattern matches. "**" stands for any directories; symbolic links
        aren't followed for it."""
        parts = PurePosixPath(pattern).parts
        if not parts or parts[0] == "/":
            raise ValueError(f"not a pattern below a directory: {pattern!r}")
        seen = set()
        for path in self._glob(parts):
            if path not in seen:
                seen.add(path)
                yield path

    def rglob(self, pattern: str) -> Iterator[ImagePath]:
        """As glob, with "**/" before the pattern."""
        return self.glob(f"**/{pattern}")

    def _glob(self, parts: tuple[str, ...]) -> Iterator[ImagePath]:
        if not parts:
            yield self
            return
        first, rest = parts[0], parts[1:]
        if first == "**":
            yield from self._glob(rest)
        if not any(letter in first for letter in "*?["):
            if (self / first).exists() or (self / first).is_symlink():
                yield from (self / first)._glob(rest)
            return
        try:
            entries = list(self.image.scandir(self))
        except (NotADirectoryError, PermissionError, FileNotFoundError):
            return
        for entry in entries:
            if first == "**":
                if entry.is_dir(follow_symlinks=False):
                    yield from (self / entry.name)._glob(parts)
            elif fnmatchcase(entry.name, first):
                yield from (self / entry.name)._glob(rest)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self.image.stat(str(self), follow_symlinks=follow_symlinks)

    def lstat(self) -> os.stat_result:
        return self.image.lstat(str(self))

    def exists(self) -> bool:
        return self.image.exists(self)

    def samefile(self, other: str | ImagePath) -> bool:
        return self.image.samefile(self, other)

    def is_dir(self) -> bool:
        return self.image.isdir(str(self))

    def is_file(self) -> bool:
        return self.image.isfile(str(self))

    def is_symlink(self) -> bool:
        return self.image.islink(str(self))

    def is_fifo(self) -> bool:
        return self._is(_stat.S_ISFIFO)

    def is_socket(self) -> bool:
        return self._is(_stat.S_ISSOCK)

    def is_block_device(self) -> bool:
        return self._is(_stat.S_ISBLK)

    def is_char_device(self) -> bool:
        return self._is(_stat.S_ISCHR)

    def _is(self, kind: Callable[[int], bool]) -> bool:
        return self.exists() and kind(self.stat().st_mode)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if parents and self != self.parent:
            self.image.makedirs(str(self.parent), exist_ok=True)
        try:
            self.image.mkdir(str(self), mode)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:
        try:
            self.image.mknod(self, _stat.S_IMODE(mode) | _stat.S_IFREG)
        except FileExistsError:
            if not exist_ok:
                raise
            self.image.utime(self)

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self.image.unlink(str(self))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        self.image.rmdir(str(self))

    def rename(self, target: str | ImagePath) -> ImagePath:
        self.image.rename(str(self), target)
        return ImagePath(self.image, str(target))

    replace = rename

    def symlink_to(self, target: str | ImagePath) -> None:
        self.image.symlink(target, str(self))

    def hardlink_to(self, target: str | ImagePath) -> None:
        self.image.link(target, str(self))

    def readlink(self) -> str:
        """The target as it is recorded: it may be relative to this directory."""
        return self.image.readlink(str(self))

    def resolve(self) -> ImagePath:
        return ImagePath(self.image, self.image.realpath(str(self)))

    def chmod(self, mode: int) -> None:
        self.image.chmod(str(self), mode)
