"""Pack training samples into rows, with the same number of rows for each rank; compute values of a whole batch."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

import torl._core as _core
from torl.base.types import Float32Array, TrainingSample
from torl.components.algorithms.aggregation import Aggregation, by_token
from torl.components.algorithms.losses import BatchTokens
from torl.components.algorithms.losses.entropy_control import check_batch_values
from torl.learner.imitation import check_imitation, count_imitated
from torl.learner.rows import SAMPLED_ARRAYS, PackedRow, make_row
from torl.learner.shared_prompts import separate_units, units_with_shared_prompts
from torl.run.config import AlgorithmConfig


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of every rank, and their totals."""

    rows: tuple[tuple[PackedRow, ...], ...]
    """Rows of each rank, the same number for all ranks."""
    sampled_tokens: int
    imitated_tokens: int
    tokens: int
    """Number of tokens of the samples. The rows have fewer if samples share prompts."""
    samples: int


def pack_batch(
    samples: Sequence[TrainingSample],
    *,
    max_row_tokens: int,
    ranks: int,
    aggregation: Aggregation = by_token,
    skip_zero_advantage: bool = False,
    ranks_per_row: int = 1,
    policy_version: int | None = None,
    share_prompts: bool = False,
) -> Batch:
    """Pack samples into rows for all ranks. The loss does not depend on the numbers of rows and ranks.

    Samples without a sampled or imitated token are left out. The cross-entropy of imitated tokens is divided by their
    number in the whole batch, regardless of `aggregation`.

    Args:
        samples: Samples of an optimizer step.
        max_row_tokens: Maximum number of tokens in a row. A longer sample makes longer rows.
        ranks: Number of ranks, a multiple of `ranks_per_row`.
        aggregation: Function that returns the loss weight of each episode. An episode of several samples counts once.
        skip_zero_advantage: Whether to leave out samples whose advantages are all 0, unless they imitate tokens, to
            save time. They still count in the aggregation.
        ranks_per_row: Number of neighboring ranks that get the same rows (sequence parallelism). Rows may be longer by
            this factor.
        policy_version: Version of the policy that is being trained, for `PackedRow.on_policy_K`.
        share_prompts: Whether a row has the equal prompts of samples once. The model needs packed attention.

    Raises:
        ValueError: No sample remains; only some samples have an array; an array differs from its sample in length or
            contains a non-finite number; or the first token of a sample is marked as sampled, which no token predicts.
    """
    for index, sample in enumerate(samples):
        _check(index, sample)
        check_imitation(index, sample)
    for name in SAMPLED_ARRAYS.values():
        if len({getattr(sample, name) is None for sample in samples}) > 1:
            raise ValueError(f"some samples of a batch have {name}, others do not")
    counts = [int(sample.loss_mask.sum()) for sample in samples]
    imitated = list(map(count_imitated, samples))
    weights = _weights(samples, counts, aggregation)
    packed = [
        index
        for index, sample in enumerate(samples)
        if imitated[index] or (counts[index] and not (skip_zero_advantage and not carries_advantage(sample)))
    ]
    if not packed:
        raise ValueError(f"a batch of {len(samples)} samples has no sampled or imitated token to learn from")
    rows_of_ranks, capacity = ranks // ranks_per_row, max_row_tokens * ranks_per_row
    if share_prompts:
        units = units_with_shared_prompts(samples, packed, max_row_tokens=capacity, ranks=rows_of_ranks)
    else:
        units = separate_units(samples, packed)
    room = [unit.room for unit in units]
    layout = _core.pack(room, max(capacity, *room), rows_of_ranks)
    rows = tuple(
        tuple(
            make_row([units[index] for index in indices], samples, weights, policy_version, sum(imitated))
            for indices in rank_rows
        )
        for rank_rows in layout
    )
    rows = tuple(rank_rows for rank_rows in rows for _ in range(ranks_per_row))
    return Batch(
        rows,
        sum(counts[index] for index in packed),
        sum(imitated),
        sum(len(samples[index]) for index in packed),
        len(packed),
    )


def _weights(
    samples: Sequence[TrainingSample], counts: Sequence[int], aggregation: Aggregation
) -> npt.NDArray[np.float64]:
    """Return the loss weight of each sample's tokens. An episode counts once, with the tokens of all its samples."""
    episodes = indices_by_episode(samples)
    weights = aggregation(np.array([sum(counts[index] for index in episode) for episode in episodes], dtype=np.int64))
    if np.shape(weights) != (len(episodes),):
        raise ValueError(f"the aggregation gave weights of shape {np.shape(weights)} for {len(episodes)} episodes")
    sample_weights = np.zeros(len(samples))
    for episode, weight in zip(episodes, weights, strict=True):
        sample_weights[episode] = weight
    return sample_weights


def indices_by_episode(samples: Sequence[TrainingSample]) -> list[list[int]]:
    """Return the indices of each episode's samples, in order. A sample without an episode forms one."""
    episodes: dict[Hashable, list[int]] = {}
    for index, sample in enumerate(samples):
        key = ("single", index) if sample.episode is None else sample.episode
        episodes.setdefault(key, []).append(index)
    return list(episodes.values())


def carries_advantage(sample: TrainingSample) -> bool:
    """Whether any token of the sample has an advantage that is not zero."""
    return sample.advantages is not None and bool(sample.advantages.any())


def has_loss(samples: Sequence[TrainingSample]) -> bool:
    """Whether any token was sampled and carries a loss."""
    return any(sample.loss_mask.any() for sample in samples)


def scatter_to_samples(
    samples: Sequence[TrainingSample], rows: Sequence[PackedRow], values: Sequence[Float32Array]
) -> list[Float32Array]:
    """Return the `_K` values of rows as one array for each sample, with 0 on tokens that were not sampled."""
    result = [np.zeros(len(sample), dtype=np.float32) for sample in samples]
    for row, value_K in zip(rows, values, strict=True):
        for sample, offset, value in zip(row.sample_K, row.offset_K, value_K, strict=True):
            result[sample][offset] = value
    return result


def _check(index: int, sample: TrainingSample) -> None:
    for name in ("loss_mask", "policy_versions", *SAMPLED_ARRAYS.values()):
        array = getattr(sample, name)
        if array is None:
            continue
        if len(array) != len(sample):
            raise ValueError(f"sample {index}: {name} has {len(array)} entries for {len(sample)} tokens")
        if name != "loss_mask" and not np.isfinite(array).all():
            raise ValueError(f"sample {index}: {name} contains a value that is not finite")
    if len(sample) and sample.loss_mask[0]:
        raise ValueError(f"sample {index}: the first token is marked as sampled, but nothing comes before it")


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
