"""`get_ipython()` of a notebook: the magics and shell commands that cells use, or a line that says what to do instead.

Source of the texts: IPython 8.
"""

import ast
import contextlib
import inspect
import io
import os
import re
import runpy
import sys
import time

import _torl_display
import _torl_system

NO_PACKAGES = "packages cannot be installed: there is no network here"
_SILENT = ("autoreload", "colors", "config", "load_ext", "matplotlib", "pdb", "reload_ext", "xmode")
_INSTALLERS = ("conda", "mamba", "pip")
_PROGRAMS = ("bash", "cat", "cp", "less", "ll", "ls", "man", "mkdir", "more", "mv", "rm", "rmdir", "script", "sh", "sx", "system")
_RICH = {"html": "HTML", "javascript": "Javascript", "js": "Javascript", "latex": "Latex", "markdown": "Markdown", "svg": "SVG"}
_NOT_LISTED = ("In", "Out", "exit", "quit", "get_ipython", "open")
_OPTIONS = re.compile(r"(-[nrtcpq]\s*\d+\s+|-[qotc]+\s+)+")


class UsageError(Exception):
    """A magic that does not exist or is used wrongly. A notebook shows its text only."""


UsageError.__module__ = "builtins"


def format_time(seconds):
    """Return a duration with three significant digits."""
    if seconds >= 60:
        rest, parts = int(seconds), []
        for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
            value, rest = divmod(rest, size)
            if value:
                parts.append(f"{value}{unit}")
        return " ".join(parts)
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


class Shell:
    """The shell of a notebook."""

    def __init__(self, names):
        self.user_ns = names

    def run_line_magic(self, name, line):
        if name in _SILENT:
            return None
        if name in _INSTALLERS:
            print(NO_PACKAGES, file=sys.stderr)
            return None
        if name in _PROGRAMS:
            return self.system(f"{name} {line}".rstrip())
        magic = getattr(self, f"_{name}", None)
        if magic is None:
            raise UsageError(f"Line magic function `%{name}` not found.")
        return magic(line)

    def run_cell_magic(self, name, line, cell):
        if name in ("time", "timeit"):
            return getattr(self, f"_{name}")(cell if name == "time" else f"{line}\n{cell}")
        if name in _PROGRAMS:
            return self.system(cell.strip().partition("\n")[0])
        if name in _RICH:
            return _torl_display.display(_torl_display.KINDS[_RICH[name]](cell))
        magic = getattr(self, f"_cell_{name}", None)
        if magic is None:
            raise UsageError(f"Cell magic `%%{name}` not found.")
        return magic(line.strip(), cell)

    def system(self, command):
        words = command.split()
        what = NO_PACKAGES if {"install", *_INSTALLERS[:2]} & set(words[:4]) else _torl_system.NO_PROCESSES
        print(f"cannot run {command!r}: {what}", file=sys.stderr)

    def getoutput(self, command):
        self.system(command)
        return []

    def _timed(self, code):
        """Run code; return the value of a last expression and the seconds on the virtual clock."""
        tree = ast.parse(code.strip())
        last = tree.body.pop().value if tree.body and isinstance(tree.body[-1], ast.Expr) else ast.Constant(None)
        first = compile(tree, "<timed exec>", "exec")
        last = compile(ast.fix_missing_locations(ast.Expression(last)), "<timed eval>", "eval")
        start = time.perf_counter()
        exec(first, self.user_ns)
        value = eval(last, self.user_ns)
        return value, time.perf_counter() - start

    def _time(self, code):
        value, seconds = self._timed(code)
        shown = format_time(seconds)
        print(f"CPU times: user {shown}, sys: 0 ns, total: {shown}\nWall time: {shown}")
        return value

    def _timeit(self, code):
        _, seconds = self._timed(_OPTIONS.sub("", code.strip(), count=1) or "pass")
        print(f"{format_time(seconds)} per loop (1 run, 1 loop: the clock is virtual, and shows roughly the work done)")

    def _cd(self, path):
        os.chdir(path.strip() or os.environ["HOME"])
        print(os.getcwd())

    def _pwd(self, line):
        return os.getcwd()

    def _env(self, line):
        name, _, value = map(str.strip, line.partition("=" if "=" in line else " "))
        if not name:
            return dict(os.environ)
        if value:
            os.environ[name] = value
            print(f"env: {name}={value}")
        elif name in os.environ:
            return os.environ[name]
        else:
            raise UsageError(f"Environment does not have key: {name}")

    _set_env = _env

    def _run(self, line):
        words = [word for word in line.split() if not word.startswith("-")]
        if not words or not os.path.isfile(words[0]):
            raise UsageError(f"File {' '.join(words[:1])!r} not found.")
        before, sys.argv = sys.argv, words
        try:
            names = runpy.run_path(words[0], run_name="__main__")
        finally:
            sys.argv = before
        self.user_ns.update({name: value for name, value in names.items() if not name.startswith("__")})

    def _own_names(self):
        return [name for name in self.user_ns if not name.startswith("_") and name not in _NOT_LISTED]

    def _who(self, line):
        names = sorted(self._own_names())
        print("\t ".join([*names, ""]) if names else "Interactive namespace is empty.")

    _whos = _who

    def _reset(self, line):
        for name in self._own_names():
            del self.user_ns[name]

    def _pinfo(self, name):
        try:
            found = eval(name, self.user_ns)
        except Exception:
            print(f"Object `{name}` not found.")
            return
        try:
            print(f"Signature: {name}{inspect.signature(found)}")
        except (TypeError, ValueError):
            pass
        print(f"Docstring: {inspect.getdoc(found) or '<no docstring>'}\nType:      {type(found).__name__}")

    _pinfo2 = _pinfo

    def _cell_python(self, line, cell):
        exec(compile(cell, "<python>", "exec"), {"__name__": "__main__"})

    _cell_python3 = _cell_python

    def _cell_capture(self, line, cell):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            exec(compile(cell, "<captured>", "exec"), self.user_ns)
        if line and not line.startswith("-"):
            self.user_ns[line.split()[0]] = Captured(out.getvalue(), err.getvalue())

    def _cell_writefile(self, line, cell):
        *options, name = line.split()
        is_append = bool({"-a", "--append"} & set(options))
        action = ("Appending to" if is_append else "Overwriting") if os.path.exists(name) else "Writing"
        print(f"{action} {name}")
        with open(name, "a" if is_append else "w") as file:
            file.write(cell)

    _cell_file = _cell_writefile


class Captured:
    """Captured output."""

    def __init__(self, stdout, stderr):
        self.stdout, self.stderr = stdout, stderr

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)

    __call__ = show

    def __str__(self):
        return self.stdout
