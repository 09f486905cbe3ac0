"""A session whose parts are shown as a notebook shows its cells: with IPython's tracebacks.

    notebook = Notebook(pool.session())
    notebook.run("1 / 0").traceback  # "...Cell In[1], line 1\n----> 1 1 / 0\n\nZeroDivisionError: division by zero"

Frames of libraries are left out, as everywhere in the sandbox; exception groups and `sys.exit` look as in a script.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Unpack

from torl.sandbox.cells import Cell
from torl.sandbox.execution import Execution
from torl.sandbox.options import PartOptions
from torl.sandbox.session import Session

_LONGEST = 16 << 10  # letters of a traceback: they come from the program, and reading them takes time
_WIDTH = 75
_HEAD = "Traceback (most recent call last)"
_CHAINED = re.compile(
    r"\n\n(The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):\n\n"
)
_FRAME = re.compile(r'  File "main(?:_(\d+))?\.py", line (\d+)(?:, in (.+))?')
_REPEATED = re.compile(r"  \[Previous line repeated (\d+) more times?\]")


class Notebook:
    """Runs cells, each with the state that those before it left, and gives the value of the last line of each."""

    def __init__(self, session: Session) -> None:
        """`session` has not begun."""
        self._session = session
        self._cells: dict[int, Cell] = {}

    def run(self, cell: str, **options: Unpack[PartOptions]) -> Execution:
        """Run the next cell; raises as `Session.run`."""
        self._note(cell)
        options["value"] = True
        return self._shown(self._session.run(cell, **options))

    async def run_async(self, cell: str, **options: Unpack[PartOptions]) -> Execution:
        """`run`, for coroutines."""
        self._note(cell)
        options["value"] = True
        return self._shown(await self._session.run_async(cell, **options))

    def _note(self, cell: str) -> None:
        self._cells[self._session.parts + 1] = Cell(cell)

    def _shown(self, outcome: Execution) -> Execution:
        if outcome.traceback is None:
            return outcome
        text = notebook_traceback(outcome.traceback, self._cells).removesuffix("\n")
        printed = outcome.traceback if outcome.traceback.endswith("\n") else f"{outcome.traceback}\n"
        before = outcome.stderr.removesuffix(printed)
        stderr = outcome.stderr if before == outcome.stderr else f"{before}{text}\n"
        return replace(outcome, traceback=text, stderr=stderr)


def notebook_traceback(traceback: str, cells: Mapping[int, Cell]) -> str:
    """A traceback of CPython's as IPython shows it; as it is, if it has a form that is not known here.

    Args:
        traceback: of a part of a session.
        cells: the session's parts, by their numbers.
    """
    if len(traceback) > _LONGEST:
        return traceback
    pieces = _CHAINED.split(traceback.rstrip("\n"))
    try:
        sections = pieces[::2]
        shown = [_exception(section, cells, 2 if section is sections[-1] else 1) for section in sections]
    except (IndexError, KeyError, MemoryError, RecursionError, SyntaxError, ValueError):
        return traceback  # written by the program itself, or of source that is too long or not of this Python
    if None in shown:
        return traceback
    texts = [shown[0] or ""]
    for words, text in zip(pieces[1::2], shown[1:], strict=True):
        texts += [f"{words}:", text or ""]
    whole = "\n\n".join(texts)
    return whole if whole.startswith("  Cell") else f"{'-' * _WIDTH}\n{whole}"


def _exception(section: str, cells: Mapping[int, Cell], around: int) -> str | None:
    """One exception of a chain, with so many pieces around each line; None if its text is in no form that is known."""
    lines = section.split("\n")
    if place := _FRAME.fullmatch(lines[0]):  # that of a syntax error
        return "\n".join([f"  Cell In[{place[1] or 1}], line {place[2]}", *lines[1:]])
    if lines[0] != f"{_HEAD}:":
        return None
    end = next((number for number, line in enumerate(lines[1:], 1) if not line.startswith("  ")), len(lines))
    if end == len(lines):
        return None
    frames = _frames(lines[1:end], cells, around)
    kind, _, message = "\n".join(lines[end:]).partition(": ")
    name = kind.rpartition(".")[2]
    return "\n\n".join(
        ["\n".join([name + _HEAD.rjust(_WIDTH - len(name)), *frames[:1]]), *frames[1:], f"{name}: {message}"]
    )


def _frames(lines: list[str], cells: Mapping[int, Cell], around: int) -> list[str]:
    """The frames in cells; of those that repeat the first two and the last, and how many are left out."""
    frames: list[str] = []
    called = ""
    for line in lines:
        if frame := _FRAME.fullmatch(line):
            number, place, function = int(frame[1] or 1), int(frame[2]), frame[3] or "<module>"
            frames.append(_frame(number, place, function, cells[number], around))
            called = f"{function} at line {place}"
        elif more := _REPEATED.fullmatch(line):
            frames[-1:] = [f"    [... skipping similar frames: {called} ({more[1]} times)]", frames[-1]]
    return frames


def _frame(number: int, line: int, function: str, cell: Cell, around: int) -> str:
    head = f"Cell In[{number}], line {line}"
    if function != "<module>":
        head += f", in {cell.signature(line, function)}"
    return "\n".join([head, *cell.around(line, function, around)])
