"""Problem files: every format read right, every broken line named with its reason."""

import datetime
import gzip
import json
import logging
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from torl.base.errors import ConfigError, DataError
from torl.base.types import ALTERNATIVE, Problem
from torl.components.data import load_problems, stream_problems
from torl.components.data.problems import read_problems
from torl.components.data.public_sets import find_problem_file
from torl.run.config.choices import PROBLEMS

GOOD = {"id": "a", "problem": "1 + 1?", "answer": "2"}
INSTRUCTION = "Let's think step by step and output the final answer within \\boxed{}."
SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."
OTHER_INSTRUCTIONS = [
    'Let\'s think step by step and output the final answer after "####".',  # verl's for GSM8K
    "Present the answer in LaTex format: \\boxed{Your answer}",  # Eurus-2's
]


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def write_parquet(path: Path, *rows: dict[str, Any]) -> Path:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    return path


def verl_row(question: str = "1 + 1?", answer: str | None = "2", **changes: Any) -> dict[str, Any]:
    row = {
        "data_source": "set",
        "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
        "reward_model": {"ground_truth": answer, "style": "rule"},
        "extra_info": {"id": "a", "split": "test"},
    }
    return row | changes


def test_json_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", GOOD | {"level": 3, "tags": [1.5]}, "", {"id": 7, "question": "q", "answer": 3})
    assert load_problems(path) == [
        Problem("a", "1 + 1?", "2", {"level": 3, "tags": [1.5]}),
        Problem("7", "q", "3", {}),
    ]


def test_a_byte_order_mark_and_a_missing_last_newline(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r\n" + json.dumps(GOOD | {"id": "b"}).encode())
    assert [problem.id for problem in load_problems(path)] == ["a", "b"]


def test_a_json_list_and_ids_from_places(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps([{"problem": "p", "answer": "1"}, {"problem": "q", "answer": "2"}], indent=1))
    assert [problem.id for problem in load_problems(str(path))] == ["row-1", "row-2"]
    lines = write(tmp_path / "p.jsonl", {"problem": "p", "answer": "1"})
    assert load_problems(lines)[0].id == "line-1"


def test_empty_ids_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("problem,answer,id\np,1,\nq,2,b\n")
    assert [problem.id for problem in load_problems(path)] == ["row-1", "b"]


def test_row_without_id_may_not_repeat_a_given_one(tmp_path: Path) -> None:
    other = {"problem": "q", "answer": "2"}
    path = write(tmp_path / "p.jsonl", {"id": "line-2", "problem": "p", "answer": "1"}, other)
    with pytest.raises(DataError, match="line 2: the id 'line-2' was already used for another problem"):
        load_problems(path)


def test_given_id_may_not_repeat_that_of_a_row_without_one(tmp_path: Path) -> None:
    rows = [{"problem": "p", "answer": "1"}, {"id": "line-1", "problem": "q", "answer": "2"}]
    with pytest.raises(DataError, match="line 2: the id 'line-1' was already used for another problem"):
        load_problems(write(tmp_path / "p.jsonl", *rows))
    ids = [
        "line-2",
        "line-1",
        "line-01",
        "line-3x",
        f"line-{'9' * 5000}",
    ]  # such as those of a selection in another order
    named = write(tmp_path / "q.jsonl", *({"id": id, "problem": "p", "answer": "1"} for id in ids))
    assert [problem.id for problem in load_problems(named)] == ids


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_column_with_a_dot_in_its_name_is_found(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"p{suffix}"
    row = {"question.text": "p", "final.answer": "1", "final": {"answer": "2"}}
    if suffix == ".csv":
        path.write_text("question.text,final.answer\np,1\n")
    elif suffix == ".jsonl":
        path.write_text(json.dumps(row))
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    columns = {"problem": "question.text", "answer": "final.answer"}
    (problem,) = load_problems(path, columns=columns, keep=["question.text"])
    assert (problem.question, problem.answer, problem.metadata) == ("p", "1", {"question.text": "p"})


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        ('"\\\\frac{1}{2}"', "\\frac{1}{2}"),
        ("5", "5"),
        ("0.10", "0.10"),
        ("1e400", "1e400"),
        ("-3", "-3"),
        ('["2"]', "2"),
        ('["1", 2.50]', "1, 2.50"),
        ('" 2 "', "2"),
    ],
)
def test_answers_keep_their_spelling(tmp_path: Path, written: str, answer: str) -> None:
    path = write(tmp_path / "p.jsonl", f'{{"problem": "p", "answer": {written}}}')
    assert load_problems(path)[0].answer == answer


