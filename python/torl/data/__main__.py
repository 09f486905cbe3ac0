"""`python -m torl.data`: make the problems that a run trains on; `torl.apps.curation` does it."""

import sys

from torl.apps.curation.command import main

if __name__ == "__main__":
    sys.exit(main())
