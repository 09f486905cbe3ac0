"""The advantages of a step's batch, worked out again from the records."""

import statistics
from collections.abc import Sequence

import numpy as np

from torl.algorithms.advantages import EstimatorInputs
from torl.apps.audit.check import Check, place_of
from torl.apps.audit.formulas import BatchRewards, Numbers, naive_advantages, naive_kl, naive_rewards, naive_whitened
from torl.config import AlgorithmConfig, TrainConfig
from torl.records.rows import TrajectoryRecord
from torl.training.masking import masked_by_reference, masked_trajectories
from torl.training.samples import turn_numbers
from torl.types import BoolArray, Float32Array, Int32Array, ScoredTrajectory, TrainingSample

_TOLERANCE = 2e-5  # float32, beside a deviation that may be small


def check_advantages(check: Check, records: Sequence[TrajectoryRecord], config: TrainConfig) -> None:
    """Compare the advantages of a step's batch, which are in its records; token by token where a record holds them so.

    Args:
        check: to count in.
        records: of a step.
        config: of the run.
    """
    if config.ablation.shuffle_rewards:
        check.note = "the records do not hold the shuffled rewards"
        return
    algorithm = config.algorithm
    episodes = [record for record in records if record.advantage is not None]
    batch = [each for record in episodes for each in record.episode_trajectories]
    scored = [ScoredTrajectory(record.trajectory, record.grade, record.grade.reward) for record in batch]
    masks = masked_trajectories(scored, config.selection)
    if algorithm.keep_reference:
        masks |= masked_by_reference(scored, list(map(_sample, batch)), config.selection)
    quiet = frozenset(int(index) for masked in masks.values() for index in np.flatnonzero(masked))
    uncounted = frozenset[int]() if config.selection.mask_after_advantages else quiet
    payment = _payment(episodes, uncounted, algorithm)
    of_episodes = naive_advantages(algorithm, payment)
    if of_episodes is None:
        check.note = f"estimator {algorithm.estimator.name} is not torl's own: it was asked again"
        of_episodes = _asked_again(episodes, uncounted, payment, algorithm)
    following = iter([number for numbers in of_episodes for number in numbers])
    expected = [[next(following) for _ in range(_counted(index, batch, uncounted))] for index in range(len(batch))]
    expected = [[] if index in quiet else again for index, again in enumerate(expected)]
    for index, (record, again) in enumerate(zip(batch, expected, strict=True)):
        assert record.advantage is not None
        pairs = [(record.advantage, statistics.fmean(again) if again else 0.0)]
        if "advantages" in record.token_arrays:
            pairs += zip(_sampled(record, "advantages", index in quiet), again, strict=True)
        gap = max(abs(one - other) for one, other in pairs)
        right = all(abs(one - other) <= _TOLERANCE * max(1.0, abs(other)) for one, other in pairs)
        check.add(right, f"{place_of(record)}: advantage {record.advantage}, again {pairs[0][1]}", gap)


def _sample(record: TrajectoryRecord) -> TrainingSample:
    """Return the sample of a record's response. The reference logprobs of a trajectory that was masked are zeros."""
    trajectory = record.trajectory
    return TrainingSample(
        token_ids=trajectory.token_ids_T,
        loss_mask=trajectory.loss_mask_T,
        rollout_logprobs=trajectory.rollout_logprobs_T,
        ref_logprobs=record.token_arrays["ref_logprobs"],
    )


def _counted(index: int, batch: Sequence[TrajectoryRecord], quiet: frozenset[int]) -> int:
    """Tokens of a trajectory that carry a loss."""
    return 0 if index in quiet else int(batch[index].trajectory.loss_mask_T.sum())


