"""Measurements of torl next to its peers: `python -m benchmarks.FOLDER.NAME`, in the root of the repository."""

from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PEERS_PYTHON = ROOT / ".venv" / "peers" / "bin" / "python"
"""Interpreter of the environment that `make peers` installs."""


def settings_words(settings: Mapping[str, object]) -> list[str]:
    """Return settings of a run as words of a command line."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    return [word for name, text in texts.items() for word in (f"--{name}", text)]
