"""The check of checkpoints: the ones that the run keeps exist, and their files are as they were written."""

from collections.abc import Mapping
from typing import Any

from torl.apps.audit.checks import Check
from torl.apps.audit.history import RunHistory
from torl.config import LearningConfig, TrainConfig
from torl.errors import CheckpointError
from torl.learner.checkpoint.directory import (
    MANIFEST,
    checkpoint_path,
    checkpoint_steps,
    read_controller_state,
    verify_checkpoint,
)
from torl.records import metric_names as names
from torl.records.files import EXPORT_DIRECTORY


def check_checkpoints(check: Check, history: RunHistory, positions: Mapping[int, Mapping[str, Any]]) -> None:
    """Check that the kept checkpoints of a run exist and are intact.

    A run that has not ended may still write its newest checkpoint, or have removed an older one.

    Args:
        check: Result that the checkpoints are counted in.
        history: History of the run.
        positions: States of the sampler that are known, by the number of steps before.
    """
    if history.finished and not (history.directory / EXPORT_DIRECTORY).is_dir():
        check.add(False, f"{EXPORT_DIRECTORY}/: expected the exported model, found none")
    existing = set(checkpoint_steps(history.directory))
    kept = _kept(history, existing)
    for step in sorted(kept | existing):
        directory = checkpoint_path(history.directory, step)
        if step not in existing:
            check.expect(f"checkpoints/{directory.name}", "a checkpoint", "none")
            continue
        if step not in kept and not (directory / MANIFEST).exists():
            continue  # a run was killed while it removed the checkpoint
        place = f"checkpoints/{directory.name}"
        try:
            verify_checkpoint(directory)
            state = read_controller_state(directory)
        except CheckpointError as error:
            check.add(False, f"expected an intact checkpoint, found {error}")
            continue
        if state.get("step") != step:
            check.expect(place, f"the state after step {step}", f"the state after step {state.get('step')}")
        else:
            taken = step + _steps_ahead(state, history.start_config_at(step - 1))
            right = taken not in positions or _position(positions[taken]) == _position(state.get("sampler", {}))
            check.add(right, f"{place}: expected the sampler's position after step {taken}, found another")


def _steps_ahead(state: Mapping[str, Any], config: LearningConfig) -> int:
    """Return the number of steps ahead of a checkpoint whose problems had been drawn, if each draws once."""
    return len(state.get("ahead", ())) // config.rollout.prompts_per_step if isinstance(config, TrainConfig) else 0


def _position(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a sampler without the hash of its problems, which may have changed since."""
    return {name: value for name, value in state.items() if name != "problems"}


def _kept(history: RunHistory, existing: set[int]) -> set[int]:
    """Return the steps of the checkpoints that must exist."""
    written: list[int] = []
    kept: list[int] = []
    for step in range(1, history.steps + 1):
        config = history.config_at(step - 1)
        interval = config.checkpoint.every_steps
        if step == config.total_steps or (interval > 0 and step % interval == 0):
            written.append(step)
            kept = [*kept, step][-config.checkpoint.keep_last :]
    if not written:
        return set()
    if not history.finished:
        return {max(existing & set(written[-2:]), default=written[-2])} if len(written) > 1 else set()
    measures = {config.checkpoint.keep_best for _, config in history.configs}
    if len(measures) > 1:
        return set(kept)
    best = measures.pop() or ""
    values = {step: history.evaluation_rows.get(step, {}).get(best) for step in written}
    numbers = {step: names.quality(best, value) for step, value in values.items() if isinstance(value, int | float)}
    return {*kept, *([max(numbers, key=lambda step: (numbers[step], step))] if numbers else [])}
