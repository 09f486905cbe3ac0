"""Notebooks: sessions with the values, warnings and tracebacks of IPython.

    notebook = Notebook(pool.session())
    notebook.run("1 / 0").traceback  # "...Cell In[1], line 1\\n----> 1 1 / 0\\n\\nZeroDivisionError: division by zero"

The guest runs the cells as IPython does (its module `_torl_notebook`). Its tracebacks have CPython's form and are
rewritten here. As everywhere in the sandbox, frames of libraries are omitted, and frames outside of cells as well.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Unpack

from torl_sandbox.cells import Cell
from torl_sandbox.execution import Execution
from torl_sandbox.figures import SAVE_SHOWN
from torl_sandbox.magics import python_source
from torl_sandbox.options import CellOptions
from torl_sandbox.session import Session

_BEGIN = f"__import__('_torl_notebook').begin()\n{SAVE_SHOWN}"
_SKIP = "__import__('_torl_notebook').skip({!r})"
_INDENTATION = re.compile(r"[ \t]*")
_MAX_TRACEBACK = 16 << 10  # characters; untrusted text takes time to parse
_MAX_REWRITTEN = 8 * _MAX_TRACEBACK  # each of many frames may show thousands of lines
_WIDTH = 75
_HEAD = "Traceback (most recent call last)"
_CHAINED = re.compile(
    r"\n\n(The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):\n\n"
)
_FRAME = re.compile(r'  File "<ipython-input-(\d+)-[0-9a-f]{12}>", line (\d+)(?:, in (.+))?')
_REPEATED = re.compile(r"  \[Previous line repeated (\d+) more times?\]")
_LOCATION = re.compile(r'  File "(.*)", line (\d+)')  # of a syntax error, which is outside of functions


class Notebook:
    """A notebook, whose cells share their state. The outcome of a cell has the value of its last line."""

    def __init__(self, session: Session) -> None:
        """Use a session without any runs."""
        self._session = session
        self._cells: dict[int, Cell] = {}
        self._before = [_BEGIN]  # parts to run before the next cell

    def run(self, cell: str, **options: Unpack[CellOptions]) -> Execution:
        """Run the next cell, with the exceptions of `Session.run`."""
        while self._before:
            start = self._session.run(self._before[0])
            if not start.ok:
                return start
            del self._before[0]
        options["value"] = True
        text, parts = self._next(cell), self._session.parts
        return self._finished(text, parts, self._session.run(text, **options))

    async def run_async(self, cell: str, **options: Unpack[CellOptions]) -> Execution:
        """Run the next cell as a coroutine."""
        while self._before:
            start = await self._session.run_async(self._before[0])
            if not start.ok:
                return start
            del self._before[0]
        options["value"] = True
        text, parts = self._next(cell), self._session.parts
        return self._finished(text, parts, await self._session.run_async(text, **options))

    def _next(self, cell: str) -> str:
        """Return the cell as it runs, numbered by earlier parts, the first of which starts the notebook."""
        text = python_source(dedented(cell))
        self._cells[self._session.parts] = Cell(text)
        return text

    def _finished(self, text: str, parts: int, outcome: Execution) -> Execution:
        """Rewrite the traceback of a cell. A cell whose state was lost keeps its number, as in a kernel."""
        if self._session.parts == parts:
            self._before.append(_SKIP.format(text))
        return self._rewritten(outcome)

    def _rewritten(self, outcome: Execution) -> Execution:
        if outcome.traceback is None:
            return outcome
        text = notebook_traceback(outcome.traceback, self._cells).removesuffix("\n")
        printed = outcome.traceback if outcome.traceback.endswith("\n") else f"{outcome.traceback}\n"
        before = outcome.stderr.removesuffix(printed)
        stderr = outcome.stderr if before == outcome.stderr else f"{before}{text}\n"
        return replace(outcome, traceback=text, stderr=stderr)


def dedented(cell: str) -> str:
    """Remove leading empty lines and the first line's indentation, as IPython does before it compiles a cell."""
    first = len(cell) - len(cell.lstrip())
    if first == len(cell):
        return cell
    text = cell[max(cell.rfind(end, 0, first) for end in "\r\n") + 1 :]
    found = _INDENTATION.match(text)
    if not found or not found[0]:
        return text
    # Not line by line, which takes seconds for an untrusted cell of millions of lines.
    return text.removeprefix(found[0]).replace(f"\n{found[0]}", "\n").replace(f"\r{found[0]}", "\r")


