"""Images to test with."""

from pathlib import Path

import drystone
import pytest


@pytest.fixture
def name(tmp_path: Path) -> Path:
    """An empty image, which must be clean in the end."""
    name = tmp_path / "disk.img"
    drystone.mkfs(name, 32 << 20)
    yield name
    report = drystone.check(name)
    assert report.is_clean, report.problems


@pytest.fixture
def image(name: Path) -> drystone.Image:
    with drystone.open(name) as image:
        yield image
