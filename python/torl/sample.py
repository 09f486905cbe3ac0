"""The program `python -m torl.sample`; from Python, call the function `torl.sample()`."""

import sys

from torl.__main__ import run

if __name__ == "__main__":
    sys.exit(run("sample"))
elif __name__ != "__mp_main__":  # as in processes that the program spawns
    raise ImportError("torl.sample is a function: `import torl`, then `torl.sample(...)`", name=__name__)
