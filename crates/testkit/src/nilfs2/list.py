"""Prints what can be seen below a directory, for nilfs2/listing.rs to read: list.py NAME DIRECTORY

A line for each path: `@`, the name, the path, and facts, each as a name, `=` and a value; tabs between
them. Paths and the targets of symbolic links are in hexadecimal.
"""

import array
import fcntl
import hashlib
import os
import stat
import struct
import sys

FS_IOC_FIEMAP = 0xC020660B
EXTENTS = 200
PIECE = 65536
# The kernel looks at each block of a hole: of larger files the content isn't listed.
CONTENT_BYTES_MAX = 1 << 30
TYPES = {
    stat.S_IFDIR: "Directory",
    stat.S_IFREG: "Regular",
    stat.S_IFLNK: "Symlink",
    stat.S_IFCHR: "CharacterDevice",
    stat.S_IFBLK: "BlockDevice",
    stat.S_IFIFO: "Fifo",
    stat.S_IFSOCK: "Socket",
}


def extents(file, size):
    """Ranges of bytes that aren't holes."""
    at = 0
    while at < size:
        request = array.array("B", struct.pack("=QQLLLL", at, size - at, 0, 0, EXTENTS, 0))
        request.frombytes(bytes(56 * EXTENTS))
        fcntl.ioctl(file, FS_IOC_FIEMAP, request)
        (count,) = struct.unpack_from("=L", request, 20)
        for number in range(count):
            start, _, length = struct.unpack_from("=QQQ", request, 32 + 56 * number)
            yield start, min(start + length, size)
            at = start + length
        if count < EXTENTS:
            return


def content(path, size):
    """The digest of all pieces that aren't zeros, and of where they are."""
    digest = hashlib.sha256()
    at = 0
    file = os.open(path, os.O_RDONLY | os.O_NOATIME)
    for start, end in extents(file, size):
        at = max(at, start - start % PIECE)
        while at < end:
            piece = os.pread(file, min(PIECE, size - at), at)
            if piece.strip(b"\0"):
                digest.update(struct.pack("<Q", at) + piece)
            at += PIECE
    os.close(file)
    return digest.hexdigest()


def time(nanoseconds):
    return f"{nanoseconds // 10**9}.{nanoseconds % 10**9:09}"


def facts(path):
    status = os.lstat(path)
    kind = TYPES[stat.S_IFMT(status.st_mode)]
    yield "type", kind
    yield "mode", f"{stat.S_IMODE(status.st_mode):04o}"
    yield "links", status.st_nlink
    yield "owner", f"{status.st_uid}:{status.st_gid}"
    yield "accessed", time(status.st_atime_ns)
    yield "modified", time(status.st_mtime_ns)
    yield "changed", time(status.st_ctime_ns)
    yield "inode", status.st_ino
    if kind == "Regular":
        yield "size", status.st_size
        if status.st_size <= CONTENT_BYTES_MAX:
            yield "content", content(path, status.st_size)
    elif kind == "Symlink":
        yield "size", status.st_size
        yield "target", os.readlink(path).hex()
    elif kind.endswith("Device"):
        yield "device", f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def main():
    name, base = sys.argv[1:]
    pending = [b""]
    while pending:
        path = pending.pop()
        full = base.encode() + path
        shown = "\t".join(f"{fact}={value}" for fact, value in facts(full))
        print(f"@{name}\t{(path or b'/').hex()}\t{shown}")
        if stat.S_ISDIR(os.lstat(full).st_mode):
            pending += [path + b"/" + child for child in os.listdir(full)]


main()
