"""Measurements of finished runs in a file of JSON lines, so that a table of many hours can be made in parts."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

Measured = TypeVar("Measured")


def read_measurements(file: Path, kind: type[Measured]) -> dict[str, dict[int, Measured]]:
    """Read measurements by row and seed, in the order of the seeds; none from a missing file."""
    found: dict[str, dict[int, Measured]] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        entry = json.loads(line)
        row, seed = entry.pop("row"), entry.pop("seed")
        found.setdefault(row, {})[seed] = kind(**entry)
    return {row: dict(sorted(runs.items())) for row, runs in found.items()}


def add_measurement(file: Path, row: str, seed: int, measured: Any) -> None:
    """Append the measurement of a run, a dataclass."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({"row": row, "seed": seed, **asdict(measured)}) + "\n")
