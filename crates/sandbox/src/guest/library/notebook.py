"""The parts of a session as IPython cells: `In` and `Out`, the display of values, the names of files, and exits.

The first part of a notebook calls `begin`, and its settings stay with the session. Source of all texts: IPython 8.
"""

import ast
import asyncio
import builtins
import hashlib
import io
import linecache
import sys
import tokenize

import _torl_driver
import _torl_magics
import _torl_pretty

# The path that `pip` would give to the file that warns of an exit, and the line that warns.
_SHELL = "/usr/local/lib/python3.15/site-packages/IPython/core/interactiveshell.py"
_EXIT_LINE = 3516
_EXIT = """warn("To exit: use 'exit', 'quit', or Ctrl-D.", stacklevel=1)"""
_LAST = ("_", "__", "___")
_NOT_LAST = (tokenize.ENDMARKER, tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT)

_execute = _torl_driver.execute_part
_described = _torl_driver.described


def begin():
    """Make the session a notebook without cells."""
    notebook = _Notebook(sys.modules["__main__"].__dict__)
    _torl_driver.execute_part = notebook.execute
    _torl_driver.Shown = notebook.displayed
    _torl_driver.report_exit = notebook.report_exit
    _torl_driver.described = _described_as_there
    _torl_driver.more_flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    _torl_driver.run_coroutine = notebook.run_coroutine
    shell = _torl_magics.Shell(notebook.names)
    builtins.display, builtins.get_ipython = _display, lambda: shell
    # The width in a notebook; elsewhere it fits the terminal.
    sys.modules["pandas"].options.display.max_columns = 20


def skip(cell):
    """Let the cell that calls this stand for another one, which was stopped and whose effects are lost."""
    _torl_driver.execute_part.__self__.rename_cell(cell)


def _display(*values, **options):
    for value in values:
        print(_torl_pretty.pretty(value))


class _Notebook:
    def __init__(self, names):
        del names["__file__"]
        self.names = names
        self._in, self._out = [""], {}
        self._last = ("", "", "")  # the contents of `_`, `__` and `___`
        self._quiet = False
        self._broken = self._loop = None
        self._exit_names = {"__name__": "IPython.core.interactiveshell"}
        names.update(In=self._in, Out=self._out, _ih=self._in, _oh=self._out, _dh=[_torl_driver.DIRECTORY])
        names.update(zip(_LAST, self._last, strict=True), _i="", _ii="", _iii="")

    def execute(self, source, main, name, value_wanted):
        """Run a cell and return the text of its last line's value."""
        cell = source.decode("utf-8", "replace")
        self.begin_cell(cell)
        digest = hashlib.sha1((cell if cell.endswith("\n") else f"{cell}\n").encode("utf-8", "replace")).hexdigest()
        text = _execute(source, main, f"<ipython-input-{self._number}-{digest[:12]}>", value_wanted)
        if self._broken is not None:
            raise self._broken
        return text

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

    @property
    def _number(self):
        return len(self._in) - 1

    def begin_cell(self, cell):
        names = self.names
        self._broken = None
        self._quiet = ";" in cell and _ends_in_semicolon(cell)
        names.pop("__warningregistry__", None)
        # Compiled once more under another name, as IPython does to detect `await`: syntax warnings appear twice.
        try:
            compile(cell, "<>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            pass
        self._in.append(cell.rstrip("\n"))
        names.update(_i=self._in[-2], _ii=names.get("_i", ""), _iii=names.get("_ii", ""))
        names[f"_i{self._number}"] = self._in[-1]

    def rename_cell(self, cell):
        self._in[-1] = self.names[f"_i{self._number}"] = cell.rstrip("\n")

    def displayed(self):
        """A display hook that stores the text of the value."""
        return _Displayed(self)

    def show(self, value):
        """Return the text of a value and store it in `Out`; None if the cell ends in a semicolon, or display fails."""
        if value is None or self._quiet:
            return None
        text = None
        try:
            text = _torl_pretty.pretty(value)
        except Exception as error:
            self._broken = error
        if value is not self._out:
            self._keep(value)
        return text

    def _keep(self, value):
        names = self.names
        theirs = any(name in names and names[name] is not last for name, last in zip(_LAST, self._last, strict=True))
        self._last = (value, *self._last[:2])
        if not theirs and not hasattr(builtins, "_"):
            names.update(zip(_LAST, self._last, strict=True))
        names[f"_{self._number}"] = self._out[self._number] = value

    def report_exit(self, code):
        """End the cell, but not the notebook, on an exit with any code."""
        if _SHELL not in linecache.cache:
            lines = ["\n"] * (_EXIT_LINE - 1) + [f"{_EXIT}\n"]
            linecache.cache[_SHELL] = (len(lines), None, lines, _SHELL)
            exec("from warnings import warn", self._exit_names)
        exec(compile("\n" * (_EXIT_LINE - 1) + _EXIT, _SHELL, "exec", dont_inherit=True), self._exit_names)
        line = "SystemExit" if code is None else f"SystemExit: {code}"
        text = f"An exception has occurred, use %tb to see the full traceback.\n\n{line}\n"
        return _torl_driver.report_error("SystemExit", line.partition("\n")[0], text)


class _Displayed:
    text = None

    def __init__(self, notebook):
        self._notebook = notebook

    def __call__(self, value):
        self.text = self._notebook.show(value)


def _ends_in_semicolon(cell):
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(cell).readline))
    except (tokenize.TokenError, SyntaxError):  # reported by the compiler
        return False
    last = next((token for token in reversed(tokens) if token.type not in _NOT_LAST), None)
    return last is not None and last.string == ";"


def _described_as_there(kind, error):
    """Remove parts that IPython does not show: notes, the exceptions in a group, suggestions for a wrong name."""
    rendered = _described(kind, error)
    for one, its_error in _torl_driver.chain(rendered, error):
        one.exceptions = one.__notes__ = None
        if isinstance(its_error, _torl_magics.UsageError):
            one.stack = None
        if isinstance(its_error, SyntaxError):
            _point_at_one_column(one)
            continue
        try:
            one._str = str(its_error)
        except Exception:
            pass  # the message already states that there is no text
    return rendered


def _point_at_one_column(rendered):
    text = rendered.text
    if text is None:
        return
    indentation = len(text) - len(text.lstrip())
    rendered.text = text.strip()
    if rendered.offset is not None:
        rendered.offset = len(text[indentation : rendered.offset - 1]) + 1  # at the end if it is 0
        rendered.end_lineno, rendered.end_offset = rendered.lineno, rendered.offset + 1
    rendered._exc_metadata = None  # the source, for suggestions
