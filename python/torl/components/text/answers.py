r"""The final answer of a response: the last complete \boxed{...} of its sampled text, or the last <answer>."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torl.base.types import ALTERNATIVE


def shown_reference(reference: str) -> str:
    """Return a reference for a reader, with "or" between alternatives."""
    return reference.replace(ALTERNATIVE, " or ")


# An escaped character, the start of a box, or a brace. "\\boxed" in the text of a program counts as a box too, as in
# the papers' graders; \fbox and "\boxed 5" without braces do not.
_MARKS = re.compile(r"\\boxed\s*\{|\\(?!\\boxed\s*\{).|[{}]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class BoxedAnswer:
    r"""The content of a box, stripped, and the position of the whole box in the text, `\boxed` included."""

    text: str
    """The content, without surrounding whitespace."""
    start: int
    """Index of the first character of the box."""
    stop: int
    """Index after the last character of the box."""


def find_answer(text: str) -> BoxedAnswer | None:
    r"""Find the last complete \boxed{...}: of all boxes whose brace is closed, the one that begins last.

    Braces are matched, escaped ones (`\{`) skipped. Of nested boxes the inner one begins last. A box that a length
    limit cut off does not count. The time is linear in the length of any text.

    Args:
        text: Sampled text of a response (`Trajectory.sampled_text`), without observations.
    """
    last = None
    for box in find_boxes(text):
        last = box
    return last


def find_boxes(text: str) -> Iterator[BoxedAnswer]:
    r"""Yield the complete boxes without a complete box inside them, in the order in which they begin."""
    first = text.find("\\boxed")  # braces before it cannot close a box
    if first < 0:
        return
    open_braces: list[tuple[int, int] | None] = []  # (start of the box, start of its content), None for plain braces
    last_start = -1
    for mark in _MARKS.finditer(text, first):
        symbol = mark.group()
        if symbol.startswith("\\boxed"):
            open_braces.append(mark.span())
        elif symbol == "{":
            open_braces.append(None)
        elif symbol == "}" and open_braces:
            box_opened = open_braces.pop()
            if box_opened is not None and box_opened[0] > last_start:
                last_start, content = box_opened
                yield BoxedAnswer(text[content : mark.start()].strip(), last_start, mark.end())


def find_tagged_answer(text: str) -> str | None:
    """Return the text in the last complete <answer> tags, without surrounding whitespace, or None."""
    *closed, _ = text.split("</answer>")
    last = next((piece for piece in reversed(closed) if "<answer>" in piece), None)
    return None if last is None else last.partition("<answer>")[2].strip()
