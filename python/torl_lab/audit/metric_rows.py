"""The rows of `metrics.jsonl`: their kinds, and the order in which a run writes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from torl.base.errors import RecordError
from torl.run.records import metric_names as names
from torl.run.records.files import METRICS_FILE
from torl.run.records.reading import read_metrics
from torl_lab.audit.checks import Check

_KINDS = (names.TIME_CHECKPOINT, names.TIME_EVALUATION, names.TIME_STEP)
"""The times that only rows of one kind have, in the order of the rows of a number of steps."""


@dataclass(frozen=True, slots=True)
class MetricRows:
    """The rows of a run.

    Attributes:
        steps: Rows of steps.
        evaluations: Rows of evaluations, by the number of steps before.
        order: Step and kind of each row, in the order of the file.
    """

    steps: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    evaluations: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    order: list[tuple[int, str]] = field(default_factory=list)

    @classmethod
    def read(cls, directory: Path, before: int, check: Check, *, supervised: bool) -> Self:
        """Read the rows before a step. Damaged and unknown ones are counted in `check`.

        Args:
            directory: Run directory.
            before: First step whose rows are left out.
            check: Result that the rows are counted in.
            supervised: Whether the run is a fine-tuning run.
        """
        found = cls()
        for row in _rows(directory, check):
            step, kind = row.get("step"), _kind_of(row, supervised=supervised)
            if not isinstance(step, int) or isinstance(step, bool) or step < 0:
                check.add(False, f"{METRICS_FILE}: expected a step in each row, found {step!r}")
            elif kind is None:
                check.add(
                    False, f"{METRICS_FILE}: expected a row of a step, an evaluation or a checkpoint, found {row}"
                )
            elif step < before:
                found.order.append((step, kind))
                kinds = {str(names.TIME_STEP): found.steps, str(names.TIME_EVALUATION): found.evaluations}
                rows = kinds.get(kind, {})
                if step in rows:
                    check.add(False, f"{METRICS_FILE}: expected one row of step {step} with {kind}, found two")
                rows[step] = row
        return found

    def check_order(self, check: Check, last: int) -> None:
        """Check that each row is once in the file, in the order in which a run writes them.

        Args:
            check: Result that the rows are counted in.
            last: Number of steps of the run, after which it evaluates before it writes its checkpoint.
        """

        def place(row: tuple[int, str]) -> tuple[int, int]:
            step, kind = row
            order = _KINDS if step < last else (names.TIME_EVALUATION, names.TIME_CHECKPOINT, names.TIME_STEP)
            return step, order.index(kind)

        for one, other in pairwise(self.order):
            if place(one) >= place(other):
                found = " and ".join(f"step {step} with {kind}" for step, kind in (one, other))
                check.add(False, f"{METRICS_FILE}: expected rows in the order of the run, each once, found {found}")


def _rows(directory: Path, check: Check) -> list[dict[str, Any]]:
    try:
        return read_metrics(directory)
    except RecordError as error:
        check.add(False, str(error))
        return []


def _kind_of(row: Mapping[str, Any], *, supervised: bool) -> str | None:
    """Return the time that only rows of this kind have; None if a row has several, none, or metrics of another kind."""
    kinds = [name for name in _KINDS if name in row]
    others = row.keys() - {"step", "time", *kinds}
    validation = (names.VALIDATION_LOSS, names.VALIDATION_TOKENS) if supervised else ()
    evaluated = {name for name in others if names.split_evaluation(name) or name in validation}
    allowed = {names.TIME_STEP: others - evaluated, names.TIME_EVALUATION: evaluated, names.TIME_CHECKPOINT: set()}
    return kinds[0] if len(kinds) == 1 and others == allowed[kinds[0]] else None
