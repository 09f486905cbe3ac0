"""Tracebacks of CPython's in the form that IPython gives them.

Frames of libraries are left out, as everywhere in the sandbox, and so are those of code that is in no cell.
"""

import re
from collections.abc import Mapping

from torl.sandbox.cells import Cell

_LONGEST = 16 << 10  # letters of a traceback: they come from the program, and reading them takes time
_WIDTH = 75
_HEAD = "Traceback (most recent call last)"
_CHAINED = re.compile(
    r"\n\n(The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):\n\n"
)
_FRAME = re.compile(r'  File "<ipython-input-(\d+)-[0-9a-f]{12}>", line (\d+)(?:, in (.+))?')
_REPEATED = re.compile(r"  \[Previous line repeated (\d+) more times?\]")
_PLACE = re.compile(r'  File "(.*)", line (\d+)')  # of a syntax error: it is in no function


def notebook_traceback(traceback: str, cells: Mapping[int, Cell]) -> str:
    """A traceback of CPython's as IPython shows it; as it is, if it has a form that is not known here.

    Args:
        traceback: of a cell.
        cells: those of the notebook, by their numbers.
    """
    if len(traceback) > _LONGEST:
        return traceback
    pieces = _CHAINED.split(traceback.rstrip("\n"))
    try:
        sections = pieces[::2]
        shown = [_exception(section, cells, 2 if section is sections[-1] else 1) for section in sections]
        if len(sections) == 1 and (syntax := _syntax_error(sections[0], cells)):
            return syntax
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
        return "\n".join([f"  Cell In[{place[1]}], line {place[2]}", *lines[1:]])
    end = _end_of_frames(lines)
    if end is None:
        return None
    frames = _frames(lines[1:end], cells, around)
    kind, _, message = "\n".join(lines[end:]).partition(": ")
    name = kind.rpartition(".")[2]
    return "\n\n".join(
        ["\n".join([name + _HEAD.rjust(_WIDTH - len(name)), *frames[:1]]), *frames[1:], f"{name}: {message}"]
    )


def _end_of_frames(lines: list[str]) -> int | None:
    """Where the exception's own text begins; None if this is no traceback."""
    if lines[0] != f"{_HEAD}:":
        return None
    return next((number for number, line in enumerate(lines[1:], 1) if not line.startswith("  ")), None)


def _syntax_error(section: str, cells: Mapping[int, Cell]) -> str | None:
    """A syntax error of code that a cell compiles, which has a form of its own; None if it is another exception."""
    lines = section.split("\n")
    end = _end_of_frames(lines)
    if end is None:
        return None
    start = next((number for number in range(end - 1, 0, -1) if lines[number].startswith("  File ")), 0)
    place = _PLACE.fullmatch(lines[start])
    if place is None:
        return None
    found = [found for line in lines[1:start] if (found := _FRAME.fullmatch(line))]
    frames = [_frame_in_short(int(one[1]), int(one[2]), one[3], cells) for one in found]
    error = [f"  File {place[1]}:{place[2]}", *lines[start + 1 :]]
    return "\n\n".join([f"{_HEAD}:", *frames, "\n".join(error)])


def _frame_in_short(number: int, line: int, function: str, cells: Mapping[int, Cell]) -> str:
    where = "" if function == "<module>" else f" in {function}"
    return f"  Cell In[{number}], line {line}{where}\n    {cells[number].lines[line - 1].strip()}"


def _frames(lines: list[str], cells: Mapping[int, Cell], around: int) -> list[str]:
    """The frames in cells; of those that repeat the first two and the last, and how many are left out."""
    frames: list[str] = []
    called = ""
    for line in lines:
        if frame := _FRAME.fullmatch(line):
            number, place, function = int(frame[1]), int(frame[2]), frame[3] or "<module>"
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
