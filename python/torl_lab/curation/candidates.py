"""Problems that passed the checks of their text, in a temporary file, and the problems that did not."""

import contextlib
import json
import os
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from torl.base.types import Problem
from torl.run.records.files import record_errors
from torl_lab.curation.problem_files import encode_problems, encode_rows

_SHOWN = 3
_MAX_CHARACTERS = 120  # of an example


class CandidateFile:
    """Problems as JSON lines in a file that is removed at the end, so that memory holds only their positions.

    Attributes:
        shapes: Index of the shape of each problem's answer.
        sources: Source of each problem.
    """

    def __init__(self, path: Path) -> None:
        """Create the file.

        Raises:
            RecordError: The file cannot be written.
        """
        self._path = path
        with record_errors(path):
            self._file = path.open("w+b")
        self.shapes, self.sources = array("q"), list[str]()
        self._starts, self._answers, self._questions = array("Q", [0]), array("q"), array("q")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # a full disk: the buffer is of no use any more
            self._file.close()
        self._path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self.shapes)

    def add(self, problem: Problem, shape: int, words: Sequence[str]) -> None:
        """Append a problem with the shape of its answer and the words of its question.

        Without words, its answer contradicts no other.
        """
        line = encode_problems([problem])
        with record_errors(self._path):
            self._file.write(line)
        self._starts.append(self._starts[-1] + len(line))
        self.shapes.append(shape)
        self._answers.append(hash(problem.answer))
        self._questions.append(hash(" ".join(words)) if words else -len(self))
        self.sources.append(sys.intern(str(problem.metadata["source"])))

    def answers_by_question(self) -> Iterator[list[int]]:
        """Yield the problems of each question that has several answers of different text."""
        questions = np.frombuffer(self._questions, np.int64)
        order = np.argsort(questions, kind="stable")
        changes = np.append(True, questions[order][1:] != questions[order][:-1])[: len(order)].nonzero()[0]
        bounds = np.append(changes, len(order))
        for start in (np.diff(bounds) > 1).nonzero()[0]:
            group = order[bounds[start] : bounds[start + 1]].tolist()
            if len({self._answers[index] for index in group}) > 1:
                yield group

    def line(self, index: int) -> bytes:
        """Return an encoded problem."""
        start, stop = self._starts[index : index + 2]
        return os.pread(self._file.fileno(), stop - start, start)

    def read(self, index: int) -> dict[str, Any]:
        """Return the row of a problem."""
        row: dict[str, Any] = json.loads(self.line(index))
        return row

    def flush(self) -> None:
        """Write the buffer, from which `line` does not read."""
        with record_errors(self._path):
            self._file.flush()


class DroppedRows:
    """The rows that were dropped, written to a file with their reasons, counted, and three of each shown."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.counts = Counter[str]()
        self.examples: dict[str, list[str]] = {}

    def add(self, identifier: str, reason: str, detail: str = "", *, because_of: str = "") -> None:
        """Write a row.

        Args:
            identifier: Id of the problem, or location of the row.
            reason: Short name of the reason.
            detail: Text that explains the reason, or the question. It is only shown.
            because_of: Id of the other problem that is the reason.
        """
        self.counts[reason] += 1
        shown = self.examples.setdefault(reason, [])
        if len(shown) < _SHOWN:
            text = " ".join((f"{identifier}: {because_of or detail}" if because_of or detail else identifier).split())
            shown.append(text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 3] + "...")
        row = {"id": identifier, "reason": reason} | ({"because_of": because_of} if because_of else {})
        self._file.write(encode_rows([row]))
