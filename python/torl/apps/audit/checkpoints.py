"""The check of checkpoints: the ones that the run keeps exist, and their files are as they were written."""

from torl.apps.audit.checks import Check
from torl.apps.audit.history import RunHistory
from torl.errors import CheckpointError
from torl.learner.checkpoint.directory import (
    MANIFEST,
    checkpoint_path,
    checkpoint_steps,
    read_controller_state,
    verify_checkpoint,
)


def check_checkpoints(check: Check, history: RunHistory) -> None:
    """Check that the kept checkpoints of a run exist and are intact.

    A run that has not ended may still write its newest checkpoint, or have removed an older one.
    """
    existing = set(checkpoint_steps(history.directory))
    kept = _kept(history, existing)
    for step in sorted(kept | existing):
        directory = checkpoint_path(history.directory, step)
        if step not in existing:
            check.expect(f"checkpoints/{directory.name}", "a checkpoint", "none")
            continue
        if step not in kept and not (directory / MANIFEST).exists():
            continue  # a run was killed while it removed the checkpoint
        try:
            verify_checkpoint(directory)
            state = read_controller_state(directory)
        except CheckpointError as error:
            check.add(False, f"expected an intact checkpoint, found {error}")
        else:
            check.expect(
                f"checkpoints/{directory.name}",
                f"the state after step {step}",
                f"the state after step {state.get('step')}",
            )


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
    numbers = {step: value for step, value in values.items() if isinstance(value, int | float)}
    return {*kept, *([max(numbers, key=lambda step: (numbers[step], step))] if numbers else [])}
