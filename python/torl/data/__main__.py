"""`python -m torl.data`: make the problems that a run trains on; `torl.curation` does it."""

import sys

from torl.curation.command import main

if __name__ == "__main__":
    sys.exit(main())
