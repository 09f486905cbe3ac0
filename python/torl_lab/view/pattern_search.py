"""`python -m torl_lab.view.pattern_search PARENT`: search lines of trajectory files for a regular expression.

A separate process, because a regular expression may take forever, and blocks all threads of its process. The first
message is the expression; each further one is a batch `[[path, offset, length], ...]`, and is answered by the positions
in the batch whose response matches.
"""

import os
import re
from contextlib import suppress
from importlib import import_module
from itertools import groupby

from msgspec import Struct
from msgspec.json import decode

from torl.base.inputs import open_file
from torl.base.runtime.processes.children import JsonParent


def main() -> None:
    """Answer batches until the input ends."""
    parent = JsonParent()
    requests = parent.requests()
    expression = re.compile(next(requests))
    for batch in requests:
        parent.send(_matching(expression, batch))


def _matching(expression: re.Pattern[str], batch: list[tuple[str, int, int]]) -> list[int]:
    found: list[int] = []
    for path, lines in groupby(enumerate(batch), lambda each: each[1][0]):
        with suppress(OSError), open_file(path) as file:  # replaced by a resumed run
            for index, (_, offset, length) in lines:
                if expression.search(_text_of(os.pread(file.fileno(), length, offset))):
                    found.append(index)
    return found


class _Response(Struct):
    text: str


def _text_of(line: bytes) -> str:
    with suppress(ValueError):
        return decode(line, type=_Response).text
    with suppress(ValueError):  # of another program, or damaged; the import takes longer than most searches
        text: str = import_module("torl.run.records.rows").parse_row(line, _Response).text
        return text
    return ""


if __name__ == "__main__":
    main()
