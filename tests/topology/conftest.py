"""Whole runs in every arrangement of learner and engines that a machine without a GPU has: `make test-topology`."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests in this folder with this tier."""
    for item in items:
        if "tests/topology/" in item.path.as_posix():
            item.add_marker(pytest.mark.topology)


@pytest.fixture
def temporary_directory() -> Iterator[Path]:
    """With a path short enough for sockets."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)
