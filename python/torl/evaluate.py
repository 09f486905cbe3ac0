"""Measure models on sets of problems, and put them into tables like those of the papers.

python -m torl.evaluate MODEL... --suite torl|zerotir|SET|FILE... [--tools both] [--grid 0,2,4] [--compare torl]
                        [--output DIRECTORY] [--config CONFIG] [--regrade] [--section.field value ...]

A killed command is resumed by the same command. It writes table.md, table.tex, results.json and page.html; the last
line it prints is JSON.
"""

import sys

from torl.apps.evaluation.command import main

if __name__ == "__main__":
    sys.exit(main())
