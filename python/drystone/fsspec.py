"""The files of an image for fsspec, and so for pandas, pyarrow, dask and others.

>>> import fsspec, pandas
>>> fs = fsspec.filesystem("drystone", fo="disk.img")
>>> fs.ls("/")
>>> pandas.read_parquet("drystone:///table.parquet", storage_options={"fo": "disk.img"})
>>> fsspec.open("drystone:///etc/motd::disk.img")
"""

from __future__ import annotations

import errno
import os
import stat as _stat
import time
from datetime import datetime, timezone
from glob import has_magic
from typing import Any

from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

import drystone

_KINDS = {_stat.S_IFREG: "file", _stat.S_IFDIR: "directory", _stat.S_IFLNK: "link"}


# How long files may stay open after a reader has returned: threads of pyarrow let go of them a moment later.
_WAIT_S = 2


class DrystoneFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files of the image fo. With auto_mkdir, directories are made where files are written.

    fsspec keeps the object, and so the image open, until close() or the end of the program. sync() makes
    durable what was written before.
    """

    protocol = "drystone"
    root_marker = "/"
    local_file = False

    def __init__(
        self,
        fo: str | os.PathLike[str] = "",
        read_only: bool = False,
        auto_mkdir: bool = False,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if self._cached:
            return
        super().__init__(**options)
        if target_protocol not in (None, "file", "local"):
            raise ValueError(f"the image must be a file of this machine, not of {target_protocol}")
        if not fo:
            raise ValueError("which image? Its name is the option fo")
        self.fo = os.fspath(fo)
        self.auto_mkdir = auto_mkdir
        self.image = drystone.open(fo, read_only=read_only)

    def close(self) -> None:
        """Makes everything durable and closes the image. Files must be closed before; those that threads of
        pyarrow still hold are waited for."""
        deadline = time.monotonic() + _WAIT_S
        try:
            while True:
                try:
                    self.image.close()
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() > deadline:
                        raise
                time.sleep(0.005)
        finally:
            # The next one with these options opens the image again. It is closed also after an error, but for open files.
            if self.image.closed:
                for token, kept in list(self._cache.items()):
                    if kept is self:
                        del self._cache[token]

    def sync(self) -> None:
        """Returns when everything is durable."""
        self.image.sync()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        # Names may hold what joins the parts of a URL.
        if path.startswith("drystone://"):
            path = path.removeprefix("drystone://").split("::")[0]
        return "/" + path.strip("/")

    def unstrip_protocol(self, name: str) -> str:
        return "drystone://" + str(self._strip_protocol(name))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        found = self.image.lstat(path)
        info = self._info(path, found)
        if _stat.S_ISLNK(found.st_mode):
            info["islink"] = True
            info["destination"] = self.image.readlink(path)
            try:
                target = self.image.stat(path)
            except OSError:
                return info
            info["size"] = target.st_size
            info["type"] = _KINDS.get(_stat.S_IFMT(target.st_mode), "other")
        return info

    def _info(self, path: str, found: os.stat_result) -> dict[str, Any]:
        return {
            "name": path,
            "size": found.st_size,
            "type": _KINDS.get(_stat.S_IFMT(found.st_mode), "other"),
            "islink": False,
            "created": found.st_ctime,
            "mtime": found.st_mtime,
            "mode": found.st_mode,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "ino": found.st_ino,
            "nlink": found.st_nlink,
        }

    def ls(self, path: str, detail: bool = False, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        if not self.image.isdir(path):
            info = self.info(path)
            return [info] if detail else [path]
        names = [os.path.join(path, name) for name in self.image.listdir(path)]
        return [self._listed(name) for name in names] if detail else names

    def _listed(self, path: str) -> dict[str, Any]:
        """As info, but a link to a directory is a link, so that no walk goes in circles."""
        info = self.info(path)
        if info["islink"] and info["type"] == "directory":
            info["type"] = "link"
        return info

    def exists(self, path: str, **_: Any) -> bool:
        return self.image.exists(self._strip_protocol(path))

    def lexists(self, path: str, **_: Any) -> bool:
        return self.image.lexists(self._strip_protocol(path))

    def isdir(self, path: str) -> bool:
        return self.image.isdir(self._strip_protocol(path))

    def isfile(self, path: str) -> bool:
        return self.image.isfile(self._strip_protocol(path))

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents:
            self.image.makedirs(path)
        else:
            self.image.mkdir(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.image.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self.image.rmdir(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        self.image.remove(self._strip_protocol(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        if maxdepth is not None:
            super().rm(path, recursive, maxdepth)
            return
        for one in path if isinstance(path, list) else [path]:
            one = self._strip_protocol(one)
            if recursive and self.image.isdir(one) and not self.image.islink(one):
                self.image.rmtree(one)
            else:
                self.image.remove(one)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.image.isdir(source):
            self.image.makedirs(target, exist_ok=True)
            return
        self.image.makedirs(os.path.dirname(target), exist_ok=True)
        self.image.copyfile(source, target)

    def mv(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any
    ) -> None:
        """A file or a directory is renamed, or moved into a directory that is there. What a pattern or a list names
        is moved into path2."""
        if maxdepth is not None:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)
            return
        if not isinstance(path1, list) and has_magic(stringify_path(path1)) and not self.lexists(path1):
            found = self.glob(path1)
            if not found:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path1)
            path1 = found
        if isinstance(path1, list):
            if not isinstance(path2, list):
                path2 = [stringify_path(path2).rstrip("/") + "/"] * len(path1)
            targets = [self._moved(one, to) for one, to in zip(path1, path2, strict=True)]
            if len(set(targets)) < len(targets):
                raise FileExistsError(errno.EEXIST, "Two of them would have the same name", path2[0])
            for one, target in zip(path1, targets):
                self._rename(self._strip_protocol(one), target)
            return
        self._rename(self._strip_protocol(path1), self._moved(path1, path2))

    def _moved(self, path1: str, path2: str) -> str:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if stringify_path(path2).endswith("/") or self.image.isdir(target):
            target = os.path.join(target, os.path.basename(source))
        return str(target)

    def _rename(self, source: str, target: str) -> None:
        if source != target:
            self.image.lstat(source)
            self.image.makedirs(os.path.dirname(target), exist_ok=True)
            self.image.rename(source, target)

    def mv_file(self, path1: str, path2: str, **_: Any) -> None:
        self.image.rename(self._strip_protocol(path1), self._strip_protocol(path2))

    def link(self, source: str, target: str, **_: Any) -> None:
        self.image.link(self._strip_protocol(source), self._strip_protocol(target))

    def symlink(self, source: str, target: str, **_: Any) -> None:
        self.image.symlink(source.removeprefix("drystone://"), self._strip_protocol(target))

    def created(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["created"], timezone.utc)

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["mtime"], timezone.utc)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        self._prepare(path)
        if truncate or not self.image.exists(path):
            self.image.write_bytes(path, b"")
        else:
            self.image.utime(path)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self.image.read_bytes(path)
        first, last, _step = slice(start, end).indices(self.image.getsize(path))
        with self.image.open(path, "rb", 0) as file:
            file.seek(first)
            data: bytes = file.read(max(last - first, 0))
        return data

    def _prepare(self, path: str) -> None:
        if self.auto_mkdir:
            self.image.makedirs(os.path.dirname(path), exist_ok=True)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **_: Any,
    ) -> Any:
        if not autocommit:
            raise NotImplementedError("files of an image are written in place")
        if not mode.startswith("r"):
            self._prepare(path)
        return self.image.open(path, mode if "b" in mode else mode + "b", block_size or -1)
