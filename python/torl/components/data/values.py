"""Values of the columns of a row: text, ids and answers, each checked."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from torl.base.inputs import parse_json
from torl.base.types import ALTERNATIVE
from torl.components.data.rows import InvalidRowError, NumberLiteral, describe, is_missing, row_id
from torl.components.text.answers import find_boxes

FINAL_ANSWER_MARK = "####"
"""GSM8K's mark of the final answer in a solution."""

PASS_RATE = "pass_rate"
"""Metadata field of the measured fraction of right answers."""

_MISSING = object()
_MAX_SHOWN = 100  # characters of an invalid value
_WHOLE_BOX = re.compile(r"[\s$]*\\(?:boxed|fbox)\s*\{.*\}[\s$.]*", re.DOTALL)
_LAYOUT_COMMAND = re.compile(r"\\(?:left|right|[!,;])|\s")


class PlainRow(dict[str, Any]):
    """A row whose values are `plain`."""


def find_value(row: Any, path: str, default: Any = None) -> Any:
    """Return the value of a column, or `default`.

    Dots in the path descend into objects, numbers into lists, unless the whole path is the name of a column.
    """
    if isinstance(row, Mapping) and path in row:
        return row[path]
    value = row
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, Sequence) and not isinstance(value, str) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return default
    return value


def require_value(location: str, row: Any, path: str) -> Any:
    """Return the value of a column; raise `InvalidRowError` if the row lacks it."""
    value = find_value(row, path, _MISSING)
    if value is _MISSING:
        raise InvalidRowError(location, "missing_column", f"the column {path!r} is missing{name_columns(row)}")
    return value


def name_columns(row: Any) -> str:
    """Return the columns of a row, for the end of a message."""
    if isinstance(row, Mapping):
        return f"; the columns are: {', '.join(sorted(map(str, row)))}" if row else "; the object is empty"
    return f"; the row is {describe(row)}"


def read_id(location: str, value: Any) -> str:
    """Return an id, or the id of the location for null, NaN and an empty text, the null of a CSV file.

    Raises:
        InvalidRowError: The value is not text or an integer.
    """
    if is_missing(value) or value == "":
        return row_id(location)
    text = value if isinstance(value, str) and not isinstance(value, NumberLiteral) else _whole_number(value)
    if text is None:
        raise InvalidRowError(location, "invalid_id", f"'id' must be text or an integer, got {describe(value)}")
    return encodable(location, "id", text)


def _whole_number(value: Any) -> str | None:
    """Return the digits of an integer, or of a whole float: pandas makes floats of integers if one is missing.

    None for another value.
    """
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        return str(value)
    if isinstance(value, NumberLiteral):
        value = float(value)
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return str(int(value)) if is_whole and not isinstance(value, bool) else None


def read_pass_rate(location: str, value: Any) -> float | None:
    """Return a pass rate, or None for null and an empty text.

    Raises:
        InvalidRowError: The value is not a number from 0 to 1.
    """
    if is_missing(value) or value == "":
        return None
    try:
        rate = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        rate = math.nan
    if not 0 <= rate <= 1:
        message = f"'pass_rate' must be a number from 0 to 1, got {as_text(plain(value))[:_MAX_SHOWN]}"
        raise InvalidRowError(location, "invalid_pass_rate", message)
    return rate


def read_question(location: str, value: Any, instructions: Sequence[re.Pattern[str]]) -> str:
    """Return a question without its instructions.

    Raises:
        InvalidRowError: The value is not text, or nothing is left of it.
    """
    if not isinstance(value, str) or isinstance(value, NumberLiteral):
        reason = "no_question" if value is None else "question_not_text"
        raise InvalidRowError(location, reason, f"the question must be text, got {describe(value)}")
    for pattern in instructions:
        value = pattern.sub("", value)
    if not value.strip():
        raise InvalidRowError(location, "no_question", "the question is empty")
    return encodable(location, "question", value)


