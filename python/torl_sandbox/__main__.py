"""The command line of the sandbox: `python -m torl_sandbox run FILE | check | clean | serve | mcp | openenv`."""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import torl_sandbox._core as _core
from torl_sandbox import __version__
from torl_sandbox.errors import OutcomeStatus, SandboxError
from torl_sandbox.execution import Execution
from torl_sandbox.guest import cache_directory, prepare_guest
from torl_sandbox.output import ends_with_its_reader
from torl_sandbox.pool import SandboxPool
from torl_sandbox.servers.commands import SERVERS, add_server_commands, run_server


@ends_with_its_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    options = _parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack characters that a program prints
    try:
        return _COMMANDS[options.command](options)
    except SandboxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m torl_sandbox", description="Run untrusted Python in the sandbox.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser(
        "run",
        help="run a file; the exit status is 0 on success, else 1",
        description="Run a Python file in the sandbox and print its output. The exit status is 0 on success, else 1.",
    )
    one.add_argument("file", type=Path, help="Python file, or - for standard input")
    one.add_argument("--seed", type=int, default=0, metavar="INT", help="random seed (default: %(default)s)")
    one.add_argument(
        "--cpu-seconds", type=_seconds, default=_core.SandboxLimits().cpu_seconds, metavar="SECONDS",
        help="CPU time of the run, in seconds (default: %(default)g)",
    )  # fmt: skip
    one.add_argument(
        "--input", type=Path, action="append", default=[], metavar="PATH",
        help="file or directory to copy into the working directory of the run; repeatable",
    )  # fmt: skip
    one.add_argument(
        "--output", type=Path, metavar="DIRECTORY", help="directory for files that the run creates or changes"
    )
    commands.add_parser("check", help="prepare the guest if necessary, test it, and print its location")
    commands.add_parser("clean", help="remove the prepared guest")
    add_server_commands(commands)
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e9:
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, got {text}")
    return seconds


def prepare() -> Path:
    """Prepare the guest if necessary, with a progress bar on standard error."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("preparing the sandbox", total=1.0, visible=False)
        announced = ""

        def show(stage: str, fraction: float) -> None:
            nonlocal announced
            if stage != announced and not console.is_terminal:
                console.print(f"sandbox: {stage}")
            announced = stage
            bar.update(task, description=stage, completed=fraction, visible=True)

        return prepare_guest(show)


def run(options: argparse.Namespace) -> int:
    """Run a file, with standard input unless it is a terminal, and print its output."""
    prepare()
    stdin = b""
    try:
        if str(options.file) == "-":
            code = sys.stdin.buffer.read().decode()
        else:
            code = options.file.read_text(encoding="utf-8")
            if sys.stdin is not None and not sys.stdin.isatty():
                stdin = sys.stdin.buffer.read()
    except (OSError, UnicodeDecodeError) as error:
        print(f"error: {options.file}: {error}", file=sys.stderr)
        return 2
    with SandboxPool(1, cpu_seconds=options.cpu_seconds) as pool:
        try:
            files = {name: content for path in options.input for name, content in _files_at(path)}
            outcome = pool.run(
                code, seed=options.seed, stdin=stdin, files=files, return_files=options.output is not None
            )
        except (OSError, ValueError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    sys.stdout.write(outcome.stdout)
    sys.stderr.write(outcome.stderr)
    if options.output is not None:
        _write_files(outcome.files, options.output)
    if outcome.status not in (OutcomeStatus.OK, OutcomeStatus.ERROR):
        print(f"sandbox: {outcome.status} ({_cost(outcome)})", file=sys.stderr)
    return 0 if outcome.ok else 1


def _files_at(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the file at `path` or all files below it, with paths that start with its name."""
    base = Path(os.path.abspath(path))
    if not base.is_dir():
        yield base.name, base.read_bytes()
        return
    for file in sorted(base.rglob("*")):
        if file.is_file():
            yield file.relative_to(base.parent).as_posix(), file.read_bytes()


def _write_files(files: Mapping[str, bytes], directory: Path) -> None:
    """Write the files of an outcome below `directory`. The pool guarantees that their paths do not lead outside."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    except OSError as error:
        raise SandboxError(f"cannot write the files of the run: {error}") from error


def _cost(outcome: Execution) -> str:
    return f"{outcome.cpu_seconds:.2f} s CPU, {outcome.peak_memory_bytes >> 20} MiB"


def check() -> int:
    """Prepare the guest, run the self-test and print versions, location and isolation layers."""
    directory = prepare()
    with SandboxPool(1) as pool:
        pool.self_test()
        confinement = pool.confinement()
        probe = pool.run(
            "import sys, numpy, scipy, sympy\nprint(sys.version.split()[0], numpy.__version__, "
            "scipy.__version__, sympy.__version__)"
        )
    python, numpy, scipy, sympy = probe.stdout.split()
    size = sum(file.stat().st_size for file in _core.sandbox_files(directory))
    print(
        f"the sandbox works: torl-sandbox {__version__}, Python {python}, numpy {numpy}, scipy {scipy}, sympy {sympy}"
    )
    print(f"prepared guest: {directory} ({size >> 20} MiB)")
    landlock = "no Landlock" if confinement.landlock is None else f"Landlock {confinement.landlock}"
    print(f"isolation of workers: {'seccomp' if confinement.seccomp else 'no seccomp'}, {landlock}")
    for layer in confinement.missing:
        print(f"missing: {layer}")
    return 0


def clean() -> int:
    """Remove every prepared guest of this user."""
    directory = cache_directory()
    if directory.is_dir():
        try:
            shutil.rmtree(directory)
        except OSError as error:
            raise SandboxError(f"cannot remove {directory}: {error}") from error
    print(f"removed {directory}")
    return 0


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": run,
    "check": lambda _: check(),
    "clean": lambda _: clean(),
    **dict.fromkeys(SERVERS, lambda options: run_server(options, prepare)),
}


if __name__ == "__main__":
    sys.exit(main())
