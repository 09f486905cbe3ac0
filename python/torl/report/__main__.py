"""`python -m torl.report`, the command `torl report`."""

import sys

from torl.commands.report import main

if __name__ == "__main__":
    sys.exit(main())
