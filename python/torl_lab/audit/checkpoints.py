"""The check of checkpoints: the ones that the run keeps exist, and their files are as they were written."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any

from torl.base.errors import CheckpointError
from torl.learner.checkpoint.directory import (
    LEARNER,
    MANIFEST,
    checkpoint_path,
    read_controller_state,
    unknown_files,
    verify_checkpoint,
)
from torl.learner.checkpoint.shards import CRITIC_TAG, POLICY_TAG, read_facts
from torl.run.config import LearningConfig, TrainConfig
from torl.run.records import metric_names as names
from torl.run.records.files import EXPORT_DIRECTORY, METRICS_FILE
from torl_lab.audit.checks import Check
from torl_lab.audit.exports import check_exported_files
from torl_lab.audit.history import RunHistory


@dataclass(slots=True)
class ReplayedState:
    """The state that the steps of a run lead to, as far as the records of all steps before are known.

    Attributes:
        positions: States of the sampler, by the number of steps before.
        problems: Ids of the problems of each step, in the order in which it plays them.
        critic_steps: Numbers of the critic's optimizer steps in each step.
    """

    positions: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    problems: dict[int, Sequence[str]] = field(default_factory=dict)
    critic_steps: dict[int, int] = field(default_factory=dict)


def check_checkpoints(check: Check, history: RunHistory, replayed: ReplayedState) -> None:
    """Check that the kept checkpoints of a run exist, are intact, and have the state that its steps lead to.

    A run that has not ended may still write its newest checkpoint, or have removed an older one.
    """
    if history.finished and not (history.directory / EXPORT_DIRECTORY).is_dir():
        check.add(False, f"{EXPORT_DIRECTORY}/: expected the exported model, found none")
    elif history.finished:
        check_exported_files(check, history.directory, history.configs[-1][1])
    _check_rows(check, history)
    existing = set(history.checkpoints)
    kept = _kept(history, existing)
    is_exact = history.finished and len(_measures(history)) == 1
    for step in sorted(kept | existing):
        directory = checkpoint_path(history.directory, step)
        if is_exact and step not in kept:
            check.expect(f"checkpoints/{directory.name}", "no checkpoint (checkpoint.keep_last)", "one")
        if step not in existing:
            check.expect(f"checkpoints/{directory.name}", "a checkpoint", "none")
            continue
        if _is_removed(history, step, kept):
            continue
        place = f"checkpoints/{directory.name}"
        try:
            verify_checkpoint(directory)
            state = read_controller_state(directory)
        except (CheckpointError, OSError) as error:
            if not _is_removed(history, step, kept):
                check.add(False, f"expected an intact checkpoint, found {error}")
            continue
        if state.get("step") != step:
            check.expect(place, f"the state after step {step}", f"the state after step {state.get('step')}")
        else:
            taken, positions = step + _steps_ahead(state, history.start_config_at(step - 1)), replayed.positions
            right = taken not in positions or _position(positions[taken]) == _position(state.get("sampler", {}))
            check.add(right, f"{place}: expected the sampler's position after step {taken}, found another")
            with check.reading(place):
                _check_ahead(check, place, step, state, replayed)
                _check_counters(check, place, step, history, replayed)
                for name in unknown_files(directory):
                    check.add(False, f"{place}/{name}: expected no such file")
    if existing:
        check.add_note("not recomputed: the optimizer's moments and random generators")


def _is_removed(history: RunHistory, step: int, kept: Collection[int]) -> bool:
    """Whether the run has removed a checkpoint since the history was read, or was killed while it removed it."""
    manifest = checkpoint_path(history.directory, step) / MANIFEST
    return history.has_removed(step) or (step not in kept and not manifest.exists())


def _steps_ahead(state: Mapping[str, Any], config: LearningConfig) -> int:
    """Return the number of steps ahead of a checkpoint whose problems had been drawn, if each draws once."""
    return len(state.get("ahead", ())) // config.rollout.prompts_per_step if isinstance(config, TrainConfig) else 0


def _check_ahead(check: Check, place: str, step: int, state: Mapping[str, Any], replayed: ReplayedState) -> None:
    """Check that the problems of steps ahead of a checkpoint are those that these steps have played."""
    check.expect(f"{place}, entries", [], sorted(state.keys() - {"step", "sampler", "ahead"}))
    known = takewhile(lambda each: each in replayed.problems, count(step))
    played = [name for each in known for name in replayed.problems[each]]
    ahead = list(state.get("ahead", ()))[: len(played)]
    check.expect(f"{place}, problems ahead", played[: len(ahead)], ahead)


def _check_counters(check: Check, place: str, step: int, history: RunHistory, replayed: ReplayedState) -> None:
    """Check the numbers of optimizer steps before a checkpoint, in the files of all ranks and models."""
    steps = range(step)
    if isinstance(history.start_config_at(step - 1), TrainConfig):
        if not all(each in history.rows.steps and each in replayed.critic_steps for each in steps):
            return  # a mismatch of another check
        policy = sum(int(history.rows.steps[each][names.UPDATES]) for each in steps)
        expected = {POLICY_TAG: policy, CRITIC_TAG: sum(replayed.critic_steps[each] for each in steps)}
    else:
        expected = {POLICY_TAG: step, CRITIC_TAG: 0}
    directory = checkpoint_path(history.directory, step) / LEARNER
    ranks = history.start_config_at(step - 1).learner.ranks
    if ranks is not None:
        files = sum(path.name.startswith(POLICY_TAG) for path in directory.glob("*.safetensors"))
        check.expect(f"{place}, files of the policy (learner.ranks)", ranks, files)
    for path in sorted(directory.glob("*.safetensors")):
        facts, tag = read_facts(path), path.name.partition("_rank_")[0]
        check.expect(f"{place}, {path.name}", {"steps": expected[tag], "counters": expected}, facts)


def _position(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a sampler without the hash of its problems, which may have changed since."""
    return {name: value for name, value in state.items() if name != "problems"}