def read_answer(location: str, value: Any) -> str:
    """Return the text of an answer.

    All members of a list are required, as in OlympiadBench. Of a list under "target", as in verl's and Search-R1's
    files, each member is correct.

    Raises:
        InvalidRowError: The value is missing, or not text, a number, or a list of them.
    """
    if isinstance(value, Mapping) and "target" in value:
        target = value["target"]
        return read_alternatives(location, target if isinstance(target, list) else [target])
    if is_missing(value) or value == []:
        raise InvalidRowError(location, "no_answer", f"the answer is {'an empty list' if value == [] else 'null'}")
    if isinstance(value, list):
        return ", ".join(read_answer(location, member) for member in value)
    if isinstance(value, Decimal):
        value = f"{value:f}"  # as text, 1E+2 for 100
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        message = f"the answer must be text, a number or a list of them, got {describe(value)}"
        raise InvalidRowError(location, "answer_not_text", message)
    text = str(value).strip()
    if not text:
        raise InvalidRowError(location, "no_answer", "the answer is empty")
    return encodable(location, "answer", text)


def read_alternatives(location: str, values: Sequence[Any]) -> str:
    """Return a list of answers, each of which is correct, as one text; raise `InvalidRowError` for an empty list."""
    return ALTERNATIVE.join(dict.fromkeys(read_answer(location, value) for value in values or [None]))


def read_texts(value: Any) -> list[str] | None:
    """Return the texts of a JSON list of nothing but texts, which is in a text (Skywork-OR1); None for another value.

    A list of numbers may be an answer of mathematics: an interval, a vector.
    """
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return None
    try:
        members = parse_json(value)
    except ValueError:
        return None
    is_list_of_texts = isinstance(members, list) and all(isinstance(member, str) for member in members)
    return members if is_list_of_texts and members else None


def derive_answer(location: str, value: Any) -> str:
    """Return the last box of a solution, or the text after its last "####"; every entry of a list is correct.

    Raises:
        InvalidRowError: A solution has no final answer, or several different boxes.
    """
    values = value if isinstance(value, list) else read_texts(value)
    if values is not None:
        return read_alternatives(location, values)
    solution = read_answer(location, value)
    boxes = {_LAYOUT_COMMAND.sub("", box.text).replace("\\dfrac", "\\frac"): box.text for box in find_boxes(solution)}
    if len(boxes) > 1:
        raise InvalidRowError(location, "several_boxes", f"the solution has {len(boxes)} different boxes")
    if boxes:
        return read_answer(location, next(iter(boxes.values())))
    if FINAL_ANSWER_MARK not in solution:
        raise InvalidRowError(
            location, "no_final_answer", f"the solution has neither a box nor {FINAL_ANSWER_MARK!r} before an answer"
        )
    return read_answer(location, solution.rpartition(FINAL_ANSWER_MARK)[2])


def is_solution(answer: str) -> bool:
    """Whether a text holds a final answer in other text, or several boxes."""
    if FINAL_ANSWER_MARK in answer:
        return True
    boxes = list(find_boxes(answer))
    return len(boxes) > 1 or (len(boxes) == 1 and _WHOLE_BOX.fullmatch(answer) is None)


def encodable(location: str, name: str, value: str) -> str:
    """Return the text; raise `InvalidRowError` for a lone surrogate, which JSON allows and tokenizers do not."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        message = f"the {name} has a lone surrogate at character {error.start}"
        raise InvalidRowError(location, "lone_surrogate", message) from error
    return value


def as_text(value: Any) -> str:
    """Return a value as JSON, and text as it is."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def plain(value: Any) -> Any:
    """Return a value with numbers instead of number literals, and lists instead of arrays and tuples.

    Integers that Python refuses to read stay text.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None:  # the most frequent first: rows are many
        return value
    if kind is dict:
        return {name: plain(member) for name, member in value.items()}
    if kind is list:
        return [plain(member) for member in value]
    if isinstance(value, NumberLiteral):
        try:
            return json.loads(value)
        except ValueError:  # over 4,300 digits
            return str(value)
    if isinstance(value, Mapping):
        return plain(dict(value))
    if isinstance(value, tuple):
        return plain(list(value))
    return plain(value.tolist()) if hasattr(value, "tolist") and not isinstance(value, float) else value  # NumPy's
