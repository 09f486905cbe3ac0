"""Show runs: the page of one, or several on one page.

python -m torl.report RUN                                             writes RUN/report.html again
python -m torl.report RUN RUN... [--output FILE] [--window STEPS]     the papers' figures, a line for each run

LABEL=RUN names a run in the legends. Runs may still be going on.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from torl.errors import ConfigError, TorlError
from torl.report.comparison import WINDOW, read_run, write_comparison
from torl.report.page import write_report

PROGRAM = "python -m torl.report"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="directory of a run; LABEL=RUN names it")
    parser.add_argument("--output", metavar="FILE", type=Path, help="page of several runs; comparison.html when unset")
    parser.add_argument(
        "--window", metavar="STEPS", type=int, default=WINDOW, help="of the means; %(default)s when unset"
    )
    asked = parser.parse_args(arguments)
    try:
        print(_write(_labelled(asked.runs), asked.output, asked.window))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except TorlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _write(runs: dict[str, Path], output: Path | None, window: int) -> Path:
    if window < 1:
        raise ConfigError(f"--window is a number of steps, at least 1, not {window}")
    if len(runs) == 1 and output is None:
        (directory,) = runs.values()
        return write_report(directory)
    read = [read_run(label, directory) for label, directory in runs.items()]
    return write_comparison(read, output or Path("comparison.html"), window)


def _labelled(given: Sequence[str]) -> dict[str, Path]:
    """The directories by their labels."""
    runs: dict[str, Path] = {}
    for each in given:
        label, separator, place = each.partition("=")
        if not separator or Path(each).is_dir():  # a run may be called lr=1e-6
            label, place = Path(each).resolve().name, each
        directory = Path(place)
        if not label or label in runs:
            raise ConfigError(f"{each}: {label!r} cannot name a run of its own: write LABEL={directory}")
        runs[label] = directory
    return runs
