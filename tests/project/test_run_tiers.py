"""`make test-all` in small trees: tiers that fail, are killed, or cannot run, and the next call."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
PYTEST = f"{sys.executable} -m pytest -p no:cacheprovider"
MAKEFILE = f"""
good: ; {PYTEST} good.py
bad: ; {PYTEST} bad.py
parts: ; status=0; {PYTEST} bad.py || status=1; {PYTEST} good.py || status=1; exit $$status
killed: ; {PYTEST} killed.py
cut: ; status=0; {PYTEST} killed.py || status=1; {PYTEST} bad.py || status=1; exit $$status
waits: ; {PYTEST} waits.py
empty: ; @true
crates: ; @echo 'test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.10s'
planted: ; @echo '9 of 10 killed: 90.0%'
"""
MARKS = "from pathlib import Path\nMARKS = Path(__file__).parent / 'marks'\n"
FILES = {
    ".gitignore": "/target/\n/marks/\n__pycache__/\n",
    "Makefile": MAKEFILE,
    "good.py": f"{MARKS}def test_a():\n    with (MARKS / 'good').open('a') as file: file.write('x')\n"
    "def test_b(): pass\n",
    "bad.py": "import pytest\ndef test_a(): print('== 7 passed in 1s =='); assert 0\n"
    "@pytest.mark.skip\ndef test_b(): pass\n@pytest.fixture\ndef no(): 1 / 0\ndef test_c(no): pass\n",
    "killed.py": "import os\ndef test_a(): os.kill(os.getpid(), 9)\n",
    "waits.py": f"{MARKS}import os, time\ndef test_a():\n    (MARKS / 'process').write_text(str(os.getpid()))\n"
    "    while not (MARKS / 'go').exists(): time.sleep(0.01)\n",
}
OTHER_FILES = {"with another commit": ("good.py", True), "without a commit": ("new.py", False)}


@pytest.fixture
def tiers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # of the process of all tests
    import run_tiers

    return run_tiers


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "marks").mkdir()
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(tree: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tree, check=True)


def commit(tree: Path) -> None:
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "files")


def run(tiers: Any, tree: Path, *targets: str, obstacle: Callable[[], str] = lambda: "") -> int:
    status: int = tiers.run_tiers([], [tiers.Tier(name, name, obstacle) for name in targets], tree)
    return status


def results(tree: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tree / "docs/evidence/tiers.jsonl").read_text().splitlines()]


def numbers(tree: Path) -> list[tuple[Any, ...]]:
    return [tuple(each[name] for name in ("tier", "result", "passed", "failed", "skipped")) for each in results(tree)]


def test_tier_that_fails_stops_no_other_tier_and_no_other_part(tiers: Any, tree: Path) -> None:
    assert run(tiers, tree, "bad", "parts", "good") == 1
    assert numbers(tree) == [
        ("bad", "failed", 0, 2, 1),
        ("parts", "failed", 2, 2, 1),
        ("good", "passed", 2, 0, 0),
    ]
    page = (tree / "docs/evidence/tests.md").read_text()
    assert [line.split(" | ")[:5] for line in page.splitlines()[-3:]] == [
        ["| bad", "failed", "0", "2", "1"], ["| parts", "failed", "2", "2", "1"], ["| good", "passed", "2", "0", "0"],
    ]  # fmt: skip
    assert "assert 0" in (tree / "target/tiers/bad.log").read_text()


def test_crates_and_planted_mistakes_are_counted(tiers: Any, tree: Path) -> None:
    assert run(tiers, tree, "crates", "planted") == 0
    assert numbers(tree) == [("crates", "passed", 12, 0, 3), ("planted", "passed", 9, 1, 0)]


def test_tier_that_ended_is_run_again_only_for_other_files(tiers: Any, tree: Path) -> None:
    for _ in range(2):
        assert run(tiers, tree, "good", "bad") == 1
    commit(tree)  # of the table
    assert run(tiers, tree, "good") == 0
    assert (tree / "marks/good").read_text() == "x"
    for times, (name, is_committed) in enumerate(OTHER_FILES.values(), start=2):
        with (tree / name).open("a") as file:
            file.write("# changed\n")
        if is_committed:
            commit(tree)
        assert run(tiers, tree, "good") == 0
        assert (tree / "marks/good").read_text() == times * "x"
        assert results(tree)[-1]["commit"].endswith(" (dirty)") is not is_committed


@pytest.mark.parametrize("target", ["killed", "cut", "empty", "missing"])
def test_tier_that_did_not_end_is_run_again(tiers: Any, tree: Path, target: str) -> None:
    for times in (1, 2):
        assert run(tiers, tree, target) == 1
        assert len(results(tree)) == times
        assert results(tree)[-1]["result"].startswith("did not end: status ")


def test_tier_that_cannot_run_has_a_row_that_says_why(tiers: Any, tree: Path) -> None:
    for _ in range(2):
        assert run(tiers, tree, "bad", obstacle=lambda: "no screen") == 0
    assert numbers(tree) == [("bad", "cannot run here: no screen", 0, 0, 0)]
    assert run(tiers, tree, "bad") == 1  # with a screen
    assert "| bad | failed |" in (tree / "docs/evidence/tests.md").read_text()


def test_files_that_change_during_a_tier_are_reported(tiers: Any, tree: Path) -> None:
    (tree / "Makefile").write_text("good: ; @echo >> new; echo '=== 1 passed in 1s ==='\n")
    assert run(tiers, tree, "good") == 1
    assert results(tree)[0]["result"] == "files were changed meanwhile"


def started(tree: Path, targets: Sequence[str]) -> subprocess.Popen[bytes]:
    """A call in another process, in its tier that waits."""
    code = (
        "import sys; from pathlib import Path; from run_tiers import Tier, run_tiers\n"
        "sys.exit(run_tiers([], [Tier(name, name) for name in sys.argv[2:]], Path(sys.argv[1])))"
    )
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS)}
    call = subprocess.Popen([sys.executable, "-c", code, str(tree), *targets], env=environment)
    until((tree / "marks/process").exists)
    return call


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_call_is_continued(tiers: Any, tree: Path, number: signal.Signals) -> None:
    call = started(tree, ["good", "waits", "bad"])
    call.send_signal(number)
    assert call.wait() == (-signal.SIGKILL if number == signal.SIGKILL else 128 + signal.SIGTERM)
    assert [each["tier"] for each in results(tree)] == ["good"]
    if number == signal.SIGTERM:  # the tests end with the call
        until(lambda: not Path(f"/proc/{(tree / 'marks/process').read_text()}/cmdline").exists())
    (tree / "marks/go").touch()
    assert run(tiers, tree, "good", "waits", "bad") == 1
    assert [each["tier"] for each in results(tree)] == ["good", "waits", "bad"]
    assert (tree / "marks/good").read_text() == "x"


def test_every_target_of_tests_is_a_tier(tiers: Any) -> None:
    targets = set(re.findall(r"^(test[\w-]*|docs|mutants):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {tier.target for tier in tiers.TIERS} == targets - {"test-all", "test-sandbox"}  # all, and a part of one


def test_unknown_tier_is_refused(tiers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert tiers.run_tiers(["browsers"]) == 2
    assert capsys.readouterr().err.startswith("there is no tier 'browsers'; there are: default, slow, ")


def test_the_table_of_the_docs_comes_from_its_results(tiers: Any) -> None:
    assert (ROOT / tiers.PAGE).read_text(encoding="utf-8") == tiers.page(tiers.read_results(ROOT))
