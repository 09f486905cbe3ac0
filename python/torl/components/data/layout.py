"""The layout of a problem file: from a row to a `Problem`.

A row is an object with `problem` (or `question`), `answer` and optionally `id`, also capitalized (AIME); other columns
become metadata. The answer of a solution is in its box, or follows `####` (MATH, GSM8K). A row may also have the layout
of verl and ToRL (`torl.components.data.verl_rows`).

A problem with tests needs no answer: its metadata has the tests in the form of `torl.components.programs.forms`, and up
to three solutions, if its row has some. A row has tests if its layout has a form of them, or if it has a column `tests`
and no answer.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from torl.base.types import ALTERNATIVE, Problem
from torl.base.types.problems import SOLUTIONS, TESTS
from torl.components.data.rows import InvalidRowError, SkippedRowError, describe, is_missing, require_read
from torl.components.data.values import (
    PASS_RATE,
    as_text,
    derive_answer,
    find_value,
    is_solution,
    name_columns,
    plain,
    read_alternatives,
    read_answer,
    read_id,
    read_pass_rate,
    read_question,
    read_texts,
    require_value,
)
from torl.components.data.verl_rows import INSTRUCTIONS, has_index, is_verl_row, question_and_answer, verl_id
from torl.components.programs.forms import InvalidTestsError, keep_largest, pack_suite
from torl.components.programs.forms_rows import ROW_FORMS, read_program

FIELDS = ("problem", "answer", "id", PASS_RATE, TESTS)
"""Names in `Layout.columns`."""
_QUESTION_COLUMNS = ("problem", "question")
_COLUMNS = (*_QUESTION_COLUMNS, "answer", "id")
_KEEP_HINT = "keep names the columns to keep without it"
_HINT = "; if it has another name, set its column, such as answer=solution"
_LETTERS = "ABCDEFGHIJ"
_CODE_ABILITIES = ("code", "coding")  # of rows in verl's layout whose ground truth is tests


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
    """Columns of problem, answer, id, pass_rate (the measured fraction of right answers) and tests, if they have other
    names. Several columns of the id, separated by commas, are joined."""
    answer_from: str | None = None
    """Column of solutions or of lists, instead of a column of answers. A solution must have a box, or an answer after
    "####"; of a list, also one that is JSON in a text, every entry is a correct answer."""
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
    tests: str | None = None
    """Form of rows with tests instead of answers, a name in `torl.components.programs.forms_rows.ROW_FORMS`. None finds
    tests in any known shape in the column of tests."""
    max_tests: int | None = None
    """Maximum number of tests of a problem: public tests, and the tests with the longest inputs. None keeps all."""
    split: str | None = None
    """Split of a dataset. None is "train"."""
    files: tuple[str, ...] = ()
    """Patterns of the files of a dataset, instead of a split."""

    @property
    def fields(self) -> frozenset[str] | None:
        """The top-level columns to read; None reads all."""
        named = {"answer", TESTS} & self.columns.keys() or self.answer_from or self.tests
        if self.keep is None or "problem" not in self.columns or not named:
            return None
        form = ROW_FORMS[self.tests or "values"].columns if self.tests or TESTS in self.columns else ()
        return frozenset(self._columns | {"id", *form, *self.keep, *(name.partition(".")[0] for name in self.keep)})

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
        if isinstance(row, dict) and self._finds_columns:
            row = _with_lower_case_names(row, self.columns)
        is_verl = self._is_verl(row)
        form = self._form(row, is_verl)
        values = self._verl_values(location, row) if is_verl else self._values(location, row, needs_answer=form is None)
        instructions = (*self.instructions, *(INSTRUCTIONS if is_verl_row(row) else ()))
        question = read_question(location, values.question, tuple(map(_compiled, instructions)))
        tests: dict[str, Any] = {}
        if form is not None:
            given = values.answer if is_verl else find_value(row, self.columns.get(TESTS, TESTS))
            question, tests = self._program(location, form, row, question, given)
        answer = "" if form is not None else self._answer(location, row, values.answer)
        if self.choices:
            question, answer = self._with_letters(location, row, question, answer)
        if self.keep is None and isinstance(row, dict):
            require_read(location, row, {*values.used, *self._columns}, _KEEP_HINT)
        metadata = self._metadata(row, values.used | (self._columns_of_tests if form is not None else set()))
        if PASS_RATE in self.columns:
            rate = read_pass_rate(location, require_value(location, row, self.columns[PASS_RATE]))
            metadata.pop(PASS_RATE, None)
            metadata |= {} if rate is None else {PASS_RATE: rate}
        return Problem(read_id(location, values.identifier), question, answer, metadata | tests)

    @property
    def _columns_of_tests(self) -> set[str]:
        """The top-level columns that tests are read from, which metadata does not repeat."""
        return set(ROW_FORMS[self.tests].columns) if self.tests else {self.columns.get(TESTS, TESTS).partition(".")[0]}

    @property
    def _columns(self) -> set[str]:
        """The top-level columns that the options name."""
        paths = [*self.columns.values(), *self.where, *self.choices, self.answer_from or ""]
        names = [name for path in paths for name in path.split(",")]
        return {*names, *(name.partition(".")[0] for name in names)}

    def has_replaceable_id(self, row: Any) -> bool:
        """Whether the id of a row is a mere index, so that another row of the file may have it too."""
        return "id" not in self.columns and self._is_verl(row) and has_index(row)

    def _is_verl(self, row: Any) -> bool:
        has_own_columns = bool(self.columns) and any(name in row for name in _QUESTION_COLUMNS)
        return self._finds_columns and is_verl_row(row) and not has_own_columns

    @property
    def _finds_columns(self) -> bool:
        """Whether the columns of the question and the answer are found by their usual names."""
        return self.columns.keys().isdisjoint(("problem", "answer"))

    def _form(self, row: Any, is_verl: bool) -> str | None:
        """Return the form of a row with tests, or None for a row with an answer."""
        if self.tests is not None or TESTS in self.columns:
            return self.tests or "values"
        if is_verl:
            return "values" if row.get("ability") in _CODE_ABILITIES else None
        has_answer = (
            self.answer_from is not None or "answer" in self.columns or find_value(row, "answer") not in (None, "")
        )
        return "values" if not has_answer and isinstance(row, dict) and row.get(TESTS) is not None else None

    def _program(self, location: str, form: str, row: Any, question: str, given: Any) -> tuple[str, dict[str, Any]]:
        """Return the question and the metadata of a problem with tests."""
        columns = {name: plain(value) for name, value in row.items() if name in ROW_FORMS[form].columns}
        try:
            found = read_program(form, columns, question, plain(given))
            tests = {TESTS: pack_suite(keep_largest(found.suite, self.max_tests))}
        except InvalidTestsError as invalid:
            kind = InvalidRowError if invalid.is_damage else SkippedRowError
            raise kind(location, invalid.reason, str(invalid)) from invalid
        return found.question, tests | ({SOLUTIONS: list(found.solutions)} if found.solutions else {})

    def _values(self, location: str, row: Any, *, needs_answer: bool) -> _Values:
        found = [name for name in _QUESTION_COLUMNS if name in row]
        question = self.columns.get("problem") or next(
            (name for name in found if not is_missing(row[name])), found[0] if found else None
        )
        if question is None:
            message = f"the column 'problem' (or 'question') is missing{name_columns(row)}{_HINT}"
            raise InvalidRowError(location, "missing_column", message)
        answer = self.columns.get("answer", "answer")
        if needs_answer and self.answer_from is None and "answer" not in self.columns and "answer" not in row:
            message = f"the column 'answer' is missing{name_columns(row)}{_HINT}"
            raise InvalidRowError(location, "missing_column", message)
        value = require_value(location, row, answer) if needs_answer and self.answer_from is None else None
        identifiers = self.columns["id"].split(",") if "id" in self.columns else ["id"] * ("id" in row)
        identifier = _joined(location, row, identifiers)
        return _Values(require_value(location, row, question), value, identifier, {question, answer, *identifiers})

    def _verl_values(self, location: str, row: Any) -> _Values:
        question, answer = question_and_answer(location, row)
        identifiers = self.columns["id"].split(",") if "id" in self.columns else []
        identifier = _joined(location, row, identifiers) if identifiers else verl_id(row)
        return _Values(question, answer, identifier, {"prompt", "reward_model"})

    def _answer(self, location: str, row: Any, value: Any) -> str:
        if self.answer_from is not None:
            return derive_answer(location, require_value(location, row, self.answer_from))
        # In a column that is merely called "answer", such a text may be what a model is to write.
        texts = read_texts(value) if "answer" in self.columns or is_verl_row(row) else None
        if texts is not None:
            return read_alternatives(location, texts)
        answer = read_answer(location, value)
        return derive_answer(location, answer) if is_solution(answer) and ALTERNATIVE not in answer else answer

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


def _joined(location: str, row: Any, identifiers: Sequence[str]) -> Any:
    parts = [require_value(location, row, name) for name in identifiers]
    return parts[0] if len(parts) == 1 else "/".join(map(as_text, parts)) or None


def _with_lower_case_names(row: dict[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    named = {name.partition(".")[0] for path in columns.values() for name in path.split(",")}
    names = {name: name.lower() for name in row.keys() - named}
    names = {name: lower for name, lower in names.items() if lower in _COLUMNS and lower not in row}
    return {names.get(name, name): value for name, value in row.items()} if names else row


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)
