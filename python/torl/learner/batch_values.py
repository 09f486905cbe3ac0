"""Numbers of a policy loss that depend on the whole batch of an optimizer step. No torch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from torl.base.types import TrainingSample
from torl.components.algorithms.losses import BatchTokens
from torl.components.algorithms.losses.batch import check_batch_values
from torl.run.config import AlgorithmConfig


def with_batch_values(samples: Sequence[TrainingSample], algorithm: AlgorithmConfig, seed: int) -> list[TrainingSample]:
    """Add the values of a policy loss that depend on the whole batch of an optimizer step, if it requires any.

    Args:
        samples: Samples of the batch, with the annotations that the loss requires.
        algorithm: Algorithm with the loss.
        seed: Random seed of the optimizer step.

    Raises:
        ComponentError: The function of the loss raised an exception, or returned an invalid value.
    """
    function = algorithm.requirements.batch_values
    if function is None:
        return list(samples)

    def sampled(name: str) -> Any:
        arrays = [getattr(sample, name) for sample in samples]
        masks = [sample.loss_mask for sample in samples]
        absent = any(array is None for array in arrays)
        return None if absent else np.concatenate([array[mask] for array, mask in zip(arrays, masks, strict=True)])

    counts = [int(sample.loss_mask.sum()) for sample in samples]
    tokens = BatchTokens(
        advantages_K=sampled("advantages"),
        rollout_logprobs_K=sampled("rollout_logprobs"),
        sequences_K=np.repeat(np.arange(len(samples)), counts),
        seed=seed,
        old_logprobs_K=sampled("old_logprobs"),
        ref_logprobs_K=sampled("ref_logprobs"),
        entropies_K=sampled("entropies"),
    )
    values_K = algorithm.policy_loss.bind_helper(function, check_batch_values)(tokens)
    found = []
    for sample, part_K in zip(samples, np.split(values_K, np.cumsum(counts)[:-1]), strict=True):
        values = np.zeros(len(sample), np.float32)
        values[sample.loss_mask] = part_K
        found.append(replace(sample, batch_values=values))
    return found
