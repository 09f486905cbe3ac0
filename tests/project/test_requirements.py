"""The locked requirements: each with its version and the hashes of its files."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKED = [path for path in sorted((ROOT / "requirements").glob("*.txt")) if path.name != "excluded.txt"]
PINNED = re.compile(r"[A-Za-z0-9._-]+(\[[a-z0-9,_-]+\])?==[^\s;]+( ; .+?)?( --hash=sha256:[0-9a-f]{64})+")


def requirements(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("path", LOCKED, ids=lambda path: path.name)
def test_every_requirement_has_a_version_and_hashes(path: Path) -> None:
    found = requirements(path)
    assert found
    assert [line for line in found if not PINNED.fullmatch(line)] == []


def test_every_locked_file_is_installed_with_its_hashes() -> None:
    installs = [
        line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "-r requirements/" in line
    ]
    assert installs
    assert [line for line in installs if "--require-hashes" not in line] == []
