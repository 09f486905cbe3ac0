"""Measurements of torl next to its peers: `python -m benchmarks.FOLDER.NAME`, in the root of the repository."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
PEERS_PYTHON = ROOT / ".venv" / "peers" / "bin" / "python"
"""Interpreter of the environment that `make peers` installs."""
