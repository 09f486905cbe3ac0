"""From the files of an evaluation to numbers, each with its interval."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np

from torl.apps.evaluation.cells import EvaluationCell, cells_in, models_in, problems_of
from torl.apps.evaluation.statistics import Interval, Values, bootstrap, majority, mean_over_sets, pass_at_k
from torl.errors import RecordError
from torl.types import ScoredGroup

AVERAGE = "average"


@dataclass(frozen=True, slots=True)
class Variant:
    """A model with a number of tool calls: for each measure and each set one number for each problem.

    Problems whose prompts are too long are among them, with 0.
    """

    model: str
    calls: int
    measures: Mapping[str, Mapping[str, Values]]

    @property
    def label(self) -> str:
        """As in tables."""
        return f"{self.model}, N = {self.calls}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over problems, or over sets, with its 95 % interval."""

    value: float
    interval: Interval


def read_results(output: Path) -> list[Variant]:
    """What the files of an evaluation show, by model and number of calls.

    Raises:
        RecordError: there is nothing, a file is damaged, or a set is not played to its end.
    """
    arms: dict[tuple[str, int], dict[str, dict[str, Values]]] = {}
    for directory in models_in(output):
        for cell in cells_in(directory):
            measures = arms.setdefault((directory.name, cell.calls), {})
            for measure, values_P in _measures(cell):
                measures.setdefault(measure, {})[cell.set_name] = values_P
    if not arms:
        raise RecordError(f"{output}: holds no evaluation")
    return [Variant(model, calls, measures) for (model, calls), measures in sorted(arms.items(), key=itemgetter(0))]


def estimates(sets: Mapping[str, Values]) -> dict[str, Estimate]:
    """Each set's mean, and the mean over all of them under `AVERAGE` where there is more than one."""
    told = {name: _estimate([values_P]) for name, values_P in sets.items()}
    return told | ({AVERAGE: _estimate(list(sets.values()))} if len(sets) > 1 else {})


def overall(found: Mapping[str, Estimate]) -> Estimate:
    """The mean over the sets, which is that of the only set where there is one."""
    return found[AVERAGE] if AVERAGE in found else next(iter(found.values()))


def difference(arm: Variant, other: Variant, measure: str) -> dict[str, Estimate]:
    """How much better `arm` is than `other` on the sets that both have: paired by problem.

    Raises:
        RecordError: a set has other problems in the two.
    """
    pairs: dict[str, Values] = {}
    for name, values_P in arm.measures[measure].items():
        others_P = other.measures.get(measure, {}).get(name)
        if others_P is None:
            continue
        if len(others_P) != len(values_P):
            raise RecordError(f"{name}: {arm.label} and {other.label} were played on different problems")
        pairs[name] = values_P - others_P
    return estimates(pairs) if pairs else {}


def tool_differences(arms: Sequence[Variant]) -> Iterator[tuple[Variant, Variant]]:
    """Each arm with a tool, and the same model without it."""
    without = {arm.model: arm for arm in arms if arm.calls == 0}
    yield from ((arm, without[arm.model]) for arm in arms if arm.calls > 0 and arm.model in without)


def _estimate(sets: Sequence[Values]) -> Estimate:
    return Estimate(mean_over_sets(sets), bootstrap(sets))


def _measures(cell: EvaluationCell) -> Iterator[tuple[str, Values]]:
    groups = {group.prompt.problem.id: group for group in cell.file.read()}
    played, too_long = problems_of(cell.directory, cell.set_name)
    if missing := [problem for problem in played if problem not in groups]:
        raise RecordError(f"{cell.file.path}: {len(missing)} problems are not played yet: run the same command again")
    ordered = [groups[problem] for problem in played]
    unplayed = np.zeros(len(too_long))
    if cell.mode == "greedy":
        yield "greedy", np.append([group.accuracy for group in ordered], unplayed)
        return
    samples = len(ordered[0].members)
    correct = [sum(member.grade.correct for member in group.members) for group in ordered]
    yield f"avg@{samples}", np.append(np.array(correct) / samples, unplayed)
    yield f"maj@{samples}", np.append([_majority(group) for group in ordered], unplayed)
    for k in _powers_of_two(samples):
        yield f"pass@{k}", np.append([pass_at_k(samples, count, k) for count in correct], unplayed)


def _majority(group: ScoredGroup) -> float:
    grades = [member.grade for member in group.members]
    return majority([grade.answer for grade in grades], [grade.correct for grade in grades])


def _powers_of_two(samples: int) -> list[int]:
    """2, 4, ... below the number of samples, and that number; pass@1 is the average."""
    powers = [2**power for power in range(1, samples.bit_length()) if 2**power < samples]
    return [*powers, samples] if samples > 1 else []
