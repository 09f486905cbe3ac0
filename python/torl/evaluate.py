"""The program `python -m torl.evaluate`; from Python, call the function `torl.evaluate()`."""

import sys

from torl.__main__ import run

if __name__ == "__main__":
    sys.exit(run("evaluate"))
elif __name__ != "__mp_main__":  # as in processes that the program spawns
    raise ImportError("torl.evaluate is a function: `import torl`, then `torl.evaluate(...)`", name=__name__)