def test_numbers_of_parquet_are_as_they_were_written(tmp_path: Path) -> None:
    """A float of 32 bits has seven digits: the others would make 33.3 a wrong answer."""
    answers = [33.3, 1 / 3, 1e20, 8.0]
    for type_, read in (
        (pyarrow.float32(), ["33.3", "0.33333334", "1e+20", "8.0"]),
        (pyarrow.float64(), map(str, answers)),
    ):
        table = pyarrow.table({"problem": ["p"] * len(answers), "answer": pyarrow.array(answers, type_)})
        pyarrow.parquet.write_table(table, tmp_path / "p.parquet")
        assert [problem.answer for problem in load_problems(tmp_path / "p.parquet")] == list(read)


def test_decimals_of_parquet_are_answers(tmp_path: Path) -> None:
    rows = [{"problem": "p", "answer": Decimal(text)} for text in ("2.50", "1E+2", "-3")]
    read = [problem.answer for problem in load_problems(write_parquet(tmp_path / "p.parquet", *rows))]
    assert read == ["2.50", "100.00", "-3.00"]  # a column has one number of decimals


@pytest.mark.parametrize(
    ("value", "kind"),
    [(b"p", "bytes"), (datetime.date(2026, 1, 1), "a date or a time"), (datetime.timedelta(1), "a date or a time")],
)
def test_types_of_parquet_are_named(tmp_path: Path, value: object, kind: str) -> None:
    for field in ("problem", "answer"):
        path = write_parquet(tmp_path / "p.parquet", {"problem": "p", "answer": "1"} | {field: value})
        with pytest.raises(DataError, match=f", got {kind} "):
            load_problems(path)


