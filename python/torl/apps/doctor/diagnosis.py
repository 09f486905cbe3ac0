"""Diseases, their registry, and the diagnoses of a run."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from torl.apps.doctor.facts import Member
from torl.apps.doctor.history import History, MissingInputError

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
        step: Step to run again as a proof, if one would prove it.
        changes: Settings that differ in that run, by dotted name.
    """

    value: float
    text: str
    evidence: tuple[str, ...] = ()
    step: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


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


def disease(id: str, sentence: str, *, metric: str, limits: Iterable[Limit], remedy: str) -> Callable[[Check], Check]:
    """Register the check of a disease."""

    def register(check: Check) -> Check:
        DISEASES[id] = Disease(id, sentence, metric, tuple(limits), remedy, check)
        return check

    return register


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
        if symptom.changes:
            settings = ", ".join(f"{name} = {value!r}" for name, value in symptom.changes.items())
            lines.append(f"  proof: run step {symptom.step} again with {settings}")
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
    """

    diagnoses: tuple[Diagnosis, ...]
    skipped: Mapping[str, str]
    healthy: tuple[str, ...]


def examine(history: History) -> Examination:
    """Check a run for all diseases."""
    diagnoses, skipped, healthy = [], {}, []
    last = history.steps[-1].number if history.steps else 0
    for each in DISEASES.values():
        try:
            symptom = each.check(history)
        except MissingInputError as missing:
            skipped[each.id] = str(missing)
            continue
        if symptom is None:
            healthy.append(each.id)
        else:
            diagnoses.append(Diagnosis(each, symptom, last))
    return Examination(tuple(diagnoses), skipped, tuple(healthy))


def addresses(members: Iterable[Member]) -> tuple[str, ...]:
    """Return the addresses of the first members, each of another group if possible."""
    chosen: dict[str, Member] = {}
    others: list[Member] = []
    for member in members:
        if member.group in chosen:
            others.append(member)
        else:
            chosen[member.group] = member
    return tuple(member.address for member in [*chosen.values(), *others][:EVIDENCE])
