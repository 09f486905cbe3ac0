"""Prompts that samples of a row share: the samples of a group differ only after their prompt.

The model computes a shared prompt once, and the tokens after it attend to its keys and values, so that a group of G
responses takes one prompt instead of G. Log-probabilities and gradients are those of separate samples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from torl.base.types import TrainingSample

_MIN_SAVING = 0.05  # of the tokens of a group; a shared first token alone saves nothing
_UNITS_PER_RANK = 4  # at least, if ranks must be given equal work


@dataclass(frozen=True, slots=True)
class RowUnit:
    """Samples that are in the same row: one, or several with a shared prompt."""

    samples: tuple[int, ...]
    """Indices in the batch."""
    shared_tokens: int
    """Length of the shared prompt. 0 for one sample."""
    room: int
    """Number of tokens of a row that the unit occupies. Keys and values of a shared prompt are stored for each of its
    samples: half of their number counts if that is more, so that a row has at most twice as many as tokens."""


def first_learned(sample: TrainingSample) -> int:
    """Return the index of the first token of a sample that is sampled or imitated. There must be one."""
    weights = sample.imitation_weights
    return int(np.argmax(sample.loss_mask if weights is None else sample.loss_mask | (weights > 0)))


def separate_units(samples: Sequence[TrainingSample], indices: Sequence[int]) -> list[RowUnit]:
    """Return a unit for each of the samples at `indices`."""
    return [RowUnit((index,), 0, len(samples[index])) for index in indices]


def units_with_shared_prompts(
    samples: Sequence[TrainingSample], indices: Sequence[int], *, max_row_tokens: int, ranks: int
) -> list[RowUnit]:
    """Return units of the samples at `indices`, in which samples with equal tokens before the first learned one share
    them.

    Args:
        samples: Samples of a batch. Those at `indices` have a learned token.
        indices: Indices of the samples to pack.
        max_row_tokens: Maximum number of tokens in a row.
        ranks: Number of ranks that compute different rows.
    """
    limit = max_row_tokens
    if ranks > 1:
        limit = min(limit, sum(len(samples[index]) for index in indices) // (_UNITS_PER_RANK * ranks))
    groups: dict[bytes, list[int]] = {}
    for index in indices:
        prompt = samples[index].token_ids[: first_learned(samples[index])]
        groups.setdefault(prompt.tobytes(), []).append(index)
    return [unit for group in groups.values() for unit in _units_of_group(samples, group, limit)]


def _units_of_group(samples: Sequence[TrainingSample], group: Sequence[int], limit: int) -> Iterator[RowUnit]:
    """Yield units of at most `limit` tokens, if that is possible, of samples with the same prompt."""
    prompt = first_learned(samples[group[0]])
    if prompt * (len(group) - 1) < _MIN_SAVING * sum(len(samples[index]) for index in group):
        yield from separate_units(samples, group)
        return
    members: list[int] = []
    for index in group:
        if members and _room(samples, [*members, index], prompt) > limit:
            yield _unit(samples, members, prompt)
            members = []
        members.append(index)
    yield _unit(samples, members, prompt)


def _unit(samples: Sequence[TrainingSample], members: Sequence[int], prompt: int) -> RowUnit:
    shared = prompt if len(members) > 1 else 0
    return RowUnit(tuple(members), shared, _room(samples, members, prompt))


def _room(samples: Sequence[TrainingSample], members: Sequence[int], prompt: int) -> int:
    keys = sum(len(samples[index]) for index in members)
    return max(keys - prompt * (len(members) - 1), (keys + 1) // 2)
