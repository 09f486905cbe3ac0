"""Checkpoints of a whole learner: every rank writes its part into one directory, or reads it back. No torch."""

from pathlib import Path
from typing import Any

from torl.errors import CheckpointError
from torl.learner.checkpoint.directory import LEARNER, read_controller_state, verify_checkpoint, writing_checkpoint
from torl.learner.messages import LearnerSetup
from torl.learner.ranks import RankGroup


async def save_ranks(group: RankGroup, setup: LearnerSetup, directory: Path, controller_state: dict[str, Any]) -> None:
    """Write a checkpoint; see `Learner.save_checkpoint`."""
    with writing_checkpoint(directory, controller_state, _facts(group, setup)) as partial:
        (partial / LEARNER).mkdir()
        await group.call_all("save_checkpoint", directory=partial / LEARNER)


async def load_ranks(group: RankGroup, setup: LearnerSetup, directory: Path) -> dict[str, Any]:
    """Put every rank back and return the controller's state; see `Learner.load_checkpoint`."""
    written, own = verify_checkpoint(directory), _facts(group, setup)
    if written != own:
        raise CheckpointError(f"checkpoint {directory} was written with {written}; this learner has {own}")
    await group.call_all("load_checkpoint", directory=directory / LEARNER)
    return read_controller_state(directory)


def _facts(group: RankGroup, setup: LearnerSetup) -> dict[str, Any]:
    """What has to fit between a checkpoint and the learner that loads it."""
    facts = {"ranks": len(group.ranks), "zero_stage": setup.learner.zero_stage, "dtype": setup.learner.dtype}
    return facts | {"critic": True} if setup.algorithm.needs_critic else facts
