"""`python -m torl.report`: show runs; `torl.report.command` does it."""

import sys

from torl.report.command import main

if __name__ == "__main__":
    sys.exit(main())