def _check_rows(check: Check, history: RunHistory) -> None:
    """Check that metrics have a row for each checkpoint; a start removes the row of the one that it begins with."""
    if not history.receipt:
        return  # a mismatch of another check
    found = [step for step, kind in history.rows.order if kind == names.TIME_CHECKPOINT]
    expected = [step for step in _written(history) if step not in _start_steps(history)]
    if not history.finished:  # the last row may be missing, or be that of a run which the monitor has ended
        found, expected = ([step for step in steps if step < history.steps] for steps in (found, expected))
    check.expect(f"{METRICS_FILE}, checkpoints", expected, found)


def _start_steps(history: RunHistory) -> set[int]:
    return {line["step"] for line in history.receipt if line["event"] == "start"}


def _written(history: RunHistory) -> list[int]:
    """Return the steps of all checkpoints that the run wrote: as configured, and those that a start began with."""
    begun, found = _start_steps(history), []
    for step in range(1, history.steps + 1):
        config = history.start_config_at(step - 1)
        interval = config.checkpoint.every_steps
        if step == config.total_steps or (interval > 0 and step % interval == 0) or step in begun:
            found.append(step)
    return found


def _measures(history: RunHistory) -> set[str | None]:
    return {config.checkpoint.keep_best for _, config in history.configs}


def _kept(history: RunHistory, existing: set[int]) -> set[int]:
    """Return the steps of the checkpoints that must exist."""
    written = _written(history)
    kept: list[int] = []
    for step in written:
        kept = [*kept, step][-history.start_config_at(step - 1).checkpoint.keep_last :]
    if not written:
        return set()
    if not history.finished:
        # The newest is written while the run continues; the one before it, while the run waits to begin the newest.
        return {max(existing & set(written[-3:]), default=written[-3])} if len(written) > 2 else set()
    kept = kept[-history.configs[-1][1].checkpoint.keep_last :]  # of a start after the last step
    if len(_measures(history)) > 1:
        return set(kept)
    (best,) = _measures(history)
    values = {step: history.rows.evaluations.get(step, {}).get(best or "") for step in written}
    numbers = {step: names.quality(best or "", each) for step, each in values.items() if isinstance(each, int | float)}
    return {*kept, *([max(numbers, key=lambda step: (numbers[step], step))] if numbers else [])}
