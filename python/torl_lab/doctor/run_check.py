"""The declaration of a check of a run: what it measures, its limits, and the settings to change."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from statistics import fmean, median
from typing import Final, Literal, Self

from torl.base.guard import InvalidResultError, calling, describe
from torl.run.records.thresholds import Limit
from torl_lab.doctor.facts import Member
from torl_lab.doctor.history import StepHistory

EVIDENCE: Final = 3
"""Maximum number of trajectories that a finding names."""
_CERTAIN: Final = 3.0  # standard deviations, of a check that is repeated at every step
_CERTAIN_OF_TWO: Final = 4.0  # the same, of the difference of two fractions
_LEAP: Final = 8.0  # the same, of a value after others
_SIGMA: Final = 1.4826  # of a median absolute deviation, for a normal distribution


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of a check's function.

    Attributes:
        value: Measured value, which is compared with the first limit if the check has a side (`fires`).
        text: Sentence with the numbers, for a finding.
        evidence: Episodes, or addresses of trajectories, the best first.
    """

    value: float
    text: str
    evidence: Iterable[Member | str] = ()


@dataclass(slots=True, eq=False)
class RunCheck:
    """A check of a run, and the decorator of the function that measures it.

    The function returns None without a reason for a finding, and raises MissingInputError without its input.

    Attributes:
        sentence: Description of the problem in a sentence.
        metric: Measure, in words.
        limits: Thresholds, at least one.
        fix: Settings to change.
        fires: Side of the first threshold on which a value is a finding. None if the function compares.
        while_flat: Whether a value is a finding only while the reward does not rise.
        needs: Function that raises MissingInputError if the run cannot have the problem.
        id: Name: that of the function, with hyphens.
        measure: Function.

    Raises:
        ValueError: `limits` is empty or has something else, or `fires` is another word.
    """

    sentence: str
    _: KW_ONLY
    metric: str
    limits: Sequence[Limit]
    fix: str
    fires: Literal["above", "below"] | None = None
    while_flat: bool = False
    needs: Callable[[StepHistory], object] = lambda history: None
    id: str = field(default="", init=False)
    measure: Callable[[StepHistory], Measurement | None] = field(init=False)

    def __post_init__(self) -> None:
        if not self.limits or not all(isinstance(limit, Limit) for limit in self.limits):
            raise ValueError(f"limits must be one Limit or more, got {self.limits}")
        if self.fires not in (None, "above", "below"):
            raise ValueError(f'fires must be None, "above" or "below", got {self.fires!r}')

    def __call__(self, measure: Callable[[StepHistory], Measurement | None]) -> Self:
        """Complete the check by its function."""
        self.id, self.measure = measure.__name__.replace("_", "-"), measure
        return self

    @property
    def thresholds(self) -> str:
        """The thresholds in words, each with its source."""
        return "; ".join(f"{limit.text} ({limit.source})" for limit in self.limits)

    def find(self, history: StepHistory) -> "RunFinding | None":
        """Return what the check finds in a run, or None.

        Raises:
            MissingInputError: The run lacks the input of the check.
            ComponentError: The check raised another exception, or returned an invalid value.
        """
        with calling("check", self.measure, "", history):
            self.needs(history)
            measured: object = self.measure(history)
            if measured is None:
                return None
            if not isinstance(measured, Measurement):
                raise InvalidResultError(f"expected a Measurement or None, got {describe(measured)}")
            value, limit = measured.value, self.limits[0].value
            if (self.fires == "above" and value <= limit) or (self.fires == "below" and value >= limit):
                return None
            if self.while_flat and history.is_learning:
                return None
            return RunFinding(self, value, measured.text, _addresses(measured.evidence))


@dataclass(frozen=True, slots=True)
class RunFinding:
    """A check that fired.

    Attributes:
        check: Check.
        value: Measured value.
        text: Sentence with the numbers.
        evidence: Addresses of trajectories: file and line, relative to the run directory.
    """

    check: RunCheck
    value: float
    text: str
    evidence: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return the finding as lines: the problem, numbers, thresholds, evidence and settings to change."""
        return [
            f"{self.check.id}: {self.check.sentence}",
            f"  found: {self.text}",
            f"  threshold of {self.check.metric}: {self.check.thresholds}",
            *([f"  see: {', '.join(self.evidence)}"] if self.evidence else []),
            f"  change: {self.check.fix}",
        ]

    def __str__(self) -> str:
        """Return the finding in one line."""
        return f"{self.check.id}: {self.text}; {self.check.fix}"


def fraction_of(
    members: Sequence[Member],
    counts: Callable[[Member], object],
    text: str,
    *,
    first: Callable[[Member], float] = lambda member: 0,
) -> Measurement:
    """Return the fraction of episodes that count.

    Args:
        members: Episodes, at least one.
        counts: Whether an episode counts.
        text: Sentence with the fields {fraction}, {count} and {all}.
        first: Key by which the evidence is ordered, the largest first.
    """
    counted = sorted(filter(counts, members), key=first, reverse=True)
    fraction = len(counted) / len(members)
    return Measurement(fraction, text.format(fraction=fraction, count=len(counted), all=len(members)), counted)


def exceeds(fraction: float, count: int, limit: float) -> bool:
    """Whether a fraction of `count` cases is above a limit by 3 standard deviations of chance, or is 1."""
    return fraction == 1 or fraction > limit + _CERTAIN * math.sqrt(limit * (1 - limit) / count)


def certain_excess(own: Sequence[bool], others: Sequence[bool]) -> float:
    """Return by how much a fraction is above the others'; 0 if it is not by 4 standard deviations of chance."""
    pooled, found = fmean([*own, *others]), fmean(own) - fmean(others)
    deviation = math.sqrt(pooled * (1 - pooled) * (1 / len(own) + 1 / len(others)))
    return found if found > _CERTAIN_OF_TWO * deviation else 0.0


def leaps(value: float, before: Sequence[float], factor: float) -> bool:
    """Whether a value is above `factor` times the median of earlier ones, and 8 robust standard deviations above it."""
    center = median(before)
    deviation = _SIGMA * median(abs(each - center) for each in before)
    return value > factor * center and value - center > _LEAP * deviation


def _addresses(evidence: Iterable[Member | str]) -> tuple[str, ...]:
    """Return the first addresses, each of another group if possible."""
    chosen: dict[str, str] = {}
    others: list[str] = []
    for each in evidence:
        group, address = (each, each) if isinstance(each, str) else (each.group, each.address)
        if group in chosen:
            others.append(address)
        else:
            chosen[group] = address
    return tuple([*chosen.values(), *others][:EVIDENCE])