def notebook_traceback(traceback: str, cells: Mapping[int, Cell]) -> str:
    """Convert a traceback of CPython to IPython's form. Tracebacks in unknown forms are returned unchanged.

    Args:
        traceback: Traceback of a cell.
        cells: Cells of the notebook by number.
    """
    if len(traceback) > _MAX_TRACEBACK:
        return traceback
    pieces = _CHAINED.split(traceback.rstrip("\n"))
    try:
        sections = pieces[::2]
        texts, room = list[str | None](), _MAX_REWRITTEN
        for section in sections:
            texts.append(_exception(section, cells, 2 if section is sections[-1] else 1, room))
            room -= len(texts[-1] or "")
        if len(sections) == 1 and (syntax := _syntax_error(sections[0], cells)):
            return syntax
    except (IndexError, KeyError, MemoryError, RecursionError, SyntaxError, ValueError):
        return traceback  # written by the program itself, or the source is of another Python version, or it is too long
    if None in texts:
        return traceback
    chain = [texts[0] or ""]
    for relation, text in zip(pieces[1::2], texts[1:], strict=True):
        chain += [f"{relation}:", text or ""]
    joined = "\n\n".join(chain)
    return joined if joined.startswith("  Cell") else f"{'-' * _WIDTH}\n{joined}"


def _exception(section: str, cells: Mapping[int, Cell], around: int, room: int) -> str | None:
    """Convert an exception of a chain, with `around` pieces around each line. None if its form is unknown.

    Raises:
        ValueError: The frames have more than `room` characters.
    """
    lines = section.split("\n")
    if frame := _FRAME.fullmatch(lines[0]):  # a syntax error
        return "\n".join([f"  Cell In[{frame[1]}], line {frame[2]}", *lines[1:]])
    end = _end_of_frames(lines)
    if end is None:
        return None
    frames = _frames(lines[1:end], cells, around, room)
    kind, _, message = "\n".join(lines[end:]).partition(": ")
    name = kind.rpartition(".")[2]
    return "\n\n".join(
        ["\n".join([name + _HEAD.rjust(_WIDTH - len(name)), *frames[:1]]), *frames[1:], f"{name}: {message}"]
    )


def _end_of_frames(lines: list[str]) -> int | None:
    """Return the line after the frames, or None if the text is not a traceback."""
    if lines[0] != f"{_HEAD}:":
        return None
    return next((number for number, line in enumerate(lines[1:], 1) if not line.startswith("  ")), None)


def _syntax_error(section: str, cells: Mapping[int, Cell]) -> str | None:
    """Convert a syntax error of code that a cell compiles, which has a special form. None for other exceptions."""
    lines = section.split("\n")
    end = _end_of_frames(lines)
    if end is None:
        return None
    start = next((number for number in range(end - 1, 0, -1) if lines[number].startswith("  File ")), 0)
    location = _LOCATION.fullmatch(lines[start])
    if location is None:
        return None
    found = [found for line in lines[1:start] if (found := _FRAME.fullmatch(line))]
    frames = [_short_frame(int(one[1]), int(one[2]), one[3], cells) for one in found]
    error = [f"  File {location[1]}:{location[2]}", *lines[start + 1 :]]
    return "\n\n".join([f"{_HEAD}:", *frames, "\n".join(error)])


def _short_frame(number: int, line: int, function: str, cells: Mapping[int, Cell]) -> str:
    where = "" if function == "<module>" else f" in {function}"
    return f"  Cell In[{number}], line {line}{where}\n    {cells[number].lines[line - 1].strip()}"


def _frames(lines: list[str], cells: Mapping[int, Cell], around: int, room: int) -> list[str]:
    """Convert the frames in cells. Of repeated frames, the first two, their number and the last are kept."""
    frames: list[str] = []
    called = ""
    for line in lines:
        if frame := _FRAME.fullmatch(line):
            number, line_number, function = int(frame[1]), int(frame[2]), frame[3] or "<module>"
            frames.append(_frame(number, line_number, function, cells[number], around))
            room -= len(frames[-1])
            if room < 0:
                raise ValueError(f"the traceback would exceed {_MAX_REWRITTEN} characters")
            called = f"{function} at line {line_number}"
        elif more := _REPEATED.fullmatch(line):
            frames[-1:] = [f"    [... skipping similar frames: {called} ({more[1]} times)]", frames[-1]]
    return frames


def _frame(number: int, line: int, function: str, cell: Cell, around: int) -> str:
    head = f"Cell In[{number}], line {line}"
    if function != "<module>":
        head += f", in {cell.signature(line, function)}"
    return "\n".join([head, *cell.around(line, function, around)])