def test_integer_that_python_refuses_to_read_is_text(tmp_path: Path) -> None:
    long = "7" * 5_000
    path = write(tmp_path / "p.jsonl", f'{{"problem": "p", "answer": {long}, "n": {long}, "m": 7}}')
    (problem,) = load_problems(path)
    assert (problem.answer, problem.metadata) == (long, {"n": long, "m": 7})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not valid JSON"),
        ("nonsense", "not valid JSON"),
        ('{"id": "b", "problem": "p", "answer": NaN}', "the answer is null"),
        ("[" * 100_000, "not valid JSON"),
        ('"text"', "must be an object, got text"),
        ("[1]", "must be an object, got a list"),
        ("5", "must be an object, got a number"),
        ("null", "must be an object, got null"),
        ("{}", "'problem' (or 'question') is missing; the object is empty"),
        ('{"promblem": "p", "answer": "1"}', "'problem' (or 'question') is missing; the columns are: answer, promblem"),
        ('{"problem": "p", "solution": "1"}', "'answer' is missing; the columns are: problem, solution"),
        ('{"problem": "p", "solution": "1"}', "set its column, such as answer=solution"),
        ('{"problem": 5, "answer": "1"}', "the question must be text, got a number"),
        ('{"problem": ["p"], "answer": "1"}', "the question must be text, got a list"),
        ('{"problem": null, "answer": "1"}', "the question must be text, got null"),
        ('{"problem": " ", "answer": "1"}', "the question is empty"),
        ('{"problem": "p", "answer": null}', "the answer is null (1 of 2 rows are invalid: 1 no answer"),
        ('{"problem": "p", "answer": true}', "the answer must be text, a number or a list of them, got true or false"),
        ('{"problem": "p", "answer": {}}', "got an object"),
        ('{"problem": "p", "answer": []}', "the answer is an empty list"),
        ('{"problem": "p", "answer": "It is $\\\\boxed{4}$ or $\\\\boxed{5}$."}', "the solution has 2 different boxes"),
        ('{"problem": "p", "answer": "$\\\\boxed{4}$, $\\\\boxed{5}$"}', "the solution has 2 different boxes"),
        ('{"problem": "p", "answer": "Well. #### "}', "the answer is empty"),
        ('{"problem": "p", "answer": ""}', "the answer is empty (1 of 2 rows are invalid: 1 no answer"),
        ('{"id": "a", "problem": "p", "answer": "1"}', "the id 'a' was already used for another problem"),
        ('{"id": [], "problem": "p", "answer": "1"}', "'id' must be text or an integer, got a list"),
        ('{"id": 1.5, "problem": "p", "answer": "1"}', "'id' must be text or an integer, got a number"),
        ('{"id": 1e999, "problem": "p", "answer": "1"}', "'id' must be text or an integer, got a number"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = write(tmp_path / "p.jsonl", GOOD, line)
    with pytest.raises(DataError) as raised:
        load_problems(path)
    assert str(raised.value).startswith(f"{path}, line 2: ")
    assert reason in str(raised.value)


def test_field_names_may_be_capitalized(tmp_path: Path) -> None:
    """AIME's are."""
    path = write(tmp_path / "p.jsonl", {"ID": "2024-I-1", "Problem": "p", "Answer": 204, "Solution": "s"})
    (problem,) = load_problems(path)
    assert (problem.id, problem.question, problem.answer) == ("2024-I-1", "p", "204")
    assert problem.metadata == {"Solution": "s"}


def test_missing_number_of_pandas_is_no_answer(tmp_path: Path) -> None:
    rows = [{"problem": f"p{n}", "answer": float("nan") if n == 7 else n / 2} for n in range(200)]
    problems = load_problems(write_parquet(tmp_path / "p.parquet", *rows))
    assert [problem.answer for problem in problems[5:8]] == ["2.5", "3.0", "4.0"]


def test_rows_around_an_invalid_one_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"problem": "p", "answer": "1"}\n{"problem": "\xff"}\n{\n{"problem": "q", "answer": "2"}\n')
    read = read_problems(find_problem_file(str(path)))
    found = [str(row) if isinstance(row, DataError) else row.answer for row in read]
    assert [found[0], found[3]] == ["1", "2"]
    assert "line 2: not UTF-8" in found[1]
    assert "line 3: not valid JSON" in found[2]


def test_bytes_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b'\n{"problem": "\xff"}\n')
    with pytest.raises(DataError, match=r"line 2: not UTF-8: invalid start byte at byte 13"):
        load_problems(path)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_empty_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match="contains no problems"):
        load_problems(path)


