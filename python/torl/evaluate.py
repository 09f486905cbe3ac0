"""Measure models on sets of problems, and put them into tables like those of the papers.

python -m torl.evaluate MODEL... --suite torl|zerotir|SET|FILE... [--tool both] [--grid 0,2,4] [--compare torl]
                        [--output DIRECTORY] [--config CONFIG] [--regrade] [--section.field value ...]

A killed command is resumed by the same command. It writes table.md, table.tex, results.json and page.html; the last
line it prints is JSON.
"""

import sys
from collections.abc import Sequence

from torl.errors import ConfigError
from torl.evaluation.command import evaluate_models, read_arguments
from torl.processes.supervision import run_until_done


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    description = "Measure models on sets of problems, and put them into tables like those of the papers."
    try:
        asked = read_arguments(description, sys.argv[1:] if arguments is None else arguments)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return run_until_done(evaluate_models(asked))


if __name__ == "__main__":
    sys.exit(main())
