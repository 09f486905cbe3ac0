"""The program `python -m torl.finetune`; from Python, call the function `torl.finetune()`."""

import sys

from torl.__main__ import run

if __name__ == "__main__":
    sys.exit(run("finetune"))
elif __name__ != "__mp_main__":  # as in processes that the program spawns
    raise ImportError("torl.finetune is a function: `import torl`, then `torl.finetune(...)`", name=__name__)
