"""Notebooks: sessions that show the value of a cell's last line as a notebook does.

    notebook = Notebook(pool.session())
    notebook.run("x = 'a'\\n[x] * 50").value  # 50 lines

The guest's module `_torl_notebook` displays the values. A cell fails as a part of a session does.
"""

import re
from typing import Unpack

from torl_sandbox.execution import Execution
from torl_sandbox.options import CellOptions
from torl_sandbox.session import Session

DIRECTORY = ".figures"
"""Directory of the pictures of figures, in the working directory of a run."""

SAVE_SHOWN = f"""
def _save_shown_figures():
    import _torl_driver, _torl_imports, os
    directory = os.path.join(_torl_driver.DIRECTORY, {DIRECTORY!r})

    def show(*args, **kwargs):
        import matplotlib.pyplot as plt
        os.makedirs(directory, exist_ok=True)
        for number in plt.get_fignums():
            figure = plt.figure(number)
            path = os.path.join(directory, f"{{len(os.listdir(directory)) + 1}}.png")
            figure.savefig(path, bbox_inches="tight", metadata={{"Title": repr(figure)}})
        plt.close("all")

    def execute_pyplot(module, execute):
        execute()
        module.show = show

    _torl_imports.Finder.modules["matplotlib.pyplot"] = execute_pyplot
    _torl_driver._blocks = 0  # tracebacks number the parts of the program only

_save_shown_figures()
del _save_shown_figures
"""
"""Code after which `plt.show()` saves the open figures of a session as PNG files, and closes them.

This is how a notebook displays figures. Without it, `plt.show()` has no effect, as on a machine without a screen.
"""

_BEGIN = f"__import__('_torl_notebook').begin()\n{SAVE_SHOWN}"
_INDENTATION = re.compile(r"[ \t]*")
_TITLE = re.compile(rb"tEXtTitle\0(<Figure [^>]*>)")


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


def is_picture(path: str) -> bool:
    """Whether a file of an outcome is the picture of a figure that was shown."""
    return path.startswith(f"{DIRECTORY}/") and path.endswith(".png")


def figure_text(picture: bytes) -> str:
    """Return the text of the figure in a picture, such as "<Figure size 640x480 with 1 Axes>"."""
    found = _TITLE.search(picture)
    return found[1].decode() if found else "<Figure>"
