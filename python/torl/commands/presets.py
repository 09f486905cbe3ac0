"""`torl presets`: the configurations that torl ships, with a sentence on each."""

import argparse
import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from torl.run.config.loading import overlays, presets


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        "torl presets", description="List the configurations that torl ships: `torl train NAME`."
    )
    parser.parse_args(arguments)
    width = max(map(len, presets() | overlays()))
    for name, file in presets().items():
        print(f"{name:<{width}}  {_description(file)}")
    print("\nOn top of another: torl train torl_7b gtpo; or for an evaluation: torl evaluate MODEL --config tora ...\n")
    for name, file in overlays().items():
        print(f"{name:<{width}}  {_description(file)}")
    return 0


def _description(file: Path) -> str:
    """Return the first sentence of a file's first comment."""
    lines = takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    comment = " ".join(line.lstrip("# ") for line in lines)
    return re.split(r"(?<=[.])\s", comment, maxsplit=1)[0]