def _payment(episodes: Sequence[TrajectoryRecord], quiet: frozenset[int], algorithm: AlgorithmConfig) -> BatchRewards:
    """What the episodes of a batch were paid, each with the tokens of all its trajectories, one after the other.

    Trajectories in `quiet`, counted through all episodes, have no token with a loss.
    """
    rewards: Numbers = []
    token_rewards: list[Numbers] = []
    values: list[Numbers] = []
    turns: list[list[int]] = []
    first = 0
    for record in episodes:
        own = list(enumerate(record.episode_trajectories, first))
        first += len(own)
        loud = [each for index, each in own if index not in quiet]
        # A silenced trajectory has no token that can be paid for its turns: their pay comes at the end.
        rewards.append(record.grade.total if first - 1 in quiet else record.grade.reward)
        token_rewards.append([paid for each in loud for paid in _token_rewards(each, algorithm)])
        turns.append(
            [0 if index in quiet else turn.stop - turn.start for index, each in own for turn in each.trajectory.turns]
        )
        if algorithm.needs_critic:
            values.append([value for each in loud for value in _sampled(each, "values")])
    groups = [record.trajectory.group_id for record in episodes]
    return BatchRewards(rewards, groups, token_rewards, values if algorithm.needs_critic else None, turns)


def _token_rewards(record: TrajectoryRecord, algorithm: AlgorithmConfig) -> Numbers:
    """What is paid at each sampled token beside the reward at the end: the turns, and the distance from a reference."""
    paid = [0.0] * int(record.trajectory.loss_mask_T.sum())
    if algorithm.penalizes_rewards:
        logprobs = (_sampled(record, name) for name in ("old_logprobs", "ref_logprobs"))
        kl = algorithm.kl
        paid = [-kl.coefficient * naive_kl(kl.estimator, *pair) for pair in zip(*logprobs, strict=True)]
    tokens = 0
    if record.grade.turn_rewards:
        for turn, reward in zip(record.trajectory.turns, record.grade.turn_rewards, strict=True):
            tokens += turn.stop - turn.start
            paid[tokens - 1] += reward
    return paid


def _sampled(record: TrajectoryRecord, name: str, quiet: bool = False) -> Numbers:
    """A number of each sampled token that carries a loss."""
    numbers: Numbers = [] if quiet else record.token_arrays[name][record.trajectory.loss_mask_T].tolist()
    return numbers


def _asked_again(
    episodes: Sequence[TrajectoryRecord], quiet: frozenset[int], payment: BatchRewards, algorithm: AlgorithmConfig
) -> list[Numbers]:
    """What the run's own estimator gives for arrays that are laid out as in training, prompts included."""
    masks: list[BoolArray] = []  # of episodes
    first = 0
    for record in episodes:
        own: list[BoolArray] = []
        for index, each in enumerate(record.episode_trajectories, first):
            mask_T = each.trajectory.loss_mask_T
            own += [np.zeros(len(each.trajectory.prompt.token_ids), np.bool_)]
            own += [np.zeros_like(mask_T) if index in quiet else mask_T]
        first += len(record.episode_trajectories)
        masks.append(np.concatenate(own))
    lengths = [len(mask) for mask in masks]
    mask_M = np.concatenate([np.zeros(0, np.bool_), *masks])

    def on_tokens(numbers: Sequence[Numbers]) -> Float32Array:
        values_M = np.zeros(len(mask_M), np.float32)
        values_M[mask_M] = [number for row in numbers for number in row]
        return values_M

    paid_by_token = algorithm.penalizes_rewards or any(record.grade.turn_rewards for record in episodes)
    estimate = algorithm.estimator.bind()(
        EstimatorInputs(
            rewards_N=np.array(naive_rewards(algorithm, payment.rewards), np.float64),
            groups_N=payment.groups,
            lengths_N=np.array(lengths, np.int64),
            mask_M=mask_M,
            token_rewards_M=on_tokens(payment.token_rewards) if paid_by_token else None,
            values_M=None if payment.values is None else on_tokens(payment.values),
            turns_M=np.concatenate([np.zeros(0, np.int32), *map(_turns_of, episodes)]),
        )
    )
    rows = np.split(estimate.advantages_M, np.cumsum(lengths)[:-1]) if lengths else []
    expected: list[Numbers] = [row[mask].tolist() for row, mask in zip(rows, masks, strict=True)]
    return naive_whitened(expected) if algorithm.normalize_advantages else expected


def _turns_of(record: TrajectoryRecord) -> Int32Array:
    return turn_numbers([each.trajectory for each in record.episode_trajectories])
