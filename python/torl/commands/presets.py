"""`torl presets`: the configurations that torl ships, with the first line of each."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from torl.config.loading import presets


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        "torl presets", description="List the configurations that torl ships: `torl train NAME`."
    )
    parser.parse_args(arguments)
    files = presets()
    width = max(map(len, files))
    for name, file in files.items():
        print(f"{name:<{width}}  {_description(file)}")
    return 0


def _description(file: Path) -> str:
    """Return the first comment of a file."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((line.lstrip("# ") for line in lines if line.startswith("#")), "")
