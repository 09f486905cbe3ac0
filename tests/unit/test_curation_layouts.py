"""`python -m torl.data prepare` on files that are laid out otherwise."""

import json
from pathlib import Path

import pytest

from torl.apps.curation.command import main
from torl.apps.curation.problem_files import Layout, layouts
from torl.data import load_problems
from torl.errors import ConfigError


def test_per_file_layout_overrides_the_global_one() -> None:
    found = layouts(["numina:answer=final", "answer=solution", "problem=text.body"], ["numina:test"], ["numina", "orz"])
    assert found == {
        "numina": Layout({"answer": "final", "problem": "text.body"}, "test"),
        "orz": Layout({"answer": "solution", "problem": "text.body"}, None),
    }
    assert layouts([], ["test", "orz:dev"], ["math", "orz"])["orz"].split == "dev"


@pytest.mark.parametrize(
    ("columns", "splits", "message"),
    [
        (["solution"], [], "--column must be FIELD=COLUMN with FIELD one of problem, answer, id, got 'solution'"),
        (["anwser=x"], [], "--column must be FIELD=COLUMN .*, got 'anwser=x'"),
        (["answer="], [], "got 'answer='"),
        (["orzz:answer=x"], [], "--column orzz:answer=x: unknown file 'orzz'; the files are math, orz"),
        ([], ["orzz:test"], "--split orzz:test: unknown file 'orzz'"),
    ],
)
def test_ambiguous_layout_is_refused(columns: list[str], splits: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        layouts(columns, splits, ["orz", "math"])


def test_files_with_other_columns_and_data_sets_with_other_splits_are_prepared(tmp_path: Path) -> None:
    raw = [{"question": {"text": f"What is {n} and {n}, written as one number?"}, "final": 2 * n} for n in (3, 4)]
    (tmp_path / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in raw))
    evaluated = {"problem": "What is 4 and 4, written as one number?", "solution": "8"}
    (tmp_path / "evaluated").mkdir()
    (tmp_path / "evaluated" / "test-00000-of-00001.jsonl").write_text(json.dumps(evaluated))
    words = ["prepare", str(tmp_path / "raw.jsonl"), "--against", str(tmp_path / "evaluated")]
    words += ["--column", "raw:problem=question.text", "--column", "raw:answer=final"]
    words += ["--split", "evaluated:test"]
    assert main([*words, "--output", str(tmp_path / "out")]) == 1
    words += ["--column", "evaluated:answer=solution"]
    assert main([*words, "--output", str(tmp_path / "out")]) == 0
    assert [problem.answer for problem in load_problems(tmp_path / "out" / "problems.jsonl")] == ["6"]
