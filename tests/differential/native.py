"""A CPython of this machine, as the oracle."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WORKER = Path(__file__).with_name("native_worker.py")
TOGETHER = 40
PREPARED = ("numpy", "scipy", "scipy.stats", "scipy.optimize", "pandas", "sympy", "mpmath", "networkx")


@dataclass(frozen=True, slots=True)
class Observed:
    """The visible end of a program: its output, the type and the last line of an uncaught exception."""

    stdout: str
    error_type: str | None = None
    error_line: str | None = None


STOPPED = Observed("", "stopped", "ran too long, or ended its process")


class NativePython:
    """An interpreter that runs many programs; a context manager.

    Args:
        executable: Interpreter, by default the running one. The nearer its version and its packages' are to the
            guest's, the fewer differences are differences of version.
        seconds: Wall-clock limit for one program.
    """

    def __init__(self, executable: Path | None = None, *, seconds: float = 10.0) -> None:
        self.executable = str(executable or sys.executable)
        self.seconds = seconds
        # Numpy's threads would not survive a fork; without them sums are also made in one order.
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "TZ": "UTC",
        }
        self.packages = self._packages(environment)
        modules = [name for name in PREPARED if name.partition(".")[0] in self.packages]
        self._directory = tempfile.TemporaryDirectory()  # programs may write files
        self._process = subprocess.Popen(
            [self.executable, str(WORKER), *modules], cwd=self._directory.name, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", errors="surrogatepass",
        )  # fmt: skip
        self.version = tuple(int(part) for part in self._answer().split(".")[:2])

    def _packages(self, environment: dict[str, str]) -> dict[str, str]:
        """The packages that it has of those that programs use, with their versions."""
        names = sorted({name.partition(".")[0] for name in PREPARED})
        code = (
            "import importlib.metadata as m, json\nfound = {}\n"
            f"for n in {names!r}:\n  try: found[n] = m.version(n)\n  except m.PackageNotFoundError: pass\n"
            "print(json.dumps(found))"
        )
        answer = subprocess.run([self.executable, "-c", code], env=environment, capture_output=True, check=True).stdout
        return dict(json.loads(answer))

    def _answer(self) -> "str":
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.executable} ended: run it by hand with {WORKER} to see why")
        return json.loads(line)  # type: ignore[no-any-return]

    def run(self, codes: Sequence[str], *, alone: bool = False) -> list[Observed]:
        """The results of `codes`. `alone`: each in a separate process."""
        size = 1 if alone else TOGETHER
        observed: list[Observed] = []
        for start in range(0, len(codes), size):
            assert self._process.stdin is not None
            print(json.dumps([codes[start : start + size], self.seconds]), file=self._process.stdin, flush=True)
            observed += [STOPPED if one is None else Observed(*one) for one in self._answer()]
        return observed

    def __enter__(self) -> "NativePython":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._directory.cleanup()
