"""`torl data prepare --check-solutions` drops problems with tests that their own solutions fail."""

import json
from pathlib import Path
from typing import Any

import pytest

from torl.components.data import load_problems
from torl_lab.curation import solutions
from torl_lab.curation.command import main

DOUBLE = "print(2 * int(input()))"
ROWS: dict[str, Any] = {
    "right": [DOUBLE],
    "second is right": ["print(1)", DOUBLE],
    "wrong": ["print(input())"],
    "exception": ["print(int(input()) / 0)"],
    "loop": ["while True: pass"],
    "none": [],
}
QUESTIONS = {
    "right": "Read a number of apples and print how many there are after the harvest doubled.",
    "second is right": "Twice the length of the given rope is wanted on standard output.",
    "wrong": "A colony of bacteria splits once; how large does it become?",
    "exception": "Given the half of a sum of money, determine all of it.",
    "loop": "From the radius of a wheel, find its diameter in whole centimeters.",
    "none": "How many shoes do so many people wear on their feet?",
}


def prepared(path: Path, output: Path, *options: str) -> dict[str, Any]:
    assert main(["prepare", str(path), "--output", str(output), *options]) == 0
    found: dict[str, Any] = json.loads((output / "counts.json").read_text())
    return found


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    suite = {"tests": [{"inputs": [["3\n", "6\n"], ["5\n", "10\n"]]}], "cpu_seconds": 0.1}
    rows = [{"id": name, "problem": QUESTIONS[name], "tests": suite, "solutions": own} for name, own in ROWS.items()]
    rows.append({"id": "mathematics", "problem": "What is the sum of 17 and 25?", "answer": "42"})
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_problems_that_their_own_solutions_fail_are_dropped(
    problems: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prepared(problems, tmp_path / "unchecked")["kept"] == 7
    counts = prepared(problems, tmp_path / "checked", "--check-solutions")
    assert counts["dropped"] == {"solution_wrong": 1, "solution_exception": 1, "solution_timeout": 1}
    assert counts["solutions"] == {"passed": 2, "no_solution": 1} | counts["dropped"]
    assert "by their own solutions: 2 passed, 1 solution wrong" in capsys.readouterr().out
    kept = load_problems(tmp_path / "checked" / "problems.jsonl")
    assert [problem.id for problem in kept] == ["right", "second is right", "none", "mathematics"]
    assert kept[0].metadata["tests"] == {"tests": [{"inputs": [["3\n", "6\n"], ["5\n", "10\n"]]}], "cpu_seconds": 0.1}
    dropped = [json.loads(line) for line in (tmp_path / "checked" / "dropped.jsonl").read_text().splitlines()]
    assert [(row["id"], row["reason"]) for row in dropped] == [
        ("wrong", "solution_wrong"),
        ("exception", "solution_exception"),
        ("loop", "solution_timeout"),
    ]
    cache = tmp_path / "checked" / "solutions.jsonl"
    cache.write_bytes(cache.read_bytes()[:-20])  # killed while it wrote

    judged = []

    async def again(judge: object, row: dict[str, Any]) -> tuple[str, str]:
        judged.append(row["id"])
        return "no_solution", ""

    monkeypatch.setattr(solutions, "_judge", again)
    assert prepared(problems, tmp_path / "checked", "--check-solutions") == counts
    assert judged == ["none"]  # alone was not in the cache
