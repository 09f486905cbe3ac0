"""The folders of the repository and of the helpers, some of which are programs."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
HELPERS = Path(__file__).parent
