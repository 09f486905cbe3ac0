"""Audit a run, finished or running, from its own files.

python -m torl.verify RUN [--logprob-samples 64]
"""

import sys

from torl.apps.audit.run import main

if __name__ == "__main__":
    sys.exit(main())
