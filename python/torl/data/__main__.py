"""`python -m torl.data`, the command `torl data`."""

import sys

from torl.__main__ import run

if __name__ == "__main__":
    sys.exit(run("data"))
