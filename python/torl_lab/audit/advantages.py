"""The check of a step's advantages, recomputed from its records."""

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from torl.base.types import BoolArray, Float32Array, Int32Array, ScoredTrajectory, TrainingSample
from torl.components.algorithms.advantages import EstimatorInputs
from torl.components.algorithms.losses import kl_of_arrays
from torl.components.algorithms.requirements import requirements_of
from torl.run.config import AlgorithmConfig, TrainConfig
from torl.run.records.rows import TrajectoryRecord
from torl.training.samples import turn_numbers
from torl.training.selection import masked_by_reference, masked_trajectories
from torl.training.step import input_arrays
from torl_lab.audit.checks import Check, place_of
from torl_lab.audit.formulas import (
    NAIVE_KL,
    BatchRewards,
    Numbers,
    naive_advantages,
    naive_kl,
    naive_rewards,
    naive_whitened,
)

_TOLERANCE = 2e-5  # for float32 numbers divided by a deviation that may be small


def check_advantages(check: Check, records: Sequence[TrajectoryRecord], config: TrainConfig) -> None:
    """Recompute the advantages of a step's batch and compare them, per token if the records contain them per token.

    Args:
        check: Result that the comparisons are counted in.
        records: Records of a step, with the grades that it learns from (`trained_records`).
        config: Configuration of the run.
    """
    algorithm = config.algorithm
    episodes = [record for record in records if record.advantage is not None]
    batch = [each for record in episodes for each in record.episode_trajectories]
    masks = recorded_masks(records, config).values()
    masked = frozenset(int(index) for mask in masks for index in np.flatnonzero(mask))
    uncounted = frozenset[int]() if config.selection.mask_after_advantages else masked
    rewards = _batch_rewards(episodes, uncounted, algorithm)
    per_episode = naive_advantages(algorithm, rewards)
    if per_episode is None:
        check.note = f"{algorithm.estimator.name} has no second implementation: compared with a second call"
        per_episode = _estimate_again(episodes, uncounted, rewards, algorithm)
    following = iter([number for numbers in per_episode for number in numbers])
    expected = [[next(following) for _ in range(_loss_tokens(index, batch, uncounted))] for index in range(len(batch))]
    expected = [[] if index in masked else recomputed for index, recomputed in enumerate(expected)]
    inputs = input_arrays(algorithm)
    for index, (record, recomputed) in enumerate(zip(batch, expected, strict=True)):
        assert record.advantage is not None
        found = record.token_arrays.keys() - {"advantages", "token_rewards"}
        if found != {*inputs}:
            check.add(False, f"{place_of(record)}: expected numbers of tokens {inputs}, found {sorted(found)}")
        pairs = [(record.advantage, statistics.fmean(recomputed) if recomputed else 0.0)]
        if "advantages" in record.token_arrays:
            pairs += zip(_sampled(record, "advantages", index in masked), recomputed, strict=True)
        gap = max(abs(one - other) for one, other in pairs)
        right = all(abs(one - other) <= _TOLERANCE * max(1.0, abs(other)) for one, other in pairs)
        check.add(right, f"{place_of(record)}: advantage {record.advantage}, again {pairs[0][1]}", gap)


def recorded_masks(records: Sequence[TrajectoryRecord], config: TrainConfig) -> dict[str, BoolArray]:
    """Return for each mask of the run whether it masks each trajectory of the batch, from the records of a step."""
    episodes = (record for record in records if record.advantage is not None)
    batch = [each for record in episodes for each in record.episode_trajectories]
    scored = [ScoredTrajectory(record.trajectory, record.grade, record.grade.reward) for record in batch]
    masks = masked_trajectories(scored, config.selection)
    if config.algorithm.keep_reference:
        masks |= masked_by_reference(scored, list(map(_sample, batch)), config.selection)
    return masks


def _sample(record: TrajectoryRecord) -> TrainingSample:
    """Return the sample of a record's response. The reference logprobs of a trajectory that was masked are zeros."""
    trajectory = record.trajectory
    return TrainingSample(
        token_ids=trajectory.token_ids_T,
        loss_mask=trajectory.loss_mask_T,
        rollout_logprobs=trajectory.rollout_logprobs_T,
        ref_logprobs=record.token_arrays["ref_logprobs"],
    )


def _loss_tokens(index: int, batch: Sequence[TrajectoryRecord], masked: frozenset[int]) -> int:
    """Return the number of tokens of a trajectory with a loss."""
    return 0 if index in masked else int(batch[index].trajectory.loss_mask_T.sum())


def _batch_rewards(
    episodes: Sequence[TrajectoryRecord], masked: frozenset[int], algorithm: AlgorithmConfig
) -> BatchRewards:
    """Collect the rewards of a batch's episodes, with the tokens of each episode's trajectories in a row.

    Trajectories with an index in `masked`, over all episodes, have no token with a loss.
    """
    rewards: Numbers = []
    token_rewards: list[Numbers] = []
    masked_rewards: Numbers = []
    values: list[Numbers] = []
    turns: list[list[int]] = []
    first = 0
    for record in episodes:
        members = list(enumerate(record.episode_trajectories, first))
        first += len(members)
        unmasked = [each for index, each in members if index not in masked]
        rewards.append(record.grade.reward)
        masked_rewards.append(sum(sum(_token_rewards(each, algorithm)) for index, each in members if index in masked))
        token_rewards.append([reward for each in unmasked for reward in _token_rewards(each, algorithm)])
        turns.append(
            [
                0 if index in masked else turn.stop - turn.start
                for index, each in members
                for turn in each.trajectory.turns
            ]
        )
        if algorithm.needs_critic:
            values.append([value for each in unmasked for value in _sampled(each, "values")])
    groups = [record.trajectory.group_id for record in episodes]
    values_of_tokens = values if algorithm.needs_critic else None
    return BatchRewards(rewards, groups, token_rewards, values_of_tokens, turns, masked_rewards)


