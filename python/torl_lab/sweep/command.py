"""The command line of `torl sweep`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from torl.base.errors import ConfigError, TorlError
from torl.base.runtime.processes.supervision import run_until_done
from torl.commands.command import reports_errors
from torl.run.config import TrainConfig
from torl.run.config.command_line import config_parser, parse_with_overrides
from torl.run.display.console import Console
from torl.run.records.files import atomic_write
from torl_lab.evaluation.output import latex, markdown
from torl_lab.report.comparison import write_comparison
from torl_lab.report.page import read_run
from torl_lab.sweep.grid import SweepRun, read_grid, sweep_runs
from torl_lab.sweep.running import train_missing
from torl_lab.sweep.table import as_json, comparison_labels, read_sweep, sweep_table

_PROGRAM = "torl sweep"
_DESCRIPTION = (
    "Train a run for each combination of settings and seed, one after another, and write one table with paired "
    "differences. The same command resumes a sweep that was killed. A run that fails does not stop the others."
)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0, 1 if a run failed, 2 for an invalid configuration."""
    options, runs = read_arguments(sys.argv[1:] if arguments is None else arguments)
    return run_until_done(sweep(runs, options.output))


def read_arguments(argv: Sequence[str]) -> tuple[argparse.Namespace, list[SweepRun]]:
    """Parse a command line, and check the configuration of every run.

    Raises:
        ConfigError: An argument or a configuration is invalid.
    """
    parser = config_parser(_PROGRAM, _DESCRIPTION, "--grid SETTING=VALUE,VALUE... ")
    parser.add_argument(
        "--grid", metavar="SETTING=VALUE,VALUE", nargs="+", default=[], help="settings and their values"
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="COUNT", help="number of seeds (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, default=Path("runs/sweep"), metavar="DIRECTORY", help="default: %(default)s"
    )
    options, overrides = parse_with_overrides(parser, TrainConfig, _PROGRAM, argv)
    if not options.grid:
        raise ConfigError(f"{_PROGRAM}: --grid is required, such as --grid rollout.max_tool_calls=0,1,2")
    if "run.directory" in overrides:
        raise ConfigError(f"{_PROGRAM}: --run.directory cannot be set: each run has a directory in --output")
    if options.seeds < 1:
        raise ConfigError(f"--seeds = {options.seeds} must be at least 1")
    try:
        options.output = options.output.expanduser()  # shells expand no ~ after =
    except RuntimeError as error:
        raise ConfigError(f"--output {options.output}: {error}") from error
    texts = {name: str(value) for name, value in overrides.items()}
    runs = list(sweep_runs(options.config, read_grid(options.grid), options.seeds, options.output, texts))
    if options.show:
        print("\n".join(f"torl train {' '.join(run.words)}" for run in runs))
        raise SystemExit(0)
    return options, runs


async def sweep(runs: Sequence[SweepRun], output: Path) -> None:
    """Train the missing runs, and write and print the table.

    Raises:
        ConfigError: A directory contains a run with other settings.
        TorlError: A run failed. The table has all others.
    """
    with Console() as console:
        failed = await train_missing(runs, console)
    results = read_sweep(runs)
    if results:
        table = sweep_table(results)
        for name, text in (
            ("table.md", markdown(table)),
            ("table.tex", latex(table)),
            ("results.json", as_json(results)),
        ):
            with atomic_write(output / name) as file:
                file.write(text.encode("utf-8"))
        pages = [read_run(label, directory) for label, directory in comparison_labels(runs).items()]
        write_comparison(pages, output / "comparison.html")
        print(markdown(table))
        print(f"wrote table.md, table.tex, results.json and comparison.html to {output}", flush=True)
    if failed:
        names = ", ".join(str(directory) for directory in failed)
        raise TorlError(f"{len(failed)} of {len(runs)} runs failed: {names}; the same command tries them again")