def test_files_that_are_not_there_or_of_no_known_kind(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        load_problems(tmp_path / "missing.jsonl")
    suffixes = r"\.jsonl, \.json, \.parquet, \.csv, \.arrow"
    with pytest.raises(
        DataError, match=rf"the name must end in {suffixes}, got '\.tsv'; \.gz or \.zst may follow text"
    ):
        load_problems(write(tmp_path / "p.tsv", "a"))
    (tmp_path / "d.jsonl").mkdir()
    with pytest.raises(DataError, match="not a file"):
        load_problems(tmp_path / "d.jsonl")
    with pytest.raises(DataError, match="the name must end in"):
        load_problems(write(tmp_path / "p.parquet.gz", "a"))


ROWS = [GOOD, GOOD | {"id": "b"}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (1, "must contain a list of rows, got a number"),
        ({}, "the object is empty"),
        ({"problem": {"0": "p"}, "answer": {"0": "1"}}, "the question must be text, got an object"),
        ({"train": ROWS, "test": ROWS}, "the columns are: test, train"),
        ({"steps": ROWS}, "the columns are: steps"),
        ({"data": [1, 2]}, "a problem must be an object, got a number"),
    ],
)
def test_json_without_one_list_of_rows_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    (tmp_path / "o.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        load_problems(tmp_path / "o.json")


def test_lone_object_in_a_json_file_is_a_row(tmp_path: Path) -> None:
    for indent in (None, 1):
        (tmp_path / "o.json").write_text(json.dumps(GOOD | {"steps": ROWS}, indent=indent) + "\n")
        assert [problem.id for problem in load_problems(tmp_path / "o.json")] == [GOOD["id"]]


@pytest.mark.parametrize(
    ("answer", "read"), [(["Steps, so \\boxed{4}."], "4"), (["5 + 4 = 9\n#### 9"], "9"), (["1", "2"], "1, 2")]
)
def test_solution_in_a_list_has_its_answer(tmp_path: Path, answer: list[str], read: str) -> None:
    assert load_problems(write(tmp_path / "p.jsonl", {"problem": "p", "answer": answer}))[0].answer == read


def test_json_lines_and_a_named_list_are_read_from_a_json_file(tmp_path: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    for name, content in (("lines", f"\ufeff{lines}"), ("wrapped", json.dumps({"version": "1", "data": ROWS}))):
        (tmp_path / f"{name}.json").write_text(content)
        assert [each.id for each in load_problems(tmp_path / f"{name}.json")] == ["a", "b"]
    (tmp_path / "broken.json").write_bytes(lines.encode() + b'{"problem": "\xff"}\n')
    with pytest.raises(DataError, match=r"broken\.json, line 3: not UTF-8"):
        load_problems(tmp_path / "broken.json")


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data[:40]) + gzip.compress(data[40:]),  # as of joined files
    ".zst": lambda data: pyarrow.Codec("zstd").compress(data, asbytes=True),
}


@pytest.mark.parametrize("compression", COMPRESS)
def test_compressed_text_is_read(tmp_path: Path, compression: str) -> None:
    contents = {
        ".jsonl": "\n".join(map(json.dumps, ROWS)),
        ".json": json.dumps(ROWS),
        ".csv": "id,problem,answer\na,p,1\nb,q,2\n",
    }
    for suffix, text in contents.items():
        (tmp_path / f"p{suffix}{compression}").write_bytes(COMPRESS[compression](text.encode()))
        assert [each.id for each in load_problems(tmp_path / f"p{suffix}{compression}")] == ["a", "b"]
    damaged = tmp_path / f"d.jsonl{compression}"
    damaged.write_bytes((tmp_path / f"p.jsonl{compression}").read_bytes()[:20])
    with pytest.raises(DataError, match=rf"d\.jsonl{compression}: not a readable {compression} file"):
        load_problems(damaged)


def test_suffix_may_be_in_capitals(tmp_path: Path) -> None:
    assert [each.id for each in load_problems(write(tmp_path / "P.JSONL", *ROWS))] == ["a", "b"]


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet", ".csv", ".jsonl.gz"])
def test_pointer_of_git_lfs_is_named(tmp_path: Path, suffix: str) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 123"
    with pytest.raises(DataError, match=r"a pointer of Git LFS, not the file: run `git lfs pull` in its repository"):
        load_problems(write(tmp_path / f"p{suffix}", pointer))


