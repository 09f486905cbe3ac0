"""Problems that passed the checks of their text, in a temporary file, and the problems that did not."""

import contextlib
import json
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from torl.base.types import Problem
from torl.run.records.files import record_errors
from torl_lab.curation.problem_files import encode_problems, encode_rows

_SHOWN = 3
_MAX_CHARACTERS = 120  # of an example


class CandidateFile:
    """Problems as JSON lines in a file that is removed at the end, so that memory holds only their positions."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts, self._shapes, self._answers = array("Q", [0]), array("q"), array("q")
        self._sources, self._source_names = array("L"), dict[str, int]()
        self._questions = array("q")
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        with record_errors(self._path):
            self._file = self._path.open("w+b")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # a full disk: the buffer is of no use any more
            self._opened.close()
        self._path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self._shapes)

    @property
    def _opened(self) -> IO[bytes]:
        assert self._file is not None, "open the file with a with statement"
        return self._file

    def add(self, problem: Problem, shape: int, words: Sequence[str]) -> None:
        """Append a problem.

        Args:
            problem: The problem.
            shape: Index of the shape of its answer.
            words: Words of its question. Without words, its answer contradicts no other.
        """
        line = encode_problems([problem])
        with record_errors(self._path):
            self._opened.write(line)
        self._starts.append(self._starts[-1] + len(line))
        self._shapes.append(shape)
        self._answers.append(hash(problem.answer))
        self._questions.append(hash(" ".join(words)) if words else -len(self))
        self._sources.append(self._source_names.setdefault(str(problem.metadata["source"]), len(self._source_names)))

    def lines(self) -> Iterator[bytes]:
        """Yield the encoded problems in order."""
        self._opened.seek(0)
        for index in range(len(self)):
            yield self._opened.read(self._starts[index + 1] - self._starts[index])

    def shape(self, index: int) -> int:
        """Return the shape of a problem's answer."""
        return self._shapes[index]

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

    def read(self, index: int) -> dict[str, Any]:
        """Read a problem, also while `lines` is read."""
        size = self._starts[index + 1] - self._starts[index]
        row: dict[str, Any] = json.loads(os.pread(self._opened.fileno(), size, self._starts[index]))
        return row

    def flush(self) -> None:
        """Write the buffer, from which `read` does not read."""
        with record_errors(self._path):
            self._opened.flush()

    def source(self, index: int) -> str:
        """Return the source of a problem."""
        return list(self._source_names)[self._sources[index]]


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
            detail: Text that explains the reason, or the question.
            because_of: Id of the other problem that is the reason.
        """
        self.counts[reason] += 1
        shown = self.examples.setdefault(reason, [])
        if len(shown) < _SHOWN:
            text = " ".join((f"{identifier}: {because_of or detail}" if because_of or detail else identifier).split())
            shown.append(text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 3] + "...")
        row = {"id": identifier, "reason": reason} | ({"because_of": because_of} if because_of else {})
        self._file.write(encode_rows([row]))
