"""The program `python -m torl.train`; from Python, call the function `torl.train()`."""

import sys

from torl.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
elif __name__ != "__mp_main__":  # as in processes that the program spawns
    raise ImportError("torl.train is a function: `import torl`, then `torl.train(...)`", name=__name__)
