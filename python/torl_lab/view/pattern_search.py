"""`python -m torl_lab.view.pattern_search PARENT`: search lines of trajectory files for a regular expression.

A separate process, because a regular expression may take forever, and blocks all threads of its process. The first
message is the expression; each further one is a batch `[[path, offset, length], ...]`, and is answered by the positions
in the batch whose response matches.
"""

import os
import re
from contextlib import suppress
from importlib import import_module
from io import BufferedReader

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
    opened: tuple[str, BufferedReader] | None = None
    try:
        for index, (path, offset, length) in enumerate(batch):
            if opened is None or opened[0] != path:
                if opened is not None:
                    opened[1].close()
                    opened = None
                try:
                    opened = path, open_file(path)
                except OSError:
                    continue  # replaced by a resumed run
            line = os.pread(opened[1].fileno(), length, offset)
            if expression.search(_text_of(line)):
                found.append(index)
    finally:
        if opened is not None:
            opened[1].close()
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
