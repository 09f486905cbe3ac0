"""Rows that are not problems: each kind is counted and none ends a command, in any mixture and order."""

import asyncio
import io
import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torl.base.errors import DataError
from torl.components.data import load_problems
from torl.components.data.problems import read_problems
from torl.components.data.public_sets import find_problem_file
from torl.components.data.rows import InvalidRowError
from torl.run.display.console import Console
from torl_lab.curation.preparing import PrepareOptions, RawSource, prepare

# Lines by the reason under which they are counted. Questions of valid rows are numbers in words, which share no pair.
BROKEN: dict[str, list[str]] = {
    "not_json": ["{", "nonsense", "[" * 5000, '{"problem": "p", "answer": 1,}'],
    "not_utf8": ['{"problem": "\udcff", "answer": "1"}'],
    "not_an_object": ["null", "5", "true", '"text"', "[1, 2]"],
    "missing_column": ["{}", '{"problem": "p"}', '{"answer": "1"}', '{"reward_model": {}, "prompt": null}'],
    "no_question": ['{"problem": null, "answer": "1"}', '{"problem": " \\n", "answer": "1"}'],
    "question_not_text": [f'{{"problem": {value}, "answer": "1"}}' for value in ("5", "true", '["p"]', '{"a": "p"}')],
    "no_answer": [
        f'{{"problem": "p", "answer": {value}}}' for value in ("null", '""', "NaN", "[]", '["1", null]', '"N/A"')
    ],
    "answer_not_text": ['{"problem": "p", "answer": true}', '{"problem": "p", "answer": {"value": 1}}'],
    "several_boxes": ['{"problem": "p", "answer": "$\\\\boxed{4}$ or $\\\\boxed{5}$"}'],
    "invalid_id": ['{"id": [1], "problem": "p", "answer": "1"}', '{"id": 1.5, "problem": "p", "answer": "1"}'],
    "lone_surrogate": ['{"problem": "\\ud800", "answer": "1"}'],
    "proof": ['{"problem": "Prove that it is so.", "answer": "proof"}'],
    "multiple_parts": ['{"problem": "(a) Find x. (b) Find y.", "answer": "1, 2"}'],
    "other_script": ['{"problem": "计算一加一的值。", "answer": "2"}'],
    "long_question": [json.dumps({"problem": "x" * 200_000, "answer": "1"})],
    "long_answer": [json.dumps({"problem": "p", "answer": "1" * 200_000})],
    "unreadable_answer": ['{"problem": "p", "answer": "\\\\frac{1}{"}'],
    "prose": ['{"problem": "p", "answer": "It cannot be said because there are too many of them"}'],
}
KINDS = st.sampled_from([(reason, line) for reason, lines in BROKEN.items() for line in lines])
VALID = ("valid", "")


def valid(number: int) -> str:
    return json.dumps(
        {"id": f"v{number}", "problem": f"apple{chr(97 + number)} of pear{chr(97 + number)}?", "answer": number}
    )


def write(path: Path, kinds: list[tuple[str, str]]) -> int:
    """Write a file with these rows; returns the number of valid rows, whose answers are their numbers."""
    lines, count = [], 0
    for _, line in kinds:
        lines.append(line or valid(count))
        count += not line
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    return count


def prepared(folder: Path, path: Path, **options: Any) -> dict[str, Any]:
    source = RawSource(lambda: read_problems(find_problem_file(str(path))))
    with Console(io.StringIO()) as console:
        return asyncio.run(prepare({"raw": source}, {}, folder / "out", PrepareOptions(**options), console))


