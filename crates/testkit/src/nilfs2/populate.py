"""Makes content on a mounted NILFS2 that follows from a seed: populate.py DIRECTORY SEED STAGE...

Each stage works in a directory of its own and ends with a sync, which is a checkpoint. Stages:

kinds      every type of inode, names, owners, modes, times, flags, links
sparse     files whose few blocks lie far apart
large      a file with a deep tree of blocks, rewritten in pieces, and a directory with many names
churn[=N]  N rounds (8) of random changes, with checkpoints and snapshots between them
delete     takes away every second name of what `large` and `churn` have made
"""

import array
import fcntl
import os
import random
import socket
import stat
import subprocess
import sys

FS_IOC_SETFLAGS = 0x40086602
APPEND, NODUMP, NOATIME, IMMUTABLE = 0x20, 0x40, 0x80, 0x10
DEVICE = "/dev/ubda"
LINKS = 70
NAMES = 1500
STEPS = 60


def write(path, content, offset=0):
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644), "wb", buffering=0) as file:
        file.seek(offset)
        file.write(content)


def set_flags(path, flags):
    file = os.open(path, os.O_RDONLY)
    fcntl.ioctl(file, FS_IOC_SETFLAGS, array.array("l", [flags]))
    os.close(file)


def kinds(base, rng, block):
    for size in [0, 1, block - 1, block, block + 1, 6 * block, 6 * block + 1, 7 * block, 70 * block + 5]:
        write(f"{base}/size-{size}", rng.randbytes(size))
    for length in [1, 59, 60, 255, block - 1 if block < 4096 else 4095]:
        os.symlink("t" * length, f"{base}/symlink-{length}")
    os.mkfifo(f"{base}/fifo", 0o640)
    socket.socket(socket.AF_UNIX).bind(f"{base}/socket")
    for kind, name in [(stat.S_IFCHR, "character"), (stat.S_IFBLK, "block")]:
        for major, minor in [(0, 0), (1, 3), (255, 255), (511, 256), (4095, 1048575)]:
            os.mknod(f"{base}/{name}-{major}-{minor}", kind | 0o600, os.makedev(major, minor))
    for name in [b"n" * 255, b"\xff\xfe\n\t \\", "\u00e4\u6f22".encode(), b"-"]:
        write(base.encode() + b"/" + name, name)
    for mode in [0, 0o4755, 0o2755, 0o1777, 0o7777]:
        write(f"{base}/mode-{mode:o}", b"m")
        os.chmod(f"{base}/mode-{mode:o}", mode)
        os.mkdir(f"{base}/directory-{mode:o}")
        os.chmod(f"{base}/directory-{mode:o}", mode)
    for owner in [(1, 2), (65534, 65533), (70000, 80000), (4294967294, 4294967294)]:
        write(f"{base}/owner-{owner[0]}", b"o")
        os.chown(f"{base}/owner-{owner[0]}", *owner)
    for seconds in [0, 1, 2**31, 2**33]:
        write(f"{base}/time-{seconds}", b"t")
        os.utime(f"{base}/time-{seconds}", ns=(1, seconds * 10**9 + rng.randrange(10**9)))
    write(f"{base}/linked", b"l")
    for number in range(LINKS):
        os.link(f"{base}/linked", f"{base}/link-{number}")
    deep = base
    for number in range(12):
        deep += f"/deep{number}"
        os.mkdir(deep)
    write(f"{deep}/file", b"d")
    for flags, name in [(NODUMP, "nodump"), (APPEND, "append"), (IMMUTABLE, "immutable"), (NOATIME, "noatime")]:
        write(f"{base}/flag-{name}", b"f")
        set_flags(f"{base}/flag-{name}", flags)


def sparse(base, rng, block):
    for name, keys in [
        ("direct", [0, 5]),
        ("just-a-tree", [6]),
        ("few", [1, 6, 63, 255]),
        ("far", [0, 7, 1 << 20, (1 << 30) + 1, (1 << 40) - 1]),
        ("scattered", sorted(rng.sample(range(1 << 17), 300))),
    ]:
        for key in keys:
            write(f"{base}/{name}", rng.randbytes(block), key * block)
    with open(f"{base}/all-hole", "wb") as file:
        file.truncate(1 << 42)
    write(f"{base}/cut", rng.randbytes(40 * block))
    os.sync()
    os.truncate(f"{base}/cut", 3 * block + 7)
    os.truncate(f"{base}/cut", 90 * block)
    write(f"{base}/unaligned", b"end", 100 * block - 1)


def large(base, rng, block):
    blocks = 5000 if block < 4096 else 1500
    write(f"{base}/file", rng.randbytes(blocks * block))
    os.sync()
    for _ in range(60):
        write(f"{base}/file", rng.randbytes(block), rng.randrange(blocks) * block)
    os.sync()
    os.truncate(f"{base}/file", blocks * block * 3 // 4)
    os.mkdir(f"{base}/names")
    for number in range(NAMES):
        write(f"{base}/names/{number}-{'x' * rng.randrange(60)}", b"")


def churn(base, rng, block, rounds):
    files, directories, count = [], [base], 0
    for turn in range(rounds):
        for _ in range(STEPS):
            choice = rng.randrange(100)
            file = rng.choice(files) if files else None
            count += 1
            fresh = f"{rng.choice(directories)}/{count}"
            if choice < 35 or file is None:
                write(fresh, rng.randbytes(rng.randrange(9 * block)))
                files.append(fresh)
            elif choice < 55:
                write(file, rng.randbytes(rng.randrange(3 * block)), rng.randrange(30 * block))
            elif choice < 62:
                os.truncate(file, rng.randrange(30 * block))
            elif choice < 70:
                os.rename(file, fresh)
                files[files.index(file)] = fresh
            elif choice < 75:
                os.link(file, fresh)
                files.append(fresh)
            elif choice < 80 and len(directories) < 20:
                os.mkdir(fresh)
                directories.append(fresh)
            elif choice < 83:
                with open(file, "r+b") as opened:
                    opened.write(b"synced")
                    opened.flush()
                    rng.choice([os.fsync, os.fdatasync])(opened.fileno())
            else:
                os.unlink(file)
                files.remove(file)
        os.sync()
        if turn % 3 == 1:
            subprocess.run(["mkcp", "-s", DEVICE], check=True)


def delete(base):
    for directory, _, files in os.walk(base):
        for name in sorted(files)[::2]:
            os.unlink(f"{directory}/{name}")


def main():
    root, seed, *stages = sys.argv[1:]
    block = os.statvfs(root).f_bsize
    for stage in stages:
        name, _, count = stage.partition("=")
        rng = random.Random(f"{seed} {stage}")
        if name == "delete":
            for directory in ["large", "churn"]:
                delete(f"{root}/{directory}")
        else:
            directory = f"{root}/{name}"
            number = 1
            while os.path.exists(directory):
                number += 1
                directory = f"{root}/{name}{number}"
            os.mkdir(directory)
            make = {"kinds": kinds, "sparse": sparse, "large": large}.get(name)
            if make:
                make(directory, rng, block)
            elif name == "churn":
                churn(directory, rng, block, int(count or 8))
            else:
                sys.exit(f"no stage {name}")
        os.sync()


main()
