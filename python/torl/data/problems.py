"""Problem files on disk or on the Hub: JSON lines, JSON lists, and parquet, also in the layout of verl and ToRL.

A row is an object with `problem` (or `question`), `answer` and optionally `id`, also capitalized (AIME); other fields
become metadata. An answer is text, a number, or a list of answers that are all required (OlympiadBench). A parquet row
may also have verl's layout: `data_source, prompt[{role, content}], reward_model{ground_truth}, extra_info`. Its
question is the only user message. System messages and instructions that ToRL or verl appended to the question are
removed, because torl's template adds its own.

A problem without an answer cannot be graded. Datasets have a few of them (two of the 8,523 in MATH levels 3 to 5 have
empty boxes): up to one row in a hundred is dropped with a warning, and more are an error.
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torl.data.files import NumberLiteral, describe, find_files, numbered_rows, plain
from torl.errors import DataError
from torl.hub import resolve_dataset, stream_dataset
from torl.types import Problem

_MAX_UNANSWERED_FRACTION = 0.01

_logger = logging.getLogger(__name__)

_QUESTION_FIELDS = ("problem", "question")
_FIELDS = (*_QUESTION_FIELDS, "answer", "id")
_HINT = "; if it has another name, set its column, such as answer=solution"

_APPENDED_INSTRUCTIONS = (
    "Please integrate natural language reasoning with programs to solve the problem above, "
    "and put your final answer within \\boxed{}.",
    "Let's think step by step and output the final answer within \\boxed{}.",
    "Please reason step by step, and put your final answer within \\boxed{}.",
)


def load_problems(path: str | Path, columns: dict[str, str] | None = None, split: str | None = None) -> list[Problem]:
    """Read a problem file (.jsonl, .json or .parquet) in its order.

    A row without an id gets an id from its location ("line-3"). Parquet files may repeat rows for avg@k; the copies
    get the ids "x", "x#2", "x#3".

    Args:
        path: Path on disk, path inside the package (`torl:`), or name of a dataset on the Hub (`hf:`). A directory is
            read as a dataset with the layout of the Hub.
        columns: Columns of problem, answer and id, if they have other names: { problem = "question.text" }.
        split: Split of a directory or a dataset on the Hub. The default is "train".

    Raises:
        DataError: The file is missing, empty or in another format, a row is invalid, or more than one row in a hundred
            has an empty answer. The message contains the file, the line or row, and the reason.
    """
    files = find_files(path, split, resolve_dataset)
    problems: list[Problem] = []
    locations: dict[str, tuple[str, Problem]] = {}
    copies: dict[str, int] = {}
    unanswered: list[str] = []
    for location, row in numbered_rows(files):
        problem = _read_row(location, row, columns)
        if problem.id in locations:
            first_location, first = locations[problem.id]
            same = (problem.question, problem.answer) == (first.question, first.answer)
            if files[0].suffix != ".parquet" or not same:
                raise DataError(f"{location}: the id {problem.id!r} was already used in {first_location}")
            copies[problem.id] = copies.get(problem.id, 1) + 1
            copy_id = f"{problem.id}#{copies[problem.id]}"
            problem = Problem(copy_id, problem.question, problem.answer, problem.metadata)
        locations[problem.id] = (location, problem)
        if problem.answer:
            problems.append(problem)
        else:
            unanswered.append(location)
    _check_unanswered(path, unanswered, len(problems) + len(unanswered))
    return problems


def stream_problems(
    path: str | Path, columns: dict[str, str] | None = None, split: str | None = None
) -> Iterator[Problem]:
    """Stream problems in the order of the file, for sets that exceed memory.

    Duplicate ids are not detected. A dataset on the Hub is read from the cache if the split is complete there, and
    over the network otherwise, without storing it. Pin its revision (`hf:owner/name@commit`), so that every epoch is
    the same.

    Args:
        path: File or dataset, as for `load_problems`.
        columns: Columns, as for `load_problems`.
        split: Split, as for `load_problems`.

    Raises:
        DataError: The file is missing or empty, or a row is invalid. At the end of the file, if more than one row in a
            hundred had an empty answer.
    """
    answered, unanswered = 0, list[str]()
    for location, problem in raw_problems(path, columns, split, download=False):
        if isinstance(problem, DataError):
            raise problem
        if problem.answer:
            answered += 1
            yield problem
        else:
            unanswered.append(location)
    _check_unanswered(path, unanswered, answered + len(unanswered))


def raw_problems(
    path: str | Path, columns: dict[str, str] | None = None, split: str | None = None, *, download: bool = True
) -> Iterator[tuple[str, Problem | DataError]]:
    """Stream problems with their locations, including problems with an empty answer, and the errors of invalid rows.

    Args:
        path: File or dataset, as for `load_problems`.
        columns: Columns, as for `load_problems`.
        split: Split, as for `load_problems`.
        download: Whether to download a dataset on the Hub first, instead of reading it over the network each time.

    Raises:
        DataError: The file is missing or in another format.
    """
    rows = numbered_rows(find_files(path, split, resolve_dataset if download else stream_dataset))
    for location, row in rows:
        problem: Problem | DataError
        try:
            problem = _read_row(location, row, columns)
        except DataError as error:
            problem = error
        yield location, problem


def _read_row(location: str, row: Any, columns: Mapping[str, str] | None) -> Problem:
    if isinstance(row, DataError):
        raise row
    if columns and isinstance(row, Mapping):
        row = dict(row) | {name: _column(location, row, column) for name, column in columns.items()}
    verl = isinstance(row, Mapping) and "reward_model" in row and not columns
    return _from_parquet_row(location, row) if verl else _from_json_row(location, row)


def _column(location: str, row: Mapping[str, Any], column: str) -> Any:
    """Return the value of a column. Dots in its name descend into objects."""
    value: Any = row
    for part in column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise DataError(f"{location}: the column {column!r} is missing{_fields_there(row)}")
        value = value[part]
    return value


def _check_unanswered(path: str | Path, unanswered: list[str], rows: int) -> None:
    if rows == 0:
        raise DataError(f"{path}: contains no problems")
    if len(unanswered) > _MAX_UNANSWERED_FRACTION * rows:
        raise DataError(f"{unanswered[0]}: the answer is empty ({len(unanswered)} of {rows} rows have an empty answer)")
    if unanswered:
        locations = "; ".join(location.rsplit(", ", maxsplit=1)[1] for location in unanswered)
        _logger.warning("%s: dropped %d of %d problems without an answer: %s", path, len(unanswered), rows, locations)


def _from_json_row(location: str, row: Any) -> Problem:
    if not isinstance(row, dict):
        raise DataError(f"{location}: a problem must be an object, got {describe(row)}")
    row = _with_lower_case_names(row)
    field = next((name for name in _QUESTION_FIELDS if name in row), None)
    if field is None:
        raise DataError(f"{location}: the field 'problem' (or 'question') is missing{_fields_there(row)}{_HINT}")
    if "answer" not in row:
        raise DataError(f"{location}: the field 'answer' is missing{_fields_there(row)}{_HINT}")
    metadata = {name: plain(value) for name, value in row.items() if name not in (field, "answer", "id")}
    return Problem(
        id=_identifier(location, row.get("id")),
        question=_text(location, field, row[field]),
        answer=_answer(location, "answer", row["answer"]),
        metadata=metadata,
    )


def _with_lower_case_names(row: dict[str, Any]) -> dict[str, Any]:
    names = (name for name in row if name not in _FIELDS and name.lower() in _FIELDS and name.lower() not in row)
    renamed = {name: name.lower() for name in names}
    return {renamed.get(name, name): value for name, value in row.items()} if renamed else row


def _from_parquet_row(location: str, row: Mapping[str, Any]) -> Problem:
    for name in ("prompt", "reward_model"):
        if row.get(name) is None:
            raise DataError(f"{location}: the field {name!r} is missing{_fields_there(row)}")
    reward_model = row["reward_model"]
    if not isinstance(reward_model, dict) or reward_model.get("ground_truth") is None:
        raise DataError(f"{location}: the field 'reward_model.ground_truth' is missing")
    extra = row.get("extra_info")
    if not isinstance(extra, dict):
        extra = {}
    identifier = next((extra[name] for name in ("id", "index") if extra.get(name) is not None), None)
    metadata = {name: value for name, value in row.items() if name not in ("prompt", "reward_model")}
    return Problem(
        id=_identifier(location, identifier),
        question=_question_of_messages(location, row["prompt"]),
        answer=_answer(location, "reward_model.ground_truth", reward_model["ground_truth"]),
        metadata=metadata,
    )


def _question_of_messages(location: str, prompt: Any) -> str:
    if isinstance(prompt, str):
        return _text(location, "prompt", prompt)
    if not isinstance(prompt, list) or not all(isinstance(message, dict) for message in prompt):
        raise DataError(f"{location}: 'prompt' must be text or a list of messages, got {describe(prompt)}")
    conversation = [message for message in prompt if message.get("role") != "system"]
    if [message.get("role") for message in conversation] != ["user"]:
        roles = ", ".join(str(message.get("role")) for message in prompt)
        raise DataError(f"{location}: 'prompt' must contain one user message, got: {roles}")
    question = _text(location, "prompt", conversation[0].get("content")).strip()
    for instruction in _APPENDED_INSTRUCTIONS:
        question = question.removesuffix(instruction).rstrip()
    return _text(location, "prompt", question)


def _identifier(location: str, value: Any) -> str:
    if value is None:
        return location.rsplit(", ", maxsplit=1)[1].replace(" ", "-")
    spelled_fraction = isinstance(value, NumberLiteral) and not value.removeprefix("-").isdigit()
    if isinstance(value, bool) or spelled_fraction or not isinstance(value, str | int) or not str(value):
        raise DataError(f"{location}: 'id' must be text or an integer, got {describe(value)}")
    return _encodable(location, "id", str(value))


def _text(location: str, field: str, value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, NumberLiteral):
        raise DataError(f"{location}: {field!r} must be text, got {describe(value)}")
    if not value.strip():
        raise DataError(f"{location}: {field!r} is empty")
    return _encodable(location, field, value)


def _encodable(location: str, field: str, value: str) -> str:
    """Reject lone surrogates, which JSON allows and tokenizers do not."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{location}: {field!r} has a lone surrogate at character {error.start}") from error
    return value


def _answer(location: str, field: str, value: Any) -> str:
    if isinstance(value, list):
        if not value:
            raise DataError(f"{location}: {field!r} is an empty list")
        return ", ".join(filter(None, (_answer(location, field, member) for member in value)))
    if value is None or value != value:  # pandas writes NaN for a missing number
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"{location}: {field!r} must be text, a number or a list of them, got {describe(value)}")
    return _encodable(location, field, str(value).strip())


def _fields_there(row: Mapping[str, Any]) -> str:
    return f"; the fields are: {', '.join(sorted(map(str, row)))}" if row else "; the object is empty"
