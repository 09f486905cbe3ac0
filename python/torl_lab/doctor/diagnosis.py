"""Diseases, their registry, and the diagnoses of a run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Final, Literal, TypeAlias

from torl_lab.doctor.facts import Member
from torl_lab.doctor.history import History, MissingInputError

EVIDENCE: Final = 3
"""Maximum number of trajectories that a diagnosis names."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A threshold.

    Attributes:
        value: Threshold.
        text: Condition in words, with the value.
        source: Origin of the value.
    """

    value: float
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Symptom:
    """The finding of a check.

    Attributes:
        value: Measured value.
        text: Finding in a sentence, with its numbers.
        evidence: Addresses of trajectories: file and line, relative to the run directory.
    """

    value: float
    text: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """The measurement of a check.

    Attributes:
        value: Measured value.
        text: Sentence with its numbers.
        evidence: Episodes, or addresses of trajectories, the best first.
    """

    value: float
    text: str
    evidence: Iterable[Member | str] = ()


Measurement: TypeAlias = Callable[[History], Finding | None]
"""Measure a disease; None without a reason for a diagnosis. Raises MissingInputError without the input it needs."""
Check: TypeAlias = Callable[[History], Symptom | None]
"""Return the symptom of a disease, or None. Raises MissingInputError without the input that it needs."""


@dataclass(frozen=True, slots=True)
class Disease:
    """A disease of a run.

    Attributes:
        id: Name.
        sentence: Description in a sentence.
        metric: Measure.
        limits: Thresholds.
        remedy: Settings to change.
        check: Check of a history.
    """

    id: str
    sentence: str
    metric: str
    limits: tuple[Limit, ...]
    remedy: str
    check: Check


DISEASES: Final[dict[str, Disease]] = {}
"""All diseases by their ids, in the order in which they are checked."""


def disease(
    id: str,
    sentence: str,
    *,
    metric: str,
    limits: Sequence[Limit],
    remedy: str,
    fires: Literal["above", "below"] | None = None,
    while_flat: bool = False,
    needs: Callable[[History], object] = lambda history: None,
) -> Callable[[Measurement], Check]:
    """Make the check of a disease from a function that measures it, and register the disease.

    Args:
        id: Name.
        sentence: Description in a sentence.
        metric: Measure.
        limits: Thresholds.
        remedy: Settings to change.
        fires: Side of the first threshold on which a value is sick. None if the function compares.
        while_flat: Whether the finding is a disease only while the reward does not rise.
        needs: Function that raises MissingInputError if the run cannot have the disease.
    """

    def register(measure: Measurement) -> Check:
        @wraps(measure)
        def check(history: History) -> Symptom | None:
            needs(history)
            found = measure(history)
            if found is None or (fires == "above" and found.value <= limits[0].value):
                return None
            if (fires == "below" and found.value >= limits[0].value) or (while_flat and history.is_learning):
                return None
            return Symptom(found.value, found.text, addresses(found.evidence))

        DISEASES[id] = Disease(id, sentence, metric, tuple(limits), remedy, check)
        return check

    return register


def fraction_of(
    members: Sequence[Member],
    is_sick: Callable[[Member], object],
    text: str,
    *,
    first: Callable[[Member], float] = lambda member: 0,
) -> Finding:
    """Return the fraction of sick episodes as a finding.

    Args:
        members: Episodes, at least one.
        is_sick: Whether an episode counts.
        text: Sentence with the fields {fraction}, {count} and {all}.
        first: Key by which the evidence is ordered, the largest first.
    """
    sick = [member for member in members if is_sick(member)]
    fraction = len(sick) / len(members)
    found = text.format(fraction=fraction, count=len(sick), all=len(members))
    sick.sort(key=first, reverse=True)
    return Finding(fraction, found, sick)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A disease that a run has.

    Attributes:
        disease: Disease.
        symptom: Finding.
        last_step: Latest step that was examined.
    """

    disease: Disease
    symptom: Symptom
    last_step: int

    def lines(self) -> list[str]:
        """Return the diagnosis as lines: the finding, threshold, evidence and remedy."""
        limits = "; ".join(f"{limit.text} ({limit.source})" for limit in self.disease.limits)
        symptom = self.symptom
        lines = [
            f"{self.disease.id}: {self.disease.sentence}",
            f"  found: {symptom.text}",
            f"  threshold of {self.disease.metric}: {limits}",
        ]
        if symptom.evidence:
            lines.append(f"  see: {', '.join(symptom.evidence)}")
        lines.append(f"  change: {self.disease.remedy}")
        return lines

    def __str__(self) -> str:
        """Return the diagnosis in one line."""
        return f"{self.disease.id}: {self.symptom.text}; {self.disease.remedy}"


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of all checks of a run.

    Attributes:
        diagnoses: Diseases that the run has.
        skipped: Reasons by the ids of diseases whose input is missing.
        healthy: Ids of the other diseases.
        failed: Exceptions by the ids of diseases whose check raised one, which is a bug of torl.
    """

    diagnoses: tuple[Diagnosis, ...]
    skipped: Mapping[str, str]
    healthy: tuple[str, ...]
    failed: Mapping[str, Exception] = field(default_factory=dict)


def examine(history: History) -> Examination:
    """Check a run for all diseases. A check that raises an exception does not stop the others."""
    diagnoses, skipped, healthy, failed = [], {}, [], {}
    last = history.steps[-1].number if history.steps else 0
    for each in DISEASES.values():
        if each.id in history.config.health.ignore:
            skipped[each.id] = "health.ignore"
            continue
        try:
            symptom = each.check(history)
        except MissingInputError as missing:
            skipped[each.id] = str(missing)
            continue
        except Exception as error:
            failed[each.id] = error
            continue
        if symptom is None:
            healthy.append(each.id)
        else:
            diagnoses.append(Diagnosis(each, symptom, last))
    return Examination(tuple(diagnoses), skipped, tuple(healthy), failed)


def addresses(evidence: Iterable[Member | str]) -> tuple[str, ...]:
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