def _token_rewards(record: TrajectoryRecord, algorithm: AlgorithmConfig) -> Numbers:
    """Return the rewards of single tokens: turn rewards and the KL penalty, without the final reward."""
    rewards = [0.0] * int(record.trajectory.loss_mask_T.sum())
    if algorithm.penalizes_rewards:
        rewards = [-algorithm.kl.coefficient * estimate for estimate in _kl(record, algorithm)]
    tokens = 0
    if record.grade.turn_rewards:
        for turn, reward in zip(record.trajectory.turns, record.grade.turn_rewards, strict=True):
            tokens += turn.stop - turn.start
            rewards[tokens - 1] += reward
    return rewards


def _kl(record: TrajectoryRecord, algorithm: AlgorithmConfig) -> Numbers:
    """Return the estimate of the KL divergence at each sampled token; a custom estimator is called again."""
    old, ref = (_sampled(record, name) for name in ("old_logprobs", "ref_logprobs"))
    if algorithm.kl.estimator.name in NAIVE_KL:
        return [naive_kl(algorithm.kl.estimator.name, *pair) for pair in zip(old, ref, strict=True)]
    mask_T = record.trajectory.loss_mask_T
    estimate: Numbers = kl_of_arrays(
        algorithm.kl.estimator.bind(),
        old_logprobs_M=np.array(old, np.float32),
        ref_logprobs_M=np.array(ref, np.float32),
        rollout_logprobs_M=record.trajectory.rollout_logprobs_T[mask_T],
        mask_M=np.ones(len(old), np.bool_),
        sequences_M=np.zeros(len(old), np.int64),
    ).tolist()
    return estimate


def _sampled(record: TrajectoryRecord, name: str, masked: bool = False) -> Numbers:
    """Return one of the record's arrays at the tokens with a loss."""
    numbers: Numbers = [] if masked else record.token_arrays[name][record.trajectory.loss_mask_T].tolist()
    return numbers


def _estimate_again(
    episodes: Sequence[TrajectoryRecord], masked: frozenset[int], rewards: BatchRewards, algorithm: AlgorithmConfig
) -> list[Numbers]:
    """Call the run's estimator with arrays in the layout of training, which includes prompts."""
    masks: list[BoolArray] = []  # one for each episode
    first = 0
    for record in episodes:
        parts: list[BoolArray] = []
        for index, each in enumerate(record.episode_trajectories, first):
            mask_T = each.trajectory.loss_mask_T
            parts += [np.zeros(len(each.trajectory.prompt.token_ids), np.bool_)]
            parts += [np.zeros_like(mask_T) if index in masked else mask_T]
        first += len(record.episode_trajectories)
        masks.append(np.concatenate(parts))
    lengths = [len(mask) for mask in masks]
    mask_M = np.concatenate([np.zeros(0, np.bool_), *masks])

    def on_tokens(numbers: Sequence[Numbers]) -> Float32Array:
        values_M = np.zeros(len(mask_M), np.float32)
        values_M[mask_M] = [number for row in numbers for number in row]
        return values_M

    def recorded(name: str) -> Float32Array:
        """Return an array of the records, 0 on masked trajectories, as the estimator received it."""
        arrays = [each.token_arrays[name] for record in episodes for each in record.episode_trajectories]
        prompts = [len(each.trajectory.prompt.token_ids) for record in episodes for each in record.episode_trajectories]
        return np.concatenate(
            [np.pad(array, (length, 0)) for array, length in zip(arrays, prompts, strict=True)] or [np.zeros(0, "f4")]
        )

    required = requirements_of(algorithm.estimator.target)
    final_rewards = naive_rewards(algorithm, rewards.rewards)
    has_token_rewards = algorithm.penalizes_rewards or any(record.grade.turn_rewards for record in episodes)
    estimate = algorithm.estimator.bind()(
        EstimatorInputs(
            rewards_N=np.array(final_rewards, np.float64),
            groups_N=rewards.groups,
            lengths_N=np.array(lengths, np.int64),
            mask_M=mask_M,
            token_rewards_M=on_tokens(rewards.token_rewards) if has_token_rewards else None,
            masked_rewards_N=np.array(rewards.masked_rewards, np.float64),
            values_M=None if rewards.values is None else on_tokens(rewards.values),
            turns_M=np.concatenate([np.zeros(0, np.int32), *map(_turns_of, episodes)]),
            members_N=[
                ScoredTrajectory(record.trajectory, record.grade, reward)
                for record, reward in zip(episodes, final_rewards, strict=True)
            ],
            **dict[str, Any]({f"{name}_M": recorded(name) for name in required.token_arrays}),
        )
    )
    rows = np.split(estimate.advantages_M, np.cumsum(lengths)[:-1]) if lengths else []
    expected: list[Numbers] = [row[mask].tolist() for row, mask in zip(rows, masks, strict=True)]
    return naive_whitened(expected) if algorithm.normalize_advantages else expected


def _turns_of(record: TrajectoryRecord) -> Int32Array:
    return turn_numbers([each.trajectory for each in record.episode_trajectories])