@pytest.mark.parametrize("split", ["", "train/"])
def test_directory_of_save_to_disk_is_read(tmp_path: Path, split: str) -> None:
    """Written as `Dataset.save_to_disk` and `DatasetDict.save_to_disk` write it."""
    folder = tmp_path / split
    folder.mkdir(exist_ok=True)
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    for name in ("state.json", "dataset_info.json"):
        (folder / name).write_text("{}")
    for number, row in enumerate([*ROWS, GOOD | {"id": "cached"}]):
        table = pyarrow.Table.from_pylist([row])
        name = f"data-{number:05d}-of-00002.arrow" if number < 2 else "cache-1.arrow"
        with pyarrow.OSFile(str(folder / name), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    columns = {"problem": "problem", "answer": "answer"}
    assert load_problems(tmp_path, columns=columns, keep=[]) == [Problem(each, "1 + 1?", "2") for each in "ab"]
    (folder / "data-00000-of-00002.arrow").write_bytes(b"ARROW1")
    with pytest.raises(DataError, match="not a readable arrow file"):
        load_problems(tmp_path)


def test_few_problems_without_answer_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [GOOD | {"id": str(number)} for number in range(200)]
    rows[7]["answer"] = " "
    with caplog.at_level(logging.WARNING):
        problems = load_problems(write(tmp_path / "p.jsonl", *rows))
    assert [problem.id for problem in problems] == [str(number) for number in range(200) if number != 7]
    assert "dropped 1 of 200 rows (1 no answer): line 8" in caplog.text
    rows[8]["answer"] = ""
    assert len(load_problems(write(tmp_path / "p.jsonl", *rows))) == 198  # exactly one in a hundred
    rows[9]["answer"] = ""
    with pytest.raises(DataError, match=r"line 8: the answer is empty \(3 of 200"):
        load_problems(write(tmp_path / "p.jsonl", *rows))


def test_parquet_of_verl(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "p.parquet", verl_row(), verl_row("q", extra_info={"id": "b", "split": "test"}))
    first, second = load_problems(path)
    assert (first.id, first.question, first.answer) == ("a", "1 + 1?", "2")
    assert first.metadata == {"data_source": "set", "extra_info": {"id": "a", "split": "test"}}
    assert second.id == "b"


def test_copies_of_a_row_are_dropped_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_parquet(tmp_path / "p.parquet", verl_row(), verl_row(), verl_row())
    with caplog.at_level(logging.WARNING):
        assert [problem.id for problem in load_problems(path)] == ["a"]
    assert "dropped 2 copies of rows" in caplog.text
    with pytest.raises(DataError, match=r"row 2: the id 'a' was already used for another problem"):
        load_problems(write_parquet(tmp_path / "q.parquet", verl_row(), verl_row("another question")))


@pytest.mark.parametrize(
    "question",
    [
        f"1 + 1? {INSTRUCTION}",
        f"1 + 1?\n\n{INSTRUCTION}\n",
        "1 + 1?",
        *(f"1 + 1?\n\n{each}" for each in OTHER_INSTRUCTIONS),
    ],
)
def test_an_appended_instruction_is_cut_off(tmp_path: Path, question: str) -> None:
    path = write_parquet(tmp_path / "p.parquet", verl_row(question))
    assert load_problems(path)[0].question == "1 + 1?"


def indexed(question: str, index: Any, source: str | None = "a", split: str | None = "train") -> dict[str, Any]:
    return verl_row(question, data_source=source, extra_info={"index": index, "split": split})


def test_index_of_verl_is_the_id(tmp_path: Path) -> None:
    rows = [indexed("p", 0.0), indexed("q", 1.0), indexed("r", 0.0, "b"), indexed("v", float("nan"))]
    ids = ["0", "1", "row-3", "row-4"]
    assert [problem.id for problem in load_problems(write_parquet(tmp_path / "p.parquet", *rows))] == ids
    texts = [indexed("p", "b0-4e"), indexed("q", 7)]
    assert [problem.id for problem in load_problems(write(tmp_path / "p.jsonl", *texts))] == ["b0-4e", "7"]


def test_index_that_repeats_for_another_problem_is_replaced(tmp_path: Path) -> None:
    rows = [indexed(question, 0) for question in "pqpqr"]
    problems = load_problems(write_parquet(tmp_path / "p.parquet", *rows))
    assert [(each.id, each.question) for each in problems] == [("0", "p"), ("row-2", "q"), ("row-5", "r")]


def test_columns_of_the_id_keep_the_layout_of_verl(tmp_path: Path) -> None:
    rows = [indexed(f"{letter} {INSTRUCTION}", 0, letter) for letter in "pq"]
    path = write_parquet(tmp_path / "p.parquet", *rows)
    problems = load_problems(path, columns={"id": "data_source,extra_info.index"})
    assert [(each.id, each.question) for each in problems] == [("p/0", "p"), ("q/0", "q")]
    with pytest.raises(DataError, match="row 2: the id '0' was already used for another problem"):
        load_problems(path, columns={"id": "extra_info.index"})


def test_columns_of_the_id_leave_the_other_columns_of_a_row_as_they_are(tmp_path: Path) -> None:
    row = verl_row("q?") | {"problem": "own", "answer": "7", "uid": "u"}
    (problem,) = load_problems(write(tmp_path / "p.jsonl", row), columns={"id": "uid"})
    assert (problem.id, problem.question, problem.answer) == ("u", "own", "7")


@pytest.mark.parametrize("value", ["3.0", "3", '"3"'])
def test_whole_numbers_are_ids(tmp_path: Path, value: str) -> None:
    path = write(tmp_path / "p.jsonl", f'{{"id": {value}, "problem": "p", "answer": "1"}}')
    assert load_problems(path)[0].id == "3"


def test_unknown_names_of_columns_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", GOOD | {"final": "3"})
    with pytest.raises(ConfigError, match=r"columns: 'anwser' is not a field of a problem; did you mean answer\?"):
        load_problems(path, columns={"anwser": "final"})
    with pytest.raises(
        ConfigError, match="'x' is not a field of a problem; the fields are problem, answer, id, pass_rate"
    ):
        next(stream_problems(path, columns={"x": "final"}))
    with pytest.raises(ValueError, match=r"columns\n.*did you mean answer\?"):
        PROBLEMS.choose({"path": str(path), "columns": {"anwser": "final"}})


def test_column_of_pass_rates_keeps_the_other_names(tmp_path: Path) -> None:
    rates = [0.25, 1, "0.5", None, ""]
    path = write(tmp_path / "p.jsonl", *({"ID": n, "Problem": "p", "Answer": "1", "r": r} for n, r in enumerate(rates)))
    found = load_problems(path, columns={"pass_rate": "r"}, keep=[])
    assert [each.metadata.get("pass_rate") for each in found] == [0.25, 1.0, 0.5, None, None]
    assert [each.id for each in load_problems(path, columns={"id": "ID"})] == ["0", "1", "2", "3", "4"]
    for wrong in (12, -0.1, "half", [1], True):
        bad = write(tmp_path / "q.jsonl", GOOD | {"r": wrong})
        with pytest.raises(DataError, match="'pass_rate' must be a number from 0 to 1, got"):
            load_problems(bad, columns={"pass_rate": "r"})


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (verl_row(prompt=None), "'prompt' is missing"),
        (
            {"question": "q", "reward_model": {"ground_truth": "1"}},
            "'prompt' is missing; the columns are: question, reward_model",
        ),
        (verl_row(answer=None), "the answer is null"),
        (verl_row(reward_model={"style": "rule"}), "'reward_model.ground_truth' is missing"),
        (verl_row(reward_model=None), "'reward_model' is missing"),
        (
            verl_row(prompt=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]),
            "one user message",
        ),
        (verl_row(prompt=[{"role": "user", "content": "a"}] * 2), "got: user, user"),
        (verl_row(prompt=[{"role": "user", "content": INSTRUCTION}]), "the question is empty"),
        (verl_row(prompt=[1]), "must be text or a list of messages"),
    ],
)
def test_a_broken_parquet_row_is_named(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    path = write_parquet(tmp_path / "p.parquet", row)
    with pytest.raises(DataError) as raised:
        load_problems(path)
    assert str(raised.value).startswith(f"{path}, row 1: ")
    assert reason in str(raised.value)


def test_invalid_parquet_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    path.write_bytes(b"PAR1 nonsense")
    with pytest.raises(DataError, match="not a readable parquet file"):
        load_problems(path)


@pytest.mark.parametrize(("field", "name"), [("id", "id"), ("problem", "question"), ("answer", "answer")])
def test_half_of_a_surrogate_pair_is_invalid_text(tmp_path: Path, field: str, name: str) -> None:
    path = write(tmp_path / "set.jsonl", GOOD, GOOD | {"id": "b"} | {field: "x \ud800 y"})
    with pytest.raises(DataError, match=rf"set\.jsonl, line 2: the {name} has a lone surrogate at character 2"):
        load_problems(path)


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        ("She sold 48/2 = <<48/2=24>>24 clips in May, and 72 in both months together.\n#### 72", "72"),
        ("101*72=7272, plus 24 is <<7272+24=7296>>7296\nSo it is.\n#### 7,296", "7,296"),
        ("As $x^2 = 4$ and x is positive, the answer is $\\boxed{\\dfrac{2}{1}}$ meters.", "\\dfrac{2}{1}"),
        ("First $\\boxed{2}$, and after all that was done above, $\\boxed{ 2 }$.", "2"),
        ("It is $\\boxed{\\frac{1}{2}}$, so $\\boxed{\\dfrac{1}{2}}$.", "\\dfrac{1}{2}"),
        ("The box \\boxed{\\text{is }\\boxed{3}} within.", "3"),
    ],
)
def test_answer_is_taken_from_a_solution(tmp_path: Path, solution: str, answer: str) -> None:
    """As GSM8K and MATH have them."""
    path = write(tmp_path / "p.jsonl", {"problem": "p", "answer": solution})
    assert load_problems(path)[0].answer == answer
    assert load_problems(path, answer_from="answer")[0].answer == answer


