"""`get_ipython()` of a notebook: the magics and shell commands that cells use, or a line that says what to do instead.

Source of the texts: IPython 8.
"""

import contextlib
import io
import os
import re
import sys
import time

import _torl_system

NO_PACKAGES = "packages cannot be installed: there is no network here"
_SILENT = ("autoreload", "colors", "config", "load_ext", "matplotlib", "pdb", "reload_ext", "xmode")
_INSTALLERS = ("conda", "mamba", "pip")
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
        magic = getattr(self, f"_{name}", None)
        if magic is None:
            raise UsageError(f"Line magic function `%{name}` not found.")
        return magic(line)

    def run_cell_magic(self, name, line, cell):
        if name in ("time", "timeit"):
            return getattr(self, f"_{name}")(cell if name == "time" else f"{line}\n{cell}")
        if name in ("bash", "sh", "script"):
            return self.system(cell.strip().partition("\n")[0])
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
        """Run code; return the value of an expression and the seconds on the virtual clock."""
        try:
            compiled, run = compile(code.strip(), "<timed eval>", "eval"), eval
        except SyntaxError:
            compiled, run = compile(code, "<timed exec>", "exec"), exec
        start = time.perf_counter()
        value = run(compiled, self.user_ns)
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
