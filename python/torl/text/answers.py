r"""The final answer of a response: the last complete \boxed{...} of its sampled text."""

import re
from dataclasses import dataclass

# An escaped character, the start of a box, or a brace. "\\boxed" in the text of a program counts as a box too,
# as it does in the papers' graders; \fbox and the brace-less "\boxed 5" do not.
_MARKS = re.compile(r"\\boxed\s*\{|\\(?!\\boxed\s*\{).|[{}]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class BoxedAnswer:
    r"""What stands in a box, stripped, and the box's own place [start, stop) in the text, `\boxed` included."""

    text: str
    start: int
    stop: int


def find_answer(text: str) -> BoxedAnswer | None:
    r"""Find the last complete \boxed{...}: of all boxes whose brace is closed, the one that begins last.

    Braces are matched, escaped ones (`\{`) skipped; of nested boxes the inner one begins last and wins. A box
    that a length limit cut off does not count, so an earlier complete one stands. Linear in the text, whatever
    it holds.

    Args:
        text: the sampled text of a response (`Trajectory.sampled_text`), never one with observations in it.
    """
    open_braces: list[tuple[int, int] | None] = []  # (start of the box, start of its content), None for plain braces
    last: BoxedAnswer | None = None
    for mark in _MARKS.finditer(text):
        symbol = mark.group()
        if symbol.startswith("\\boxed"):
            open_braces.append(mark.span())
        elif symbol == "{":
            open_braces.append(None)
        elif symbol == "}" and open_braces:
            box_opened = open_braces.pop()
            if box_opened is not None and (last is None or box_opened[0] > last.start):
                start, content = box_opened
                last = BoxedAnswer(text[content : mark.start()].strip(), start, mark.end())
    return last
