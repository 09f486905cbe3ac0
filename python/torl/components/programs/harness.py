"""The programs of `guest`, compiled once in the guest, so that each run starts in a fraction of a millisecond."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Protocol, Unpack

from torl.base.errors import SandboxError
from torl.components.programs.guest.transfer import MARK
from torl_sandbox import Execution, RunOptions

_PACKAGE = "torl.components.programs.guest"
_SHARED = ("transfer", "operations", "unknown", "proxies", "operators", "side")
_MODULES = (
    *_SHARED,
    "no_proxies",
    "program_side",
    "unsupported",
    "identity",
    "play",
    "fixtures",
    "test_side",
    "pytest",
)
_COMPILE = f"""
import marshal, sys
for name in {_MODULES!r}:
    open(name + ".bin", "wb").write(marshal.dumps(compile(open(name + ".py").read(), name + ".py", "exec")))
"""
_START = """
import marshal, sys, types
for name, module in {modules!r}:
    sys.modules[module] = types.ModuleType(module)
    exec(marshal.loads(open(name + ".bin", "rb").read()), sys.modules[module].__dict__)
sys.modules[{main!r}].main()
"""


class ProgramRunner(Protocol):
    """A sandbox, such as `SandboxPool`."""

    async def run_async(self, code: str, **options: Unpack[RunOptions]) -> Execution:
        """Run code in a fresh state.

        Raises:
            SandboxError: The host failed. Errors of the code never raise.
        """
        ...


@dataclass(frozen=True, slots=True)
class Harness:
    """A program of `guest`: the code that starts it, and its files."""

    code: str
    files: Mapping[str, bytes]

    async def run(self, runner: ProgramRunner, stdin: str, **options: Any) -> Execution:
        """Run it with JSON on standard input."""
        return await runner.run_async(self.code, stdin=stdin, files=self.files, **options)


@dataclass(frozen=True, slots=True)
class Harnesses:
    """All programs of `guest`.

    Attributes:
        plain: Harness of a program that no object of a test reaches. It starts in half of the time.
        program: Harness of a program.
        test: Harness of a test.
    """

    plain: Harness
    program: Harness
    test: Harness


async def compile_harnesses(runner: ProgramRunner) -> Harnesses:
    """Return the harnesses.

    Raises:
        SandboxError: The programs cannot be compiled.
    """
    sources = {f"{name}.py": _source(name) for name in _MODULES}
    done = await runner.run_async(_COMPILE, files=sources, return_files=True)
    if not done.ok:
        raise SandboxError(f"the guest cannot compile the harness of tests: {done.exception_line}")
    shared = [(name, f"{_PACKAGE}.{name}") for name in _SHARED]
    play = [
        *((name, f"{_PACKAGE}.{name}") for name in ("unsupported", "identity", "play", "fixtures")),
        ("pytest", "pytest"),
    ]
    plain = [(name if name in ("transfer", "operations", "side") else "no_proxies", module) for name, module in shared]
    return Harnesses(
        _harness([*plain, ("program_side", "__harness__")], done.files),
        _harness([*shared, ("program_side", "__harness__")], done.files),
        _harness([*shared, *play, ("test_side", "__harness__")], done.files),
    )


def _harness(modules: list[tuple[str, str]], files: Mapping[str, bytes]) -> Harness:
    code = _START.format(modules=modules, main="__harness__")
    return Harness(code, {f"{name}.bin": files[f"{name}.bin"] for name, _ in modules})


def _source(name: str) -> str:
    return resources.files(_PACKAGE).joinpath(f"{name}.py").read_text(encoding="utf-8")


def returned_text(execution: Execution) -> str | None:
    """Return the text that a harness of tests returned, or None."""
    found = [line for line in execution.stdout.split("\n") if line.startswith(MARK)]
    return found[-1].removeprefix(MARK) if execution.ok and found else None
