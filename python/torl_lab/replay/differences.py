"""The first difference of two records of a step, and of two runs, and the command `torl diff`."""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torl.base.errors import ConfigError, RecordError
from torl.base.options import dotted_leaves, read_toml
from torl.base.removed import translated
from torl.commands.command import reports_errors
from torl.run.records import metric_names as names
from torl.run.records.content import KINDS, content_of, episode_rows, is_content
from torl.run.records.files import CONFIG_FILE, step_of_file, training_files
from torl.run.records.reading import read_metrics, read_rows
from torl.run.records.receipt import read_receipt

_PLACES = {"run.directory", "run.resume"}  # settings that do not change what a run computes


@dataclass(frozen=True, slots=True)
class Difference:
    """A place in which two runs differ.

    Attributes:
        kind: "settings", a kind of `torl.run.records.content.KINDS`, "gradient", "metrics" or "weights".
        place: Step, trajectory and value.
        before: Value of the first run.
        after: Value of the second run.
    """

    kind: str
    place: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.kind}: {self.place}: {_short(self.before)} -> {_short(self.after)}"


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run `torl diff` and return the exit status: 0 if the runs are equal, 1 if they differ, 2 for an error."""
    parser = argparse.ArgumentParser("torl diff", description="Name the first difference of two runs.")
    parser.add_argument("first", metavar="A", type=Path, help="run directory")
    parser.add_argument("second", metavar="B", type=Path, help="run directory")
    options = parser.parse_args(arguments)
    found = list(run_differences(options.first, options.second))
    print("\n".join(map(str, found)) or "no difference")
    return int(bool(found))


def run_differences(first: Path, second: Path) -> Iterator[Difference]:
    """Yield the differences of the settings, then those of the first step that differs.

    Raises:
        RecordError: Records are missing or damaged.
    """
    yield from settings_differences(first, second)
    runs = _Records(first), _Records(second)
    for step in sorted(runs[0].files.keys() | runs[1].files.keys()):
        found = list(_step_differences(*runs, step))
        if found:
            yield from found
            return


def step_differences(first: Path, second: Path, step: int) -> Iterator[Difference]:
    """Yield the first difference of each kind in a step, in the order in which a step makes them.

    Raises:
        RecordError: Records are damaged.
    """
    yield from _step_differences(_Records(first), _Records(second), step)


class _Records:
    """The records of a run by step, each file read once."""

    def __init__(self, run: Path) -> None:
        self._run = run

    @cached_property
    def files(self) -> dict[int, Path]:
        return {step: path for path in training_files(self._run) if (step := step_of_file(path)) is not None}

    @cached_property
    def metrics(self) -> dict[int, dict[str, Any]]:
        return {row["step"]: row for row in reversed(read_metrics(self._run)) if names.TIME_STEP in row}

    @cached_property
    def weights(self) -> dict[int, str]:
        return {line["step"]: line["weights"] for line in reversed(read_receipt(self._run)) if "weights" in line}


def _step_differences(first: _Records, second: _Records, step: int) -> Iterator[Difference]:
    files = first.files.get(step), second.files.get(step)
    if files[0] is None or files[1] is None:
        yield Difference("problems", f"step {step}", *("absent" if file is None else "recorded" for file in files))
        return
    yield from row_differences(step, *(list(read_rows(file)) for file in files if file is not None))
    yield from metric_differences(step, *(run.metrics.get(step, {}) for run in (first, second)))
    weights = [run.weights.get(step) for run in (first, second)]
    if None not in weights and weights[0] != weights[1]:
        yield Difference("weights", f"after step {step}", *weights)


def row_differences(
    step: int, first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]
) -> Iterator[Difference]:
    """Yield the first difference of each kind between the rows of a step."""
    rows = [[each for row in side for each in episode_rows(row)] for side in (first, second)]
    if len(rows[0]) != len(rows[1]):
        yield Difference("problems", f"step {step}, number of trajectories", len(rows[0]), len(rows[1]))
        return
    contents = [[content_of(row) for row in side] for side in rows]
    for kind in KINDS:
        for row, one, other in zip(rows[0], *contents, strict=True):
            if one[kind] != other[kind]:
                place = f"step {step}, {row['group']}, sample {row['sample']}"
                yield _first(kind, place, one[kind], other[kind], row["loss_mask"])
                break


def metric_differences(step: int, first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the differing gradient norm or loss, and the first other metric that differs."""
    found = [name for name in {**first, **second} if is_content(name) and first.get(name) != second.get(name)]
    gradient = [name for name in (names.GRADIENT_NORM, names.LOSS) if name in found]
    for kind, differing in (("gradient", gradient), ("metrics", [name for name in found if name not in gradient])):
        if differing:
            name = differing[0]
            yield Difference(kind, f"step {step}, {name}", first.get(name), second.get(name))


def _first(kind: str, place: str, one: Mapping[str, Any], other: Mapping[str, Any], mask: Any) -> Difference:
    """Name the first value that differs: of lists, with its position."""
    key = next(key for key in {**one, **other} if one.get(key) != other.get(key))
    before, after = one.get(key), other.get(key)
    if isinstance(before, list) and isinstance(after, list):
        pairs = zip(before, after, strict=False)
        index = next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(before), len(after)))
        if key == "token_ids" and not _is_sampled(mask, index):
            kind = "observations"
        before, after = (side[index] if index < len(side) else "end" for side in (before, after))
        key = f"token {index}" if key == "token_ids" else f"{key} {index}"
    return Difference(kind, f"{place}, {key}", before, after)


def _is_sampled(mask: Sequence[Sequence[Any]], index: int) -> bool:
    stop = 0
    for sampled, length in mask:
        stop += length
        if index < stop:
            return bool(sampled)
    return True


def settings_differences(first: Path, second: Path) -> Iterator[Difference]:
    """Yield the settings that differ between the recorded configurations of two runs, by their present names."""
    leaves = []
    for run in (first, second):
        try:
            leaves.append(dict(dotted_leaves(translated(read_toml(run / CONFIG_FILE)))))
        except ConfigError as error:
            raise RecordError(str(error)) from error
    for key in leaves[0] | leaves[1]:
        if key not in _PLACES and leaves[0].get(key) != leaves[1].get(key):
            yield Difference("settings", key, leaves[0].get(key), leaves[1].get(key))


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 80 else f"{text[:77]}..."
