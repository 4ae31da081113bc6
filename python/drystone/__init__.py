"""ext4 and NILFS2 images in user space, without root and without mounts.

>>> import drystone
>>> with drystone.open("disk.img") as image:
...     for name in image.listdir("/etc"):
...         print(name)
...     with image.open("/etc/motd", "w") as file:
...         file.write("hello\\n")

Operations have the names of ``os`` and ``shutil``; ``image.path("/etc")`` is like a ``pathlib.Path``. Paths
are those of the image; relative ones start at its root. Errors are those of ``os``: ``FileNotFoundError`` and
so on. Other threads run during calls.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from . import _drystone
from ._drystone import __version__
from ._image import CopySummary, DirEntry, Image
from ._path import ImagePath

__all__ = [
    "CopySummary",
    "DirEntry",
    "Image",
    "ImagePath",
    "Report",
    "__version__",
    "build",
    "check",
    "mkfs",
    "open",
]


@dataclass(frozen=True)
class Report:
    """What a check has found."""

    errors: int
    warnings: int
    problems: list[str]
    """All errors and warnings, each a sentence."""

    @property
    def is_clean(self) -> bool:
        """Whether the image is consistent. Warnings don't count."""
        return self.errors == 0


def open(
    name: str | os.PathLike[str],
    *,
    read_only: bool = False,
    ignore_journal: bool = False,
    user: tuple[int, int, list[int]] | None = None,
    umask: int = 0o022,
) -> Image:
    """Opens an image: a file, a block device, or a partition ("disk.img#2").

    An image that wasn't closed is recovered; with read_only in memory alone, and with ignore_journal, too,
    not at all. user is a user, a group and more groups, for whom permissions are checked; without it all
    is allowed. umask is taken from the permissions of what is made.
    """
    return Image(
        name, read_only=read_only, ignore_journal=ignore_journal, user=user, umask=umask
    )


def mkfs(
    name: str | os.PathLike[str],
    size: int,
    *,
    kind: str = "ext4",
    label: str = "",
    uuid: str | None = None,
    overwrite: bool = False,
) -> None:
    """Makes an empty image of size bytes; kind is "ext4" or "nilfs2".

    What is there must be empty, unless overwrite is true.
    """
    _drystone.mkfs(name, size, kind=kind, label=label, uuid=uuid, overwrite=overwrite)


def build(
    name: str | os.PathLike[str],
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    size: int | None = None,
    free: int = 0,
    label: str = "",
    owner: tuple[int, int] | None = None,
    exclude: str | Iterable[str] = (),
    overwrite: bool = False,
) -> list[str]:
    """Builds an ext4 image of directories, tar archives and OCI layouts, each laid over those before it.

    The image is as large as it must be, with free bytes left, or has size bytes. owner is the user and
    the group of everything; exclude has patterns of names, or of paths. The same sources give the same
    bytes. Returns warnings.
    """
    if isinstance(sources, (str, os.PathLike)):
        sources = [sources]
    if isinstance(exclude, str):
        exclude = [exclude]
    return _drystone.build(
        name,
        [os.fspath(source) for source in sources],
        size=size,
        free=free,
        label=label,
        owner=owner,
        exclude=list(exclude),
        overwrite=overwrite,
    )


def check(name: str | os.PathLike[str]) -> Report:
    """Looks for errors in an image that isn't open for writing, and changes nothing."""
    return Report(*_drystone.check(name))