@pytest.mark.parametrize("column", ["answers", "reward_model"])
def test_every_entry_of_a_list_is_a_correct_answer(tmp_path: Path, column: str) -> None:
    answers = ["1/2", "0.5", "1/2"]
    if column == "answers":
        path = write(tmp_path / "p.jsonl", {"problem": "p", "answers": answers})
        (problem,) = load_problems(path, answer_from="answers")
    else:
        prompt = [{"role": "user", "content": "p"}]
        path = write(tmp_path / "p.jsonl", {"prompt": prompt, "reward_model": {"ground_truth": {"target": answers}}})
        (problem,) = load_problems(path)
    assert problem.answer.split(ALTERNATIVE) == ["1/2", "0.5"]


SEVERAL = json.dumps(["\\frac{1}{2}", "0.5"])  # a text, as in Skywork-OR1


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        (SEVERAL, f"\\frac{{1}}{{2}}{ALTERNATIVE}0.5"),
        ('["42"]', "42"),
        ("[1, 2]", "[1, 2]"),
        ("[1]", "[1]"),
        ("[0, 1)", "[0, 1)"),
        ("[]", "[]"),
        ('["a", 1]', '["a", 1]'),
        ('[["a"]]', '[["a"]]'),
    ],
)
def test_list_of_texts_in_a_text_has_several_correct_answers(tmp_path: Path, written: str, answer: str) -> None:
    prompt = [{"role": "user", "content": "p"}]
    verl = {"prompt": prompt, "reward_model": {"ground_truth": written}, "problem": "p", "answer": written}
    path = write(tmp_path / "p.jsonl", verl)
    assert load_problems(path)[0].answer == answer
    columns = {"problem": "problem", "answer": "reward_model.ground_truth"}
    assert load_problems(path, columns=columns)[0].answer == answer
    plain = write(tmp_path / "q.jsonl", {"problem": "p", "answer": written})
    assert load_problems(plain)[0].answer == written  # it may be what a model is to write
    if answer != written:
        assert load_problems(path, answer_from="reward_model.ground_truth")[0].answer == answer


def test_column_of_solutions_must_have_final_answers(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", {"problem": "p", "solution": "Short."})
    assert load_problems(path, columns={"answer": "solution"})[0].answer == "Short."
    with pytest.raises(DataError, match="has neither a box nor '####'"):
        load_problems(path, answer_from="solution")
