"""The check of the critic's recorded values, with the weights of its checkpoints."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torl.components.hub import resolve_model
from torl.learner.checkpoint.directory import LEARNER, checkpoint_path
from torl.learner.checkpoint.shards import CRITIC_TAG, ShardIndex
from torl.run.config import LearningConfig
from torl.run.records.rows import TrajectoryRecord
from torl.training.policy_versions import load_model
from torl_lab.audit.checks import Check, place_of

_LIMITS = {"float32": 1e-3, "bfloat16": 2.0**-3}
"""Limits of |difference| of a value, by the learner's dtype."""


def check_critic_values(
    check: Check,
    directory: Path,
    config: LearningConfig,
    samples: Mapping[int, Sequence[TrajectoryRecord]],
    on_compared: Callable[[], None],
) -> None:
    """Compare the values before each step with the trunk of plain transformers and the head of the checkpoint.

    A critic begins with values of 0, so that step 0 needs no weights.

    Args:
        check: Result that trajectories are counted in.
        directory: Directory of the run.
        config: Configuration of its last start.
        samples: Records with values by step, of step 0 and of steps after a checkpoint.
        on_compared: Callback after each record.
    """
    trunk: Any = None
    for step in sorted(step for step, records in samples.items() if records):
        with check.reading(f"critic before step {step}"):
            values: Callable[[TrajectoryRecord], Sequence[float]] = _zeros
            if step > 0:
                trunk = trunk or load_model(resolve_model(config.critic.path or config.model.path)).base_model
                values = _CriticValues(trunk, checkpoint_path(directory, step) / LEARNER)
            for record in samples[step]:
                found = record.token_arrays["values"][record.trajectory.loss_mask_T].tolist()
                gap = max((abs(one - two) for one, two in zip(found, values(record), strict=True)), default=0.0)
                example = f"{place_of(record)}: a value of the critic differs by {gap:.2g}"
                check.add(gap <= _LIMITS[config.learner.dtype], example, gap)
                on_compared()


def _zeros(record: TrajectoryRecord) -> Sequence[float]:
    return [0.0] * int(record.trajectory.loss_mask_T.sum())


class _CriticValues:
    """The values of a checkpoint's critic, as a function of a record."""

    def __init__(self, trunk: Any, directory: Path) -> None:
        """Load the weights of the checkpoint into the trunk."""
        with ShardIndex(directory, CRITIC_TAG) as index:
            weights = {
                name: index.read("master", name, 0, math.prod(shape)).view(shape)
                for name, shape in index.shapes.items()
            }
        self._weight, self._bias = weights["value_head.weight"], weights["value_head.bias"]
        own = {name.removeprefix("trunk."): each for name, each in weights.items() if name.startswith("trunk.")}
        trunk.load_state_dict(own, strict=False)
        self._trunk = trunk

    def __call__(self, record: TrajectoryRecord) -> Sequence[float]:
        """Return the value before each token with a loss."""
        import torch

        trajectory = record.trajectory
        ids = torch.tensor([[*trajectory.prompt.token_ids, *trajectory.token_ids_T.tolist()]])
        with torch.inference_mode():
            hidden = self._trunk(input_ids=ids, use_cache=False).last_hidden_state[0].float()
            values = (hidden @ self._weight.T + self._bias)[:, 0]
        first = len(trajectory.prompt.token_ids) - 1  # the value before a token is that of the token before it
        response = values[first : first + len(trajectory)]
        found: Sequence[float] = response[torch.from_numpy(trajectory.loss_mask_T)].tolist()
        return found
