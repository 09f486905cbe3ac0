"""Prove the cause of a finding: make a step again, then with one setting changed, and see if the problem vanishes."""

import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from torl.base.errors import RecordError, TorlError
from torl.run.config import TrainConfig
from torl.run.display.console import Console
from torl_lab.doctor.experiments import EXPERIMENTS
from torl_lab.doctor.history import Step, StepHistory, read_history
from torl_lab.doctor.run_check import RunFinding
from torl_lab.replay.differences import Difference
from torl_lab.replay.step import replay_step


@dataclass(frozen=True, slots=True)
class MadeStep:
    """A step that was made again."""

    step: Step
    differences: Sequence[Difference] = ()  # from the record: the first of each kind


MakeStep: TypeAlias = Callable[[int, Mapping[str, Any]], Awaitable[MadeStep]]
"""Make a step again with these changes. Raises TorlError if it cannot be made."""
ORIGINS: Final[Mapping[str, str]] = {
    "problems": "the choice of problems, or lost episodes",
    "tokens": "the engine",
    "logprobs": "the engine",
    "observations": "a tool",
    "rewards": "the reward",
    "advantages": "the estimator",
    "gradient": "the learner, or its batches",
    "metrics": "the learner, or its batches",
    "weights": "the learner, or its batches",
}
"""The parts of torl by the kinds of the first difference that they can make."""
_OF_RECORDS = ("contamination", "too-stale", "sick-worker", "slow-calls")  # no step made again can show them


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of an experiment."""

    check: str
    verdict: Literal["proved", "refuted", "undecided"]  # the named cause is the cause, or the suspected one is not
    text: str  # a sentence with the numbers

    def __str__(self) -> str:
        return f"{self.verdict}: {self.text}"


async def prove(
    history: StepHistory, finding: RunFinding, make_step: MakeStep, checkpoints: Collection[int] = ()
) -> Proof | None:
    """Prove or refute a cause of a finding. None for a check whose problem no single step can show.

    The step is first made again without a change. If the problem vanishes, its cause was outside the configuration:
    code, a process or a machine of that time, of the part that made the first difference. Otherwise the step is made
    once more with the change. A problem without an experiment is proved to come from outside the configuration if a
    step differs from its record.

    Steps with a checkpoint are made again soonest.
    """
    name = finding.check.id
    experiment = EXPERIMENTS.get(name)
    newest_first = sorted(history.steps, key=lambda step: (step.number in checkpoints, step.number), reverse=True)
    if experiment is None:
        return None if name in _OF_RECORDS else await _compare(newest_first[0].number, name, make_step)

    def shows(step: Step) -> bool:
        value = experiment.measure(step)
        return value is not None and experiment.shows(history, value)

    recorded = next(filter(shows, newest_first), None)
    if recorded is None:
        return Proof(name, "undecided", f"no single step shows the problem ({experiment.metric})")
    shown = f"step {recorded.number}: {experiment.metric}: {_text(experiment.measure(recorded))} in the record"
    changes = {} if experiment.changes is None else dict(experiment.changes(history))
    try:
        again = await make_step(recorded.number, {})
        shown += f", {_text(experiment.measure(again.step))} made again"
        if not shows(again.step):
            return Proof(name, "proved", f"{shown}. {_outside(again.differences)}")
        if experiment.changes is None:
            return Proof(name, "refuted", f"{shown}. Cause: the batch or a setting, not the host")
        if not changes:
            return Proof(name, "undecided", f"{shown}. The run does not set {experiment.cause}")
        changed = (await make_step(recorded.number, changes)).step
    except TorlError as error:
        return Proof(name, "undecided", f"{shown}; the step cannot be made again: {error}")
    settings = ", ".join(f"{setting} = {value!r}" for setting, value in changes.items())
    shown += f", {_text(experiment.measure(changed))} with {settings}"
    if shows(changed):
        return Proof(name, "refuted", f"{shown}. Cause: not {experiment.cause}")
    return Proof(name, "proved", f"{shown}. Cause: {experiment.cause}")


async def _compare(number: int, name: str, make_step: MakeStep) -> Proof:
    """Compare a step with its record."""
    try:
        differences = (await make_step(number, {})).differences
    except TorlError as error:
        return Proof(name, "undecided", f"step {number} cannot be made again: {error}")
    if not differences:
        return Proof(name, "undecided", f"step {number} made again is equal. Cause: a setting, the data or the weights")
    return Proof(name, "proved", f"step {number} made again differs. {_outside(differences)}")


def _outside(differences: Sequence[Difference]) -> str:
    """Name the cause outside the configuration, by the first difference of a step that was made again."""
    if not differences:
        return "Cause: the host at that time: the step made again is equal"
    first = differences[0]
    return f"Cause: {ORIGINS[first.kind]}, not a setting. First difference: {first}"


@dataclass(slots=True)
class StepMaker:
    """Makes steps of a run again (`replay_step`), each with the same changes once.

    Attributes:
        directory: Directory of the run, which is only read.
        config: Configuration of the run.
        console: Console for progress.
        trust: Whether to import, start and connect to what the run's files name.
    """

    directory: Path
    config: TrainConfig
    console: Console
    trust: bool = False
    _made: dict[tuple[int, str], MadeStep] = field(default_factory=dict)

    async def __call__(self, number: int, changes: Mapping[str, Any]) -> MadeStep:
        """Return a step as it is made again.

        Raises:
            TorlError: The step cannot be made again.
        """
        key = number, repr(sorted(changes.items()))
        if key not in self._made:
            with tempfile.TemporaryDirectory(prefix="torl-proof-") as scratch:
                output = Path(scratch) / "run"
                replay = await replay_step(
                    self.directory, number, changes, console=self.console, output=output, trust=self.trust
                )
                steps = read_history(output, self.config).steps
            made = next((step for step in steps if step.number == number), None)
            if made is None:
                raise RecordError(f"step {number}: made no record")
            self._made[key] = MadeStep(made, replay.differences)
        return self._made[key]


def _text(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
