"""A session whose parts are shown as a notebook shows its cells: values, warnings and tracebacks are IPython's.

    notebook = Notebook(pool.session())
    notebook.run("1 / 0").traceback  # "...Cell In[1], line 1\\n----> 1 1 / 0\\n\\nZeroDivisionError: division by zero"

The guest runs the cells as IPython does (its module `_torl_notebook`), and tells of exceptions in CPython's form, which
is rewritten here.
"""

import re
from dataclasses import replace
from typing import Unpack

from torl.sandbox.cells import Cell
from torl.sandbox.execution import Execution
from torl.sandbox.options import CellOptions
from torl.sandbox.session import Session
from torl.sandbox.tracebacks import notebook_traceback

_BEGIN = "__import__('_torl_notebook').begin()"
_INDENTATION = re.compile(r"[ \t]*")


class Notebook:
    """Runs cells, each with the state that those before it left, and gives the value of the last line of each."""

    def __init__(self, session: Session) -> None:
        """`session` has not begun."""
        self._session = session
        self._cells: dict[int, Cell] = {}

    def run(self, cell: str, **options: Unpack[CellOptions]) -> Execution:
        """Run the next cell; raises as `Session.run`."""
        if not self._session.parts:
            begun = self._session.run(_BEGIN)
            if not begun.ok:
                return begun
        options["value"] = True
        return self._shown(self._session.run(self._next(cell), **options))

    async def run_async(self, cell: str, **options: Unpack[CellOptions]) -> Execution:
        """`run`, for coroutines."""
        if not self._session.parts:
            begun = await self._session.run_async(_BEGIN)
            if not begun.ok:
                return begun
        options["value"] = True
        return self._shown(await self._session.run_async(self._next(cell), **options))

    def _next(self, cell: str) -> str:
        """The cell as it runs. Its number is that of the parts before it: the first of them began the notebook."""
        text = transformed(cell)
        self._cells[self._session.parts] = Cell(text)
        return text

    def _shown(self, outcome: Execution) -> Execution:
        if outcome.traceback is None:
            return outcome
        text = notebook_traceback(outcome.traceback, self._cells).removesuffix("\n")
        printed = outcome.traceback if outcome.traceback.endswith("\n") else f"{outcome.traceback}\n"
        before = outcome.stderr.removesuffix(printed)
        stderr = outcome.stderr if before == outcome.stderr else f"{before}{text}\n"
        return replace(outcome, traceback=text, stderr=stderr)


def transformed(cell: str) -> str:
    """A cell as IPython compiles it: without empty lines at its beginning, and without its first line's indentation."""
    lines = cell.splitlines(keepends=True)
    first = next((number for number, line in enumerate(lines) if not line.isspace()), None)
    if first is None:
        return cell
    found = _INDENTATION.match(lines[first])
    return "".join(line.removeprefix(found[0] if found else "") for line in lines[first:])
