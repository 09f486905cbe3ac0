"""Write the page of a run, or of several runs on one page.

torl report RUN                                           writes RUN/report.html
torl report RUN RUN... [--output FILE] [--smoothing STEPS]   the papers' figures, with a line for each run

LABEL=RUN names a run in the legends. A run need not be finished: --follow writes the page again as the runs grow, and
an open page shows it.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from torl.base.errors import ConfigError
from torl.base.paths import labelled_paths
from torl.commands.command import reports_errors
from torl.run.records.files import METRICS_FILE, SUMMARY_FILE
from torl_lab.report.comparison import WINDOW, write_comparison
from torl_lab.report.page import RELOAD_SECONDS, read_config, read_run, write_report

_POLL_SECONDS: Final = 5.0


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        "torl report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="directory of a run; LABEL=RUN names it")
    parser.add_argument("--output", metavar="FILE", type=Path, help="page of several runs (default comparison.html)")
    parser.add_argument(
        "--smoothing",
        metavar="STEPS",
        type=int,
        help=f"number of steps that the curves of several runs are averaged over (default {WINDOW})",
    )
    parser.add_argument(
        "--follow", action="store_true", help="write the page again while runs are written; Ctrl-C ends it"
    )
    options = parser.parse_args(arguments)
    runs = labelled_paths(options.runs)
    if options.follow:
        _follow(runs, options.output, options.smoothing)
    else:
        print(_write(runs, options.output, options.smoothing))
    return 0


def _follow(runs: dict[str, Path], output: Path | None, window: int | None) -> None:
    """Write the page, and again whenever a run has new records, until all runs have ended."""
    for directory in runs.values():
        read_config(directory)  # a run that starts has no metrics yet, but a configuration
    seen: list[int] = []
    try:
        while unfinished := [label for label, directory in runs.items() if not (directory / SUMMARY_FILE).exists()]:
            files = [directory / METRICS_FILE for directory in runs.values()]
            now = [file.stat().st_mtime_ns for file in files if file.exists()]
            if now != seen and len(now) == len(runs):
                path = _write(runs, output, window, reload_seconds=RELOAD_SECONDS)
                if not seen:
                    print(f"{path}: written again until {', '.join(unfinished)} ends", flush=True)
                seen = now
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        pass
    print(_write(runs, output, window))


def _write(runs: dict[str, Path], output: Path | None, window: int | None, reload_seconds: int = 0) -> Path:
    if window is not None and window < 1:
        raise ConfigError(f"--smoothing = {window} must be at least 1 step")
    if len(runs) == 1 and output is None:
        if window is not None:
            raise ConfigError(
                "--smoothing: the page of one run shows each step; --output FILE writes the page with averages"
            )
        return write_report(next(iter(runs.values())))
    records = [read_run(label, directory) for label, directory in runs.items()]
    return write_comparison(records, output or Path("comparison.html"), window or WINDOW, reload_seconds=reload_seconds)
