"""`python -m torl.sandbox run FILE | check | clean`: the sandbox by itself."""

import argparse
import shutil
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from torl import _core
from torl.errors import SandboxError
from torl.sandbox import Outcome, OutcomeStatus, SandboxPool, cache_directory, prepare_guest


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "clean":
            return clean()
        return run(options) if options.command == "run" else check()
    except SandboxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m torl.sandbox", description="Run untrusted Python in the sandbox.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="run a file; exit status 0 if it ended well, 1 if not")
    one.add_argument("file", type=Path, help="Python source, or - for standard input")
    one.add_argument("--seed", type=int, default=0, help="of everything random in the run (default 0)")
    one.add_argument("--cpu-seconds", type=float, default=10.0, help="CPU time of the run (default 10)")
    commands.add_parser("check", help="prepare the guest if need be, test it, and say where it is")
    commands.add_parser("clean", help="remove the prepared guest")
    return parser


def prepare() -> Path:
    """Prepare the guest, with a progress bar on standard error if there is anything to do."""
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
    """Run one file and pass on what it wrote."""
    prepare()
    try:
        code = sys.stdin.read() if str(options.file) == "-" else options.file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        print(f"error: {options.file}: {error}", file=sys.stderr)
        return 2
    with SandboxPool(1, cpu_seconds=options.cpu_seconds) as pool:
        outcome = pool.run(code, seed=options.seed)
    sys.stdout.write(outcome.stdout)
    sys.stderr.write(outcome.stderr)
    if outcome.status not in (OutcomeStatus.OK, OutcomeStatus.ERROR):
        print(f"sandbox: {outcome.status} ({_cost(outcome)})", file=sys.stderr)
    return 0 if outcome.ok else 1


def _cost(outcome: Outcome) -> str:
    return f"{outcome.cpu_seconds:.2f} s CPU, {outcome.peak_memory_bytes >> 20} MiB"


def check() -> int:
    """Prepare the guest, run the self-test on it, and print what is where."""
    directory = prepare()
    with SandboxPool(1) as pool:
        pool.self_test()
        probe = pool.run(
            "import sys, numpy, scipy, sympy\nprint(sys.version.split()[0], numpy.__version__, "
            "scipy.__version__, sympy.__version__)"
        )
    python, numpy, scipy, sympy = probe.stdout.split()
    size = sum(file.stat().st_size for file in _core.sandbox_files(directory))
    print(f"the sandbox works: torl {version('torl')}, Python {python}, numpy {numpy}, scipy {scipy}, sympy {sympy}")
    print(f"prepared guest: {directory} ({size >> 20} MiB)")
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


if __name__ == "__main__":
    sys.exit(main())
