"""Problem files, here or on the hub: JSON lines, JSON lists, parquet, and the parquet layout of verl and ToRL.

A row of .jsonl and .json is an object with `problem` (or `question`) and `answer`, and usually an `id`; every
other field becomes metadata. An answer is text, a whole or decimal number, or a list of those whose members
are all wanted (OlympiadBench). A row of .parquet is such an object too, or verl's: `data_source,
prompt[{role, content}], reward_model{ground_truth}, extra_info`. Its question is the one user message: system messages
are instructions of another template and are left out, and an instruction that ToRL or verl appended to the question is
cut off, because torl's own template brings its own.

A problem without a reference answer cannot be graded. Real sets hold a few (two of the 8,523 of MATH levels 3
to 5, whose boxes were empty): up to one row in a hundred is left out with a warning, more is an error.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from torl.data.files import READERS, NumberLiteral, Row, RowFile, describe
from torl.errors import DataError
from torl.hub import DATASET_PREFIX, files_in, hub_errors, name_hint, resolve_dataset, stream_dataset
from torl.paths import resolve_path
from torl.types import Problem

_MAX_UNANSWERED_SHARE = 0.01

_logger = logging.getLogger(__name__)

_QUESTION_FIELDS = ("problem", "question")

_APPENDED_INSTRUCTIONS = (
    "Please integrate natural language reasoning with programs to solve the problem above, "
    "and put your final answer within \\boxed{}.",
    "Let's think step by step and output the final answer within \\boxed{}.",
    "Please reason step by step, and put your final answer within \\boxed{}.",
)


def load_problems(path: str | Path, columns: dict[str, str] | None = None, split: str | None = None) -> list[Problem]:
    """Read a problem file (.jsonl, .json or .parquet), in the order of the file.

    A row without an id gets one from its place ("line-3"). In parquet files, where avg@k is laid out by
    repeating rows, the copies of a row get the ids "x", "x#2", "x#3".

    Args:
        path: Path on disk, `torl:` and a path inside the package, or `hf:` and the name of a data set of the hub. A
            directory is a data set as the hub lays it out.
        columns: where problem, answer and id stand, if under other names: { problem = "question.text" }.
        split: of a directory, or of a data set of the hub; "train" when unset.

    Raises:
        DataError: the file is missing, empty, not of these formats, or a row is broken; names the file, the
            line (row, for parquet and .json) and the reason. Also if more than one row in a hundred has an
            empty answer.
    """
    files = _files(path, split, resolve_dataset)
    problems: list[Problem] = []
    places: dict[str, tuple[str, Problem]] = {}
    copies: dict[str, int] = {}
    unanswered: list[str] = []
    for place, row in _rows(files):
        problem = _read_row(place, row, columns)
        if problem.id in places:
            first_place, first = places[problem.id]
            same = (problem.question, problem.answer) == (first.question, first.answer)
            if files[0].suffix != ".parquet" or not same:
                raise DataError(f"{place}: the id {problem.id!r} was already used in {first_place}")
            copies[problem.id] = copies.get(problem.id, 1) + 1
            copy_id = f"{problem.id}#{copies[problem.id]}"
            problem = Problem(copy_id, problem.question, problem.answer, problem.metadata)
        places[problem.id] = (place, problem)
        if problem.answer:
            problems.append(problem)
        else:
            unanswered.append(place)
    _judge_unanswered(path, unanswered, len(problems) + len(unanswered))
    return problems


def stream_problems(
    path: str | Path, columns: dict[str, str] | None = None, split: str | None = None
) -> Iterator[Problem]:
    """Read problems one after the other, in the order of the file: for sets that do not fit.

    What `load_problems` knows only of all of them is not checked: ids may be used twice. A data set of the hub is read
    from the cache if all of the split is there, and over the network otherwise, without storing it; give it a revision
    (`hf:owner/name@commit`), so that it is the same each time that it is read.

    Args:
        path: see `load_problems`.
        columns: see there.
        split: see there.

    Raises:
        DataError: the file is missing or empty, or, when its turn comes, a row is broken. At the end, if more than one
            row in a hundred had an empty answer.
    """
    answered, unanswered = 0, list[str]()
    for place, problem in raw_problems(path, columns, split, download=False):
        if problem.answer:
            answered += 1
            yield problem
        else:
            unanswered.append(place)
    _judge_unanswered(path, unanswered, answered + len(unanswered))


def raw_problems(
    path: str | Path, columns: dict[str, str] | None = None, split: str | None = None, *, download: bool = True
) -> Iterator[tuple[str, Problem]]:
    """The same one after the other, with those that have no answer, which is "" then; each with its place.

    Args:
        path: see `load_problems`.
        columns: see there.
        split: see there.
        download: whether a data set of the hub is downloaded first, or read over the network each time.

    Raises:
        DataError: the file is missing, or, when its turn comes, a row is broken.
    """
    for place, row in _rows(_files(path, split, resolve_dataset if download else stream_dataset)):
        yield place, _read_row(place, row, columns)


def _files(
    path: str | Path, split: str | None, of_dataset: Callable[[str, str], Sequence[RowFile]]
) -> Sequence[RowFile]:
    if str(path).startswith(DATASET_PREFIX):
        return of_dataset(str(path), split or "train")
    try:
        located = resolve_path(path)
    except DataError as error:
        raise DataError(f"{error}{name_hint(str(path))}") from error
    is_data_set = located.is_dir() and located.suffix not in READERS
    return files_in(located, split or "train") if is_data_set else [_problem_file(path, located)]


def _problem_file(path: str | Path, located: Path) -> Path:
    if located.suffix not in READERS:
        raise DataError(f"{path}: problem files end in {', '.join(READERS)}, not in {located.suffix!r}")
    if not located.is_file():
        raise DataError(f"{path}: is not a file")
    return located


def _rows(files: Sequence[RowFile]) -> Iterator[Row]:
    """The rows of all files; with several, their numbers go on from file to file."""
    number = 0
    for file in files:
        with (
            nullcontext()
            if isinstance(file, Path)
            else hub_errors(f"hf:{file.data_set}", "dataset", "in place of the name")
        ):
            for place, row in READERS[file.suffix](file):
                number += 1
                yield place if len(files) == 1 else f"{file}, row {number}", row


def _read_row(place: str, row: Any, columns: Mapping[str, str] | None) -> Problem:
    if columns and isinstance(row, Mapping):
        row = dict(row) | {name: _column(place, row, column) for name, column in columns.items()}
    verl = isinstance(row, Mapping) and "reward_model" in row and not columns
    return _from_parquet_row(place, row) if verl else _from_json_row(place, row)


def _column(place: str, row: Mapping[str, Any], column: str) -> Any:
    """What stands under a name; points in it lead into objects."""
    value: Any = row
    for part in column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise DataError(f"{place}: the column {column!r} is missing{_fields_there(row)}")
        value = value[part]
    return value


def _judge_unanswered(path: str | Path, unanswered: list[str], rows: int) -> None:
    if rows == 0:
        raise DataError(f"{path}: holds no problems")
    if len(unanswered) > _MAX_UNANSWERED_SHARE * rows:
        raise DataError(f"{unanswered[0]}: the answer is empty ({len(unanswered)} of {rows} rows have an empty answer)")
    if unanswered:
        places = "; ".join(place.rsplit(", ", maxsplit=1)[1] for place in unanswered)
        _logger.warning(
            "%s: %d of %d problems have no answer and are left out: %s", path, len(unanswered), rows, places
        )


def _from_json_row(place: str, row: Any) -> Problem:
    if not isinstance(row, dict):
        raise DataError(f"{place}: a problem must be an object, not {describe(row)}")
    field = next((name for name in _QUESTION_FIELDS if name in row), None)
    if field is None:
        raise DataError(f"{place}: the field 'problem' (or 'question') is missing{_fields_there(row)}")
    if "answer" not in row:
        raise DataError(f"{place}: the field 'answer' is missing{_fields_there(row)}")
    metadata = {name: _plain(value) for name, value in row.items() if name not in (field, "answer", "id")}
    return Problem(
        id=_identifier(place, row.get("id")),
        question=_text(place, field, row[field]),
        answer=_answer(place, "answer", row["answer"]),
        metadata=metadata,
    )


def _from_parquet_row(place: str, row: Mapping[str, Any]) -> Problem:
    for name in ("prompt", "reward_model"):
        if row.get(name) is None:
            raise DataError(f"{place}: the field {name!r} is missing{_fields_there(row)}")
    reward_model = row["reward_model"]
    if not isinstance(reward_model, dict) or reward_model.get("ground_truth") is None:
        raise DataError(f"{place}: the field 'reward_model.ground_truth' is missing")
    extra = row.get("extra_info")
    if not isinstance(extra, dict):
        extra = {}
    identifier = next((extra[name] for name in ("id", "index") if extra.get(name) is not None), None)
    metadata = {name: value for name, value in row.items() if name not in ("prompt", "reward_model")}
    return Problem(
        id=_identifier(place, identifier),
        question=_question_of_messages(place, row["prompt"]),
        answer=_answer(place, "reward_model.ground_truth", reward_model["ground_truth"]),
        metadata=metadata,
    )


def _question_of_messages(place: str, prompt: Any) -> str:
    if isinstance(prompt, str):
        return _text(place, "prompt", prompt)
    if not isinstance(prompt, list) or not all(isinstance(message, dict) for message in prompt):
        raise DataError(f"{place}: 'prompt' must be text or a list of messages, not {describe(prompt)}")
    conversation = [message for message in prompt if message.get("role") != "system"]
    if [message.get("role") for message in conversation] != ["user"]:
        roles = ", ".join(str(message.get("role")) for message in prompt)
        raise DataError(f"{place}: 'prompt' must hold one user message besides system messages, not: {roles}")
    question = _text(place, "prompt", conversation[0].get("content")).strip()
    for instruction in _APPENDED_INSTRUCTIONS:
        question = question.removesuffix(instruction).rstrip()
    return _text(place, "prompt", question)


def _identifier(place: str, value: Any) -> str:
    if value is None:
        return place.rsplit(", ", maxsplit=1)[1].replace(" ", "-")
    spelled_fraction = isinstance(value, NumberLiteral) and not value.removeprefix("-").isdigit()
    if isinstance(value, bool) or spelled_fraction or not isinstance(value, str | int) or not str(value):
        raise DataError(f"{place}: 'id' must be text or a whole number, not {describe(value)}")
    return _encodable(place, "id", str(value))


def _text(place: str, field: str, value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, NumberLiteral):
        raise DataError(f"{place}: {field!r} must be text, not {describe(value)}")
    if not value.strip():
        raise DataError(f"{place}: {field!r} is empty")
    return _encodable(place, field, value)


def _encodable(place: str, field: str, value: str) -> str:
    """JSON may hold half of a surrogate pair, which is no text: no tokenizer takes it."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        where = f"character {error.start}"
        raise DataError(f"{place}: {field!r} is not text: half of a surrogate pair at {where}") from error
    return value


def _answer(place: str, field: str, value: Any) -> str:
    if isinstance(value, list):
        if not value:
            raise DataError(f"{place}: {field!r} is an empty list")
        return ", ".join(filter(None, (_answer(place, field, member) for member in value)))
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"{place}: {field!r} must be text, a number or a list of them, not {describe(value)}")
    return _encodable(place, field, str(value).strip())


def _plain(value: Any) -> Any:
    """Metadata with ordinary numbers in it again."""
    if isinstance(value, NumberLiteral):
        return json.loads(value)
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    return [_plain(member) for member in value] if isinstance(value, list) else value


def _fields_there(row: Mapping[str, Any]) -> str:
    return f"; the fields are: {', '.join(sorted(map(str, row)))}" if row else "; the object is empty"
