"""Start `torl train` with the bug of an exhibit in its processes.

    python -m benchmarks.doctors.exhibits.start EXHIBIT CONFIG... [--section.setting VALUE ...]

The learner's process is patched by `site/sitecustomize.py`, which its PYTHONPATH names.
"""

import os
import sys

from benchmarks.doctors.exhibits.catalog import apply
from torl.__main__ import OWN, run

if __name__ == "__main__":
    os.environ["TORL_EXHIBIT"] = sys.argv[1]
    apply(sys.argv[1], "controller")
    sys.exit(run(OWN["train"], sys.argv[2:]))
