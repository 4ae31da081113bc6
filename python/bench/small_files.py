"""Reads 10,000 small files of an image in several ways, and prints a table in Markdown.

Each way opens the image, reads every file by its path and compares the content. Ways take turns.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import drystone
import ext4

FILES = 10_000
ROUNDS = 3


def make(folder: Path) -> tuple[str, dict[str, bytes]]:
    """An image with files of up to 4 KiB in 100 directories."""
    chance = random.Random(14)
    contents = {
        f"/d{number // 100:02}/f{number:04}": chance.randbytes(chance.randrange(1, 4096))
        for number in range(FILES)
    }
    tree = folder / "tree"
    for path, content in contents.items():
        file = Path(f"{tree}{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    name = str(folder / "disk.img")
    drystone.build(name, tree, owner=(0, 0))
    return name, contents


def by_drystone(name: str, contents: dict[str, bytes]) -> None:
    with drystone.open(name, read_only=True) as image:
        for path, content in contents.items():
            assert image.read_bytes(path) == content


def by_drystone_files(name: str, contents: dict[str, bytes]) -> None:
    with drystone.open(name, read_only=True) as image:
        for path, content in contents.items():
            with image.open(path, "rb") as file:
                assert file.read() == content


def by_ext4(name: str, contents: dict[str, bytes]) -> None:
    with open(name, "rb") as stream:
        volume = ext4.Volume(stream)
        for path, content in contents.items():
            with volume.inode_at(path).open() as file:
                assert file.read() == content


def by_debugfs(name: str, contents: dict[str, bytes]) -> None:
    for path, content in contents.items():
        call = ["debugfs", "-R", f"cat {path}", name]
        read = subprocess.run(call, capture_output=True, check=True)
        assert read.stdout == content


def by_one_debugfs(name: str, contents: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        call = ["debugfs", "-R", f"rdump / {folder}", name]
        subprocess.run(call, capture_output=True, check=True)
        for path, content in contents.items():
            assert Path(folder + path).read_bytes() == content


WAYS = {
    "`image.read_bytes`": by_drystone,
    "`image.open`, `read`": by_drystone_files,
    "PyPI's `ext4`": by_ext4,
    "`debugfs -R 'cat …'`, a process for each file": by_debugfs,
    "`debugfs -R 'rdump …'`, one process, by way of the host": by_one_debugfs,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        name, contents = make(Path(folder))
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        processor: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(rounds):
            for way, read in WAYS.items():
                start, used = time.perf_counter(), os.times()
                read(name, contents)
                seconds[way].append(time.perf_counter() - start)
                processor[way].append(sum(os.times()[:4]) - sum(used[:4]))
                print(f"round {number + 1}: {way}: {seconds[way][-1]:.3f} s", file=sys.stderr)
    ours = statistics.median(seconds["`image.read_bytes`"])
    cpu = statistics.median(processor["`image.read_bytes`"])
    print("| way | s | s of CPU | times ours, CPU |")
    print("| --- | --- | --- | --- |")
    for way in WAYS:
        median, used = statistics.median(seconds[way]), statistics.median(processor[way])
        print(f"| {way} | {median:.3f} | {used:.3f} | {median / ours:.1f}, {used / cpu:.1f} |")


if __name__ == "__main__":
    main()
