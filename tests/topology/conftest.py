"""Whole runs in every arrangement of learner and engines that a machine without a GPU has: `make test-topology`."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

INTEGRATION = Path(__file__).parents[1] / "integration"
sys.path.append(str(INTEGRATION))  # what runs are watched with, and engines made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests in this folder with this tier."""
    for item in items:
        if "tests/topology/" in item.path.as_posix():
            item.add_marker(pytest.mark.topology)


@pytest.fixture(scope="session")
def tiny_model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a Qwen2 that calls Python now and then: see `tiny_model`. Do not write into it."""
    import tiny_model

    return tiny_model.build_tiny_model(tmp_path_factory.mktemp("tiny-model"))


@pytest.fixture
def temporary_directory() -> Iterator[Path]:
    """With a path short enough for sockets."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)
