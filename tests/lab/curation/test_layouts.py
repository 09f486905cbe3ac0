"""`python -m torl data prepare` on files that are laid out otherwise."""

import argparse
import datetime
import decimal
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torl.base.errors import ConfigError
from torl.components.data import load_problems
from torl.components.data.layout import Layout
from torl_lab.curation.command import main
from torl_lab.curation.problem_files import add_layout_arguments, find_layouts, label_files


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_layout_arguments(parser)
    return parser.parse_args(words)


def test_per_file_layout_overrides_the_global_one() -> None:
    columns = ("--column", "numina:answer=final", "--column", "answer=solution", "--column", "problem=text.body")
    found = find_layouts(parsed(*columns, "--split", "numina:test"), ["numina", "orz"])
    assert found == {
        "numina": Layout({"answer": "final", "problem": "text.body"}, split="test"),
        "orz": Layout({"answer": "solution", "problem": "text.body"}),
    }
    assert find_layouts(parsed("--split", "test", "--split", "orz:dev"), ["math", "orz"])["orz"].split == "dev"


def test_options_without_a_name_leave_the_evaluation_sets_alone() -> None:
    words = ("--answer-from", "solution", "--where", "kind=a", "--where", "kind=b", "--keep", "kind,level")
    found = find_layouts(parsed(*words, "--where", "held:url=http://x"), ["math"], ["held"])
    expected = Layout(answer_from="solution", where={"kind": ("a", "b")}, keep=("kind", "level"))
    assert found == {"math": expected, "held": Layout(where={"url": ("http://x",)})}
    assert find_layouts(parsed("--where", "url=http://x"), ["math"])["math"].where == {"url": ("http://x",)}
    assert find_layouts(parsed("--keep", ""), ["math"])["math"].keep == ()
    assert find_layouts(parsed("--files", "a/*", "--files", "held:b/*"), ["math"], ["held"]) == {
        "math": Layout(files=("a/*",)),
        "held": Layout(files=("b/*",)),
    }


def test_files_are_labelled_by_set_or_name() -> None:
    names = ["math", "gsm8k_train@abc", "orz_57k=data/x.json", "a/train.jsonl", "b/train.jsonl.gz", "hf:GAIR/LIMO"]
    assert list(label_files(names)) == ["math", "gsm8k_train", "orz_57k", "a-train", "b-train", "LIMO"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--column", "solution"),
            "--column must be FIELD=COLUMN with FIELD one of problem, answer, id, pass_rate, tests, got",
        ),
        (("--column", "anwser=x"), "--column must be FIELD=COLUMN .*, got 'anwser=x'"),
        (("--column", "answer="), "got 'answer='"),
        (("--column", "orzz:answer=x"), "--column orzz:answer=x: unknown file 'orzz'; the files are math, orz"),
        (("--split", "orzz:test"), "--split orzz:test: unknown file 'orzz'"),
        (("--max-tests", "few"), "--max-tests must be a positive integer, got 'few'"),
        (("--where", "level"), "--where must be COLUMN=VALUE, got 'level'"),
        (("--answer-from", "orzz:solution"), "--answer-from orzz:solution: unknown file 'orzz'"),
    ],
)
def test_ambiguous_layout_is_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_layouts(parsed(*words), ["orz", "math"])


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


QUESTION = "How many eggs are left of sixteen after breakfast and baking?"
MESSAGES = [{"role": "user", "content": "The raw prompt."}]


@pytest.mark.parametrize(
    ("row", "options"),
    [
        (
            {"id": "7", "uid": "a/7", "question": QUESTION, "answer": "16 - 3 - 4 = 9, 18 dollars", "number": "18"},
            ["answer=number", "id=uid"],
        ),
        (
            {
                "prompt": [{"role": "user", "content": QUESTION}],
                "reward_model": {"ground_truth": "18"},
                "extra_info": {"id": "a/7"},
                "problem": "raw text",
                "answer": "a long solution",
            },
            [],
        ),
        (
            {"prompt": MESSAGES, "reward_model": {"ground_truth": "raw"}, "uid": "a/7", "text": QUESTION, "n": "18"},
            ["problem=text", "answer=n", "id=uid"],
        ),
    ],
)
def test_columns_that_others_replaced_do_not_return(tmp_path: Path, row: dict[str, object], options: list[str]) -> None:
    (tmp_path / "raw.jsonl").write_text(json.dumps(row))
    words = [word for option in options for word in ("--column", option)]
    assert main(["prepare", str(tmp_path / "raw.jsonl"), *words, "--output", str(tmp_path / "out")]) == 0
    (read,) = load_problems(tmp_path / "out/problems.jsonl")
    assert (read.id, read.question, read.answer) == ("a/7", QUESTION, "18")


def test_dates_and_decimals_of_a_parquet_file_become_text(tmp_path: Path) -> None:
    row = {"problem": QUESTION, "answer": "9", "day": datetime.date(2025, 2, 1), "price": decimal.Decimal("2.50")}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "raw.parquet")
    assert main(["prepare", str(tmp_path / "raw.parquet"), "--output", str(tmp_path / "out")]) == 0
    (read,) = load_problems(tmp_path / "out/problems.jsonl")
    assert read.metadata == {"source": "raw", "day": "2025-02-01", "price": "2.50"}
