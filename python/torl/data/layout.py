"""The layout of a problem file: from a row to a `Problem`.

A row is an object with `problem` (or `question`), `answer` and optionally `id`, also capitalized (AIME); other columns
become metadata. The answer of a solution is in its box, or follows `####` (MATH, GSM8K). A row may also have the layout
of verl and ToRL: `data_source, prompt[{role, content}], reward_model{ground_truth}, extra_info`. Its question is the
only user message; system messages and instructions that are known to be added to questions are removed, because torl's
template adds its own.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from torl.data.files import InvalidRowError, describe
from torl.data.values import (
    as_text,
    derive_answer,
    find_value,
    is_solution,
    name_columns,
    plain,
    read_answer,
    read_id,
    read_question,
    require_value,
)
from torl.types import Problem

_QUESTION_COLUMNS = ("problem", "question")
_COLUMNS = (*_QUESTION_COLUMNS, "answer", "id")
_HINT = "; if it has another name, set its column, such as answer=solution"
_LETTERS = "ABCDEFGHIJ"
# ToRL's, verl's, Qwen2.5-Math's and DAPO's.
_INSTRUCTIONS = (
    r"\s*Please integrate natural language reasoning with programs to solve the problem above, "
    r"and put your final answer within \\boxed\{\}\.\s*\Z",
    r"\s*Let's think step by step and output the final answer within \\boxed\{\}\.\s*\Z",
    r"\s*Please reason step by step, and put your final answer within \\boxed\{\}\.\s*\Z",
    r"\ASolve the following math problem step by step\. The last line of your response should be of the form "
    r"Answer: \$Answer \(without quotes\) where \$Answer is the answer to the problem\.\s*",
    r'\s*Remember to put your answer on its own line after "Answer:"\.\s*\Z',
)


class _Values(NamedTuple):
    """The values of a row, and the columns that they use."""

    question: Any
    answer: Any
    identifier: Any
    used: set[str]


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a problem file.

    A column can be a path: "question.text" or "1.content" is a value inside an object or a list. A column of that name
    comes first.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns of problem, answer and id, if they have other names. Several columns of the id, separated by commas, are
    joined."""
    answer_from: str | None = None
    """Column of solutions or of lists, instead of a column of answers. A solution must have a box, or an answer after
    "####"; of a list, every entry is a correct answer."""
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Accepted values of columns, as text. Rows with other values are skipped."""
    keep: tuple[str, ...] | None = None
    """Columns that become metadata; None keeps all."""
    instructions: tuple[str, ...] = ()
    """Regular expressions that are removed from the question."""
    choices: tuple[str, ...] = ()
    """Columns of wrong answers. The question then lists all answers with letters, and the answer is a letter."""
    text_answers: bool = False
    """Whether answers are plain text, so that they need not be mathematical expressions."""
    split: str | None = None
    """Split of a dataset. None is "train"."""
    files: tuple[str, ...] = ()
    """Patterns of the files of a dataset, instead of a split."""

    @property
    def fields(self) -> frozenset[str] | None:
        """The top-level columns to read; None reads all."""
        if self.keep is None or "problem" not in self.columns or not (self.answer_from or "answer" in self.columns):
            return None
        paths = [*self.columns.values(), *self.where, *self.keep, *self.choices, self.answer_from or "", "id"]
        names = [name for path in paths for name in path.split(",")]
        return frozenset([*names, *(name.partition(".")[0] for name in names)])

    def read(self, location: str, row: Any) -> Problem | None:
        """Return the problem of a row, or None if `where` skips it.

        Raises:
            InvalidRowError: The row is not a problem.
        """
        if isinstance(row, InvalidRowError):
            raise row
        if not isinstance(row, dict) and not (isinstance(row, list) and self.columns.get("problem", "")[:1].isdigit()):
            raise InvalidRowError(location, "not_an_object", f"a problem must be an object, got {describe(row)}")
        if any(as_text(require_value(location, row, name)) not in values for name, values in self.where.items()):
            return None
        if isinstance(row, dict) and not self.columns:
            row = _with_lower_case_names(row)
        is_verl = isinstance(row, dict) and "reward_model" in row and not self.columns
        values = _verl_values(location, row) if is_verl else self._values(location, row)
        instructions = (*self.instructions, *(_INSTRUCTIONS if is_verl else ()))
        question = read_question(location, values.question, tuple(map(_compiled, instructions)))
        answer = self._answer(location, row, values.answer)
        if self.choices:
            question, answer = self._with_letters(location, row, question, answer)
        return Problem(read_id(location, values.identifier), question, answer, self._metadata(row, values.used))

    def _values(self, location: str, row: Any) -> _Values:
        question = self.columns.get("problem") or next((name for name in _QUESTION_COLUMNS if name in row), None)
        if question is None:
            message = f"the column 'problem' (or 'question') is missing{name_columns(row)}{_HINT}"
            raise InvalidRowError(location, "missing_column", message)
        answer = self.columns.get("answer", "answer")
        if self.answer_from is None and "answer" not in self.columns and "answer" not in row:
            message = f"the column 'answer' is missing{name_columns(row)}{_HINT}"
            raise InvalidRowError(location, "missing_column", message)
        value = None if self.answer_from is not None else require_value(location, row, answer)
        identifiers = self.columns["id"].split(",") if "id" in self.columns else ["id"] * ("id" in row)
        parts = [require_value(location, row, name) for name in identifiers]
        identifier = parts[0] if len(parts) == 1 else "/".join(map(as_text, parts)) or None
        return _Values(require_value(location, row, question), value, identifier, {question, answer, *identifiers})

    def _answer(self, location: str, row: Any, value: Any) -> str:
        if self.answer_from is not None:
            return derive_answer(location, require_value(location, row, self.answer_from))
        answer = read_answer(location, value)
        return derive_answer(location, answer) if isinstance(value, str) and is_solution(answer) else answer

    def _with_letters(self, location: str, row: Any, question: str, answer: str) -> tuple[str, str]:
        """Return the question with all answers in an order that depends on its text alone, and the right letter."""
        wrong = [read_answer(location, require_value(location, row, name)) for name in self.choices]
        order = sorted({answer, *wrong}, key=lambda each: hashlib.sha256(f"{question}\0{each}".encode()).digest())
        lines = [f"{letter}. {each}" for letter, each in zip(_LETTERS, order, strict=False)]
        return "\n".join([question.rstrip(), "", *lines]), _LETTERS[order.index(answer)]

    def _metadata(self, row: Any, used: set[str]) -> dict[str, Any]:
        if self.keep is not None:
            found = {name: find_value(row, name) for name in self.keep}
            return {name: plain(value) for name, value in found.items() if value is not None}
        return {name: plain(value) for name, value in row.items() if name not in used} if isinstance(row, dict) else {}


def _with_lower_case_names(row: dict[str, Any]) -> dict[str, Any]:
    names = {name: name.lower() for name in row if name.lower() in _COLUMNS and name.lower() not in row}
    return {names.get(name, name): value for name, value in row.items()} if names else row


def _verl_values(location: str, row: Any) -> _Values:
    for name in ("prompt", "reward_model"):
        if row.get(name) is None:
            raise InvalidRowError(location, "missing_column", f"the column {name!r} is missing{name_columns(row)}")
    reward_model = row["reward_model"]
    if not isinstance(reward_model, dict) or "ground_truth" not in reward_model:
        raise InvalidRowError(location, "missing_column", "the column 'reward_model.ground_truth' is missing")
    extra = row["extra_info"] if isinstance(row.get("extra_info"), dict) else {}
    identifier = next((extra[name] for name in ("id", "index") if extra.get(name) is not None), None)
    question = _user_message(location, row["prompt"])
    return _Values(question, reward_model["ground_truth"], identifier, {"prompt", "reward_model"})


def _user_message(location: str, prompt: Any) -> Any:
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list) or not all(isinstance(message, dict) for message in prompt):
        message = f"'prompt' must be text or a list of messages, got {describe(prompt)}"
        raise InvalidRowError(location, "question_not_text", message)
    conversation = [message for message in prompt if message.get("role") != "system"]
    if [message.get("role") for message in conversation] != ["user"]:
        roles = ", ".join(str(message.get("role")) for message in prompt)
        raise InvalidRowError(location, "question_not_text", f"'prompt' must contain one user message, got: {roles}")
    content = conversation[0].get("content")
    return content.strip() if isinstance(content, str) else content


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)
