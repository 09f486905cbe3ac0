"""`python -m torl.report`, the command `torl report`."""

import sys

from torl.__main__ import run

if __name__ == "__main__":
    sys.exit(run("report"))