@settings(max_examples=60, deadline=None)
@given(st.lists(KINDS | st.just(VALID), max_size=12))
def test_every_kind_of_broken_row_is_counted(kinds: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        count = write(folder / "raw.jsonl", [VALID, *kinds])
        counts = prepared(folder, folder / "raw.jsonl")
        assert counts["dropped"] == Counter(reason for reason, line in kinds if line)
        assert counts["read"] == counts["kept"] + sum(counts["dropped"].values()) == len(kinds) + 1
        assert all(len(shown) == min(3, counts["dropped"][reason]) for reason, shown in counts["examples"].items())
        problems = load_problems(folder / "out/problems.jsonl")
        assert [problem.answer for problem in problems] == [str(number) for number in range(count)]


@settings(max_examples=30, deadline=None)
@given(st.lists(KINDS | st.just(VALID), max_size=8))
def test_loading_stops_at_more_than_one_broken_row_in_a_hundred(kinds: list[tuple[str, str]]) -> None:
    """The checks of the text are `prepare`'s alone."""
    with TemporaryDirectory() as name:
        path = Path(name) / "raw.jsonl"
        write(path, [VALID, *kinds])
        items = list(read_problems(find_problem_file(str(path))))
        invalid = [item for item in items if isinstance(item, InvalidRowError)]
        assert len(items) == len(kinds) + 1
        if invalid:
            with pytest.raises(DataError) as raised:
                load_problems(path)
            assert str(raised.value).startswith(str(invalid[0]))
            assert f"({len(invalid)} of {len(items)} rows are invalid" in str(raised.value)
        else:
            assert len(load_problems(path)) == len(items)


@pytest.mark.parametrize("reason", [reason for reason in BROKEN if reason not in ("proof", "prose")])
def test_strict_preparation_refuses_invalid_rows_alone(reason: str, tmp_path: Path) -> None:
    by_text = reason in ("multiple_parts", "other_script", "long_question", "long_answer", "unreadable_answer")
    write(tmp_path / "raw.jsonl", [VALID, (reason, BROKEN[reason][0])])
    if by_text:
        assert prepared(tmp_path, tmp_path / "raw.jsonl", strict=True)["dropped"] == {reason: 1}
    else:
        with pytest.raises(InvalidRowError, match=r"raw\.jsonl, line 2: ") as raised:
            prepared(tmp_path, tmp_path / "raw.jsonl", strict=True)
        assert raised.value.reason == reason
        assert not (tmp_path / "out/problems.jsonl").exists()


def test_ids_of_other_problems_are_broken_rows_and_copies_are_not(tmp_path: Path) -> None:
    rows = [{"id": "a", "problem": "One and two?", "answer": "3"}] * 2 + [
        {"id": "a", "problem": "Else?", "answer": "3"}
    ]
    (tmp_path / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert prepared(tmp_path, tmp_path / "raw.jsonl")["dropped"] == {"copy": 1, "repeated_id": 1}


@pytest.mark.parametrize(
    ("text", "answers", "dropped"),
    [
        ('problem,answer\n"one, and\ntwo?",3\nsix?,"1000"\n', ["3", "1000"], {}),
        ("\ufeffproblem,answer\nsix?,0.50\n", ["0.50"], {}),
        ("problem,answer\nsix?\nfive?,5,6\nfour?,4\n", ["4"], {"no_answer": 1, "surplus_fields": 1}),
        ("problem,answer\nsix?,6\n\udcff?,5\n", ["6"], {"lone_surrogate": 1}),
        ("problem,answer\n" + "x" * 200_000 + ",1\nsix?,6\n", ["6"], {"long_question": 1}),
    ],
)
def test_tables_of_a_spreadsheet_are_read(
    text: str, answers: list[str], dropped: dict[str, int], tmp_path: Path
) -> None:
    (tmp_path / "raw.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert prepared(tmp_path, tmp_path / "raw.csv")["dropped"] == dropped
    assert [problem.answer for problem in load_problems(tmp_path / "out/problems.jsonl")] == answers


def test_column_changes_its_type_in_the_middle_of_a_file(tmp_path: Path) -> None:
    """In a file of JSON lines, and in the second file of a split."""
    values = ["12", 3, 4.50, ["7"], {"value": 5}, True, None]
    rows = [{"problem": f"pear{n} of plum{n}?", "answer": value} for n, value in enumerate(values)]
    (tmp_path / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert prepared(tmp_path, tmp_path / "raw.jsonl")["dropped"] == {"answer_not_text": 2, "no_answer": 1}
    assert [p.answer for p in load_problems(tmp_path / "out/problems.jsonl")] == ["12", "3", "4.5", "7"]
    import pyarrow
    import pyarrow.parquet

    split = tmp_path / "split"
    split.mkdir()
    for number, column in enumerate((["1", "2"], [3, 4], [0.5, float("nan")], [[1], [3]])):
        table = pyarrow.table({"problem": [f"fig{number}{n} of kiwi{number}{n}?" for n in range(2)], "answer": column})
        pyarrow.parquet.write_table(table, split / f"train-0000{number}-of-00004.parquet")
    assert prepared(tmp_path, split)["dropped"] == {"no_answer": 1}
    answers = [problem.answer for problem in load_problems(tmp_path / "out/problems.jsonl")]
    assert answers == ["1", "2", "3", "4", "0.5", "1", "3"]
