"""A plain local interpreter for this package's own measurements: no isolation, so never for training.

Training runs model-written code in the sandbox. Here a child process with a time limit is enough, because the
code comes from a model of two million parameters that has only seen our arithmetic.
"""

import contextlib
import io
import json
import select
import subprocess
import sys
import traceback
import warnings
from dataclasses import dataclass
from types import TracebackType
from typing import Self

NO_OUTPUT = "[no output]"
TIME_LIMIT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Run:
    """The end of a run, as the model reads it: stdout, or the last line of the traceback."""

    ok: bool
    observation: str


def run_here(code: str) -> Run:
    """Execute `code` in this process, in a fresh namespace."""
    stdout = io.StringIO()
    try:
        with contextlib.redirect_stdout(stdout), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})
    except Exception as error:
        line = traceback.format_exception_only(error)[-1].strip()
        # Python says this from 3.12 on; here every version does, so that the corpus is the same everywhere.
        if isinstance(error, NameError) and error.name in sys.stdlib_module_names and "Did you" not in line:
            line += f". Did you forget to import '{error.name}'?"
        return Run(False, line)
    return Run(True, stdout.getvalue().rstrip("\n") or NO_OUTPUT)


class Interpreter:
    """A child process that runs one piece of code after another; it is replaced when one takes too long."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def run(self, code: str) -> Run:
        """Execute `code` in the child; a timeout or a dead child is a failed run."""
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(json.dumps(code) + "\n")
            readable, _, _ = select.select([self._child.stdout], [], [], TIME_LIMIT_SECONDS)
            line = self._child.stdout.readline() if readable else ""
        except BrokenPipeError:
            line = ""
        if not line:
            self.close()
            return Run(False, "TimeoutError: the time limit was reached")
        ok, observation = json.loads(line)
        return Run(ok, observation)


def _serve() -> None:
    """The child: limit memory and output, then answer one JSON line with another until the end of input."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    reply = sys.stdout
    for line in sys.stdin:
        try:
            run = run_here(json.loads(line))
        except SystemExit:
            run = Run(False, "SystemExit")
        reply.write(json.dumps([run.ok, run.observation[:256]]) + "\n")
        reply.flush()


if __name__ == "__main__":
    _serve()
