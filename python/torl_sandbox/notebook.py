"""Notebooks: sessions that show the value of a cell's last line as a notebook does.

    notebook = Notebook(pool.session())
    notebook.run("x = 'a'\\n[x] * 50").value  # 50 lines

The guest's module `_torl_notebook` displays the values. A cell fails as a part of a session does.
"""

import re
from typing import Unpack

from torl_sandbox.execution import Execution
from torl_sandbox.figures import SAVE_SHOWN
from torl_sandbox.options import CellOptions
from torl_sandbox.session import Session

_BEGIN = f"__import__('_torl_notebook').begin()\n{SAVE_SHOWN}"
_INDENTATION = re.compile(r"[ \t]*")


class Notebook:
    """A notebook, whose cells share their state. The outcome of a cell has the value of its last line."""

    def __init__(self, session: Session) -> None:
        """Use a session without any runs."""
        self._session = session
        self._begun = False

    def run(self, cell: str, **options: Unpack[CellOptions]) -> Execution:
        """Run the next cell, with the exceptions of `Session.run`."""
        if not self._begun:
            start = self._session.run(_BEGIN)
            if not start.ok:
                return start
            self._begun = True
        options["value"] = True
        return self._session.run(dedented(cell), **options)

    async def run_async(self, cell: str, **options: Unpack[CellOptions]) -> Execution:
        """Run the next cell as a coroutine."""
        if not self._begun:
            start = await self._session.run_async(_BEGIN)
            if not start.ok:
                return start
            self._begun = True
        options["value"] = True
        return await self._session.run_async(dedented(cell), **options)


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
