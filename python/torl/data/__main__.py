"""Entry point of `python -m torl.data`, implemented in `torl.apps.curation`."""

import sys

from torl.apps.curation.command import main

if __name__ == "__main__":
    sys.exit(main())
