"""Entry point of `python -m torl.rewards`, implemented in `torl.apps.serve`."""

import sys

from torl.apps.serve.grader import main

if __name__ == "__main__":
    sys.exit(main())
