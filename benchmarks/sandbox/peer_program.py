"""A peer that is measured in a separate process: `python peer_program.py native|fork|pyeryx|monty DIRECTORY`.

Runs in the peers' interpreter, so it imports nothing of torl. One order a line on standard input, `{"code", "repeat"}`,
one answer a line on standard output: `{"seconds": [...], "text"}`, the times of the runs and what the last one wrote.
The first line is `{"about"}`, or `{"error"}` where the peer does not run here.
"""

import contextlib
import gc
import importlib
import io
import json
import os
import resource
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from snippets import SNIPPETS

# The modules that torl's guest has imported, as far as they matter here.
MODULES = (
    *("bisect", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools"),
    *("heapq", "io", "itertools", "json", "math", "operator", "random", "re", "statistics", "string", "typing"),
    *("numpy", "scipy", "scipy.integrate", "scipy.linalg", "scipy.optimize", "scipy.special", "scipy.stats", "sympy"),
)
MEMORY_BYTES = 4 << 30
CPU_SECONDS = 10
Run = Callable[[str], str]


def warm_up() -> None:
    """Import what snippets import, and run each measured snippet: the best case for a process forked from here."""
    for module in MODULES:
        importlib.import_module(module)
    for code, _ in SNIPPETS.values():
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            execute(code)
    gc.collect()
    gc.freeze()


def execute(code: str) -> None:
    try:
        exec(compile(code, "main.py", "exec"), {"__name__": "__main__"})
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()


def native(_: Path) -> tuple[Run, str]:
    """In this process, without isolation."""

    def run(code: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            execute(code)
        return output.getvalue()

    return run, f"CPython {sys.version.split()[0]}"


def fork(_: Path) -> tuple[Run, str]:
    """In a fork of this process, under resource limits."""
    warm_up()

    def run(code: str) -> str:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            os.closerange(3, 64)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            execute(code)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        os.close(writer)
        pieces = []
        while piece := os.read(reader, 1 << 16):
            pieces.append(piece)
        os.close(reader)
        os.waitpid(child, 0)
        return b"".join(pieces).decode()

    modules = ", ".join(f"{name} {sys.modules[name].__version__}" for name in ("sympy", "numpy", "scipy"))
    return run, f"CPython {sys.version.split()[0]} with {modules} imported, snippets run once, heap frozen"


def pyeryx(directory: Path) -> tuple[Run, str]:
    """`Sandbox.execute`, fresh at each call as documented, from a factory that has sympy imported and used."""
    import eryx  # type: ignore[import-not-found]
    import mpmath  # type: ignore[import-untyped]
    import sympy

    packages, saved = directory / "packages", directory / f"factory-{eryx.__version__}.bin"
    if not saved.exists():
        for package in (mpmath, sympy):
            source = Path(package.__file__).parent
            shutil.copytree(source, packages / source.name, dirs_exist_ok=True)
        (packages / "benchmark_warm_up.py").write_text(
            ERYX_WARM_UP.format(snippets=[SNIPPETS[name][0] for name in PURE])
        )
        factory = eryx.SandboxFactory(site_packages=packages, imports=["benchmark_warm_up"], cache=True)
        factory.save(saved.with_suffix(".part"))
        saved.with_suffix(".part").rename(saved)
    sandbox = eryx.SandboxFactory.load(saved, site_packages=packages, cache=True).create_sandbox()

    def run(code: str) -> str:
        try:
            answer = sandbox.execute(code)
        except eryx.ExecutionError as error:
            return str(error)
        output: bytes | str = answer.stdout
        return output.decode() if isinstance(output, bytes) else output

    return run, f"pyeryx {eryx.__version__}, a factory with sympy imported and used; it has no numpy and no scipy"


def monty(_: Path) -> tuple[Run, str]:
    """A session of a worker for each call: its own interpreter of a part of Python, in Rust, without packages."""
    import pydantic_monty  # type: ignore[import-not-found]

    pool = pydantic_monty.Monty().__enter__()  # until this process ends

    def run(code: str) -> str:
        printed = pydantic_monty.CollectString()
        try:
            with pool.checkout() as session:
                session.feed_run(code, print_callback=printed)
        except pydantic_monty.MontyError as error:
            return f"{printed.output}{error}"
        return str(printed.output)

    return run, f"pydantic-monty {version('pydantic-monty')}, its own interpreter of a part of Python; no packages"


# Its interpreter has no ctypes, of which sympy wants the size of a C long.
PURE = ("print", "sympy", "exception")
ERYX_WARM_UP = """\
import contextlib, io, sys, traceback, types
stub = types.ModuleType("ctypes")
stub.c_long, stub.sizeof = object, lambda kind: 4
sys.modules["ctypes"] = stub
for snippet in {snippets!r}:
    for _ in range(8):
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                exec(compile(snippet, "main.py", "exec"), {{"__name__": "__main__"}})
            except Exception:
                traceback.format_exc()
"""


def main() -> None:
    orders, answers = sys.stdin, os.fdopen(os.dup(1), "w")

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    try:
        run, about = {"native": native, "fork": fork, "pyeryx": pyeryx, "monty": monty}[sys.argv[1]](Path(sys.argv[2]))
    except Exception as error:
        return answer(error=f"{type(error).__name__}: {error}")
    answer(about=about)
    for line in orders:
        order = json.loads(line)
        seconds, cpu_seconds, text = [], [], ""
        for _ in range(order["repeat"]):
            started, cpu_started = time.perf_counter(), time.process_time()
            text = run(order["code"])
            seconds.append(time.perf_counter() - started)
            cpu_seconds.append(time.process_time() - cpu_started)
        answer(seconds=seconds, cpu_seconds=cpu_seconds, text=text)
    return None


if __name__ == "__main__":
    main()
