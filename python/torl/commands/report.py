"""Write the page of a run, or of several runs on one page.

torl report RUN                                           writes RUN/report.html
torl report RUN RUN... [--output FILE] [--smoothing STEPS]   the papers' figures, with a line for each run

LABEL=RUN names a run in the legends. A run need not be finished.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from torl.errors import ConfigError, TorlError
from torl.paths import labelled_paths
from torl.report.comparison import WINDOW, read_run, write_comparison
from torl.report.page import write_report

PROGRAM = "torl report"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="directory of a run; LABEL=RUN names it")
    parser.add_argument("--output", metavar="FILE", type=Path, help="page of several runs (default comparison.html)")
    parser.add_argument(
        "--smoothing",
        metavar="STEPS",
        type=int,
        default=WINDOW,
        help="number of steps that curves are averaged over (default %(default)s)",
    )
    options = parser.parse_args(arguments)
    try:
        print(_write(labelled_paths(options.runs), options.output, options.smoothing))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except TorlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _write(runs: dict[str, Path], output: Path | None, window: int) -> Path:
    if window < 1:
        raise ConfigError(f"--smoothing = {window} must be at least 1 step")
    if len(runs) == 1 and output is None:
        (directory,) = runs.values()
        return write_report(directory)
    records = [read_run(label, directory) for label, directory in runs.items()]
    return write_comparison(records, output or Path("comparison.html"), window)
