"""The planted mistakes of tests/mutants: each can still be planted, and the tests that are named for it are there."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch):
    """The program, in a separate folder."""
    monkeypatch.syspath_prepend(str(TESTS / "mutants"))
    import run

    return run


def test_every_piece_of_text_occurs_once(mutants) -> None:
    assert mutants.stale() == []


def test_every_file_of_tests_is_there(mutants) -> None:
    words = {word for mutant in mutants.python_list() for word in mutant.tests.partition(" -k ")[0].split()}
    assert [word for word in words if "/" in word and not (TESTS / word).is_file()] == []


def test_no_mistake_is_planted_twice_or_changes_nothing(mutants) -> None:
    planted = [(mutant.path, mutant.old, mutant.new) for name in mutants.LISTS for mutant in mutants.LISTS[name]()]
    assert len(set(planted)) == len(planted)
    assert all(old != new for _, old, new in planted)


def test_the_check_says_nothing_where_nothing_is_stale() -> None:
    done = subprocess.run([sys.executable, TESTS / "mutants" / "run.py", "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_killed_command_continues_until_a_file_changes(mutants, tmp_path: Path) -> None:
    file = tmp_path / "target" / "mutants.jsonl"
    assert mutants.Tried(file, "one").failed(("a.py", "old", "new")) is None
    mutants.Tried(file, "one").keep(("a.py", "old", "new"), failed=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write('{"tree": "one", "tri')  # killed
    mutants.Tried(file, "one").keep(("test", "without a mistake"), failed=False)
    assert mutants.Tried(file, "one").failed(("a.py", "old", "new")) is True
    assert mutants.Tried(file, "one").failed(("test", "without a mistake")) is False
    assert mutants.Tried(file, "one").failed(("a.py", "old", "other")) is None
    assert mutants.Tried(file, "two").failed(("a.py", "old", "new")) is None
