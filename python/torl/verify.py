"""The program `python -m torl.verify`; from Python, call the function `torl.verify()`."""

import sys

from torl.__main__ import run

if __name__ == "__main__":
    sys.exit(run("verify"))
elif __name__ != "__mp_main__":  # as in processes that the program spawns
    raise ImportError("torl.verify is a function: `import torl`, then `torl.verify(...)`", name=__name__)
