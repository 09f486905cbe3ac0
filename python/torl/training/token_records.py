"""The groups of a step whose tokens the learner records, and the records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from random import Random

from torl._core import Vocabulary
from torl.base.seeds import derive_seed
from torl.base.types import Float32Array, ScoredGroup, TrainingSample, UpdateNumbers
from torl.components.algorithms.reward_advantages import indices_by_group
from torl.components.text.tokenizer import PlainTextEncoder
from torl.learner.batch import carries_advantage
from torl.learner.imitation import count_imitated
from torl.learner.learner import Learner
from torl.rollout.episode import EpisodePlayer
from torl.run.config import TrainConfig
from torl.run.records.tokens import TokenKey


def recorded_samples(
    groups: Sequence[ScoredGroup], samples: Sequence[TrainingSample], step: int, config: TrainConfig
) -> dict[int, UpdateNumbers | None]:
    """Return the samples whose tokens are recorded, for `Learner.update`.

    Args:
        groups: Groups of the batch.
        samples: Samples of the batch, in the order of the members' `episode_trajectories`.
        step: Step.
        config: Configuration of the run.
    """
    learned = [
        indices
        for indices in indices_by_group([place.group for place in _places(groups)])
        if any(learns_from(samples[index], config) for index in indices)
    ]
    return dict.fromkeys(index for indices in draw_groups(learned, step, config) for index in indices)


def draw_groups(learned: Sequence[list[int]], step: int, config: TrainConfig) -> list[list[int]]:
    """Return the recorded ones of the groups that are learned from, by `run.token_groups` and the seed of the run."""
    wanted = config.run.token_groups
    if wanted == "all" or wanted >= len(learned):
        return list(learned)
    return Random(derive_seed(config.run.seed, step, "recorded groups")).sample(learned, wanted)


def learns_from(sample: TrainingSample, config: TrainConfig) -> bool:
    """Whether an optimizer step has the sample."""
    has_loss = bool(sample.loss_mask.any())
    return bool(count_imitated(sample)) or (
        has_loss and (config.algorithm.learns_without_advantage or carries_advantage(sample))
    )


async def call_logprobs(
    learner: Learner, samples: Sequence[TrainingSample], recorded: Iterable[int], step: int, player: EpisodePlayer
) -> dict[int, Float32Array]:
    """Return the log-probabilities of the token that opens a call, before the first optimizer step.

    Returns:
        An array (K,) over the tokens with a loss of each recorded sample; empty for a format without such a token.
    """
    indices, token = list(recorded), call_opening_token(player)
    if token is None or not indices:
        return {}
    found = await learner.logprobs([samples[index] for index in indices], step=step, token=token)
    return {
        index: sample.old_logprobs[sample.loss_mask]
        for index, sample in zip(indices, found, strict=True)
        if sample.old_logprobs is not None
    }


def call_opening_token(player: EpisodePlayer) -> int | None:
    """Return the first token of the text that opens a call: the control token with this text, or of plain text."""
    opening = player.format.call_opening
    return None if opening is None else _first_token(player.vocabulary, player.encoder, opening)


@lru_cache(maxsize=4)
def _first_token(vocabulary: Vocabulary, encoder: PlainTextEncoder, text: str) -> int:
    wanted = text.encode()
    control = (token for token in range(len(vocabulary)) if vocabulary.decode_bytes([token]) == wanted)
    return next(control, encoder.encode(text)[0])


def token_records(
    groups: Sequence[ScoredGroup],
    recorded: Mapping[int, UpdateNumbers | None],
    opened: Mapping[int, Float32Array],
) -> dict[TokenKey, UpdateNumbers]:
    """Return the numbers of the recorded samples by trajectory, without samples that no optimizer step has.

    Args:
        groups: Groups of the batch.
        recorded: Numbers of each recorded sample.
        opened: `call_logprobs` of each recorded sample.
    """
    places, found = _places(groups), {}
    for index, numbers in sorted(recorded.items()):
        if numbers is not None:
            more = {"call_logprobs": opened[index]} if index in opened else {}
            found[places[index]] = replace(numbers, arrays={**numbers.arrays, **more})
    return found


def _places(groups: Sequence[ScoredGroup]) -> list[TokenKey]:
    return [
        TokenKey(each.trajectory.group_id, each.trajectory.sample_index, branch)
        for group in groups
        for member in group.members
        for branch, each in enumerate(member.episode_trajectories)
    ]
