"""The parts of a session as cells of a notebook: the display of values, `Out` and `_`, and a top-level `await`.

The first part of a notebook calls `begin`, and its settings stay with the session.
"""

import ast
import asyncio
import builtins
import io
import sys
import tokenize

import _torl_driver
import _torl_pretty

_LAST = ("_", "__", "___")
_NOT_LAST = (tokenize.ENDMARKER, tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT)

_execute = _torl_driver.execute_part


def begin():
    """Make the session a notebook without cells."""
    notebook = _Notebook(sys.modules["__main__"].__dict__)
    _torl_driver.execute_part = notebook.execute
    _torl_driver.Shown = lambda: _Shown(notebook)
    _torl_driver.more_flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    _torl_driver.run_coroutine = notebook.run_coroutine
    builtins.display = _display
    # The width in a notebook; elsewhere it fits the terminal.
    sys.modules["pandas"].options.display.max_columns = 20


def _display(*values, **options):
    for value in values:
        print(_torl_pretty.pretty(value))


class _Notebook:
    def __init__(self, names):
        del names["__file__"]
        self._names = names
        self._out = {}
        self._last = ("", "", "")  # the contents of `_`, `__` and `___`
        self._loop = None
        names.update(zip(_LAST, self._last, strict=True), Out=self._out)

    def execute(self, source, main, name, value_wanted):
        """Run a cell and return the text of its last line's value, unless it ends in a semicolon."""
        self._names.pop("__warningregistry__", None)  # each cell warns again
        try:
            quiet = b";" in source and _ends_in_semicolon(source)
            return _execute(source, main, name, value_wanted and not quiet)
        except SyntaxError as error:
            if str(error.text).lstrip().startswith(("%", "!")):
                error.add_note("Magics (%) and shell commands (!) are not available: write Python.")
            raise

    def run_coroutine(self, code, names):
        """Run a statement of a cell with a top-level `await`. Its loop stays, with the tasks that have been created."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()

        async def run():
            pending = eval(code, names)
            if pending is not None:
                await pending

        task = self._loop.create_task(run())
        try:
            self._loop.run_until_complete(task)
        finally:
            task.cancel()  # no effect after its end

    def keep(self, value):
        """Store a value in `Out` and in `_`, which stays if the program has assigned to one of the three names."""
        if value is self._out:
            return
        names, number = self._names, _torl_driver._blocks
        ours = all(names.get(name, last) is last for name, last in zip(_LAST, self._last, strict=True))
        self._last = (value, *self._last[:2])
        if ours:
            names.update(zip(_LAST, self._last, strict=True))
        names[f"_{number}"] = self._out[number] = value


class _Shown:
    """A display hook that stores the text of a value and keeps the value, unless it is None."""

    text = None

    def __init__(self, notebook):
        self._notebook = notebook

    def __call__(self, value):
        if value is None:
            return
        try:
            self.text = _torl_pretty.pretty(value)
        finally:
            self._notebook.keep(value)


def _ends_in_semicolon(source):
    try:
        tokens = list(tokenize.tokenize(io.BytesIO(source).readline))
    except (tokenize.TokenError, SyntaxError):  # reported by the compiler
        return False
    last = next((token for token in reversed(tokens) if token.type not in _NOT_LAST), None)
    return last is not None and last.string == ";"
