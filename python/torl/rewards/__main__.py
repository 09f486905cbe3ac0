"""Entry point of `python -m torl.rewards`, implemented in `torl_sandbox.servers`."""

import sys

from torl.apps.grader.commands import main

if __name__ == "__main__":
    sys.exit(main())
