"""Components that have no formula in the audit, such as a user's: they are called a second time, on the records."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from torl.base.options import Choice
from torl.base.types import BoolArray, Float32Array, Int32Array, ScoredTrajectory
from torl.components.algorithms.advantages import EstimatorInputs
from torl.components.algorithms.losses import kl_of_arrays
from torl.components.algorithms.requirements import requirements_of
from torl.run.config import AlgorithmConfig, TrainConfig
from torl.run.records.rows import TrajectoryRecord
from torl_lab.audit.naive import Formulas, location_of
from torl_lab.audit.naive.estimators import BatchRewards, Numbers, naive_rewards, naive_whitened
from torl_lab.audit.naive.learner import NAIVE_AGGREGATIONS, NAIVE_IMITATIONS
from torl_lab.audit.naive.masks import NAIVE_MASKS
from torl_lab.audit.naive.selection import NAIVE_GROUP_FILTERS, NAIVE_MEMBER_FILTERS


def components_called_again(config: TrainConfig) -> list[str]:
    """Return the names of the components of selection, masks and batches that have no formula in the audit."""
    selection, algorithm = config.selection, config.algorithm
    pairs: list[tuple[Choice[Any] | None, Formulas]] = [
        *((choice, NAIVE_MEMBER_FILTERS) for choice in selection.members.values()),
        *((choice, NAIVE_GROUP_FILTERS) for choice in selection.groups.values()),
        *((choice, NAIVE_MASKS) for choice in selection.mask.values()),
        (algorithm.imitation, NAIVE_IMITATIONS),
        (algorithm.aggregation, NAIVE_AGGREGATIONS),
    ]
    return [each.name for each, formulas in pairs if each is not None and location_of(each.target) not in formulas]


def estimate_again(
    episodes: Sequence[TrajectoryRecord], masked: frozenset[int], rewards: BatchRewards, algorithm: AlgorithmConfig
) -> list[Numbers]:
    """Return the advantages of the tokens of each episode that the run's estimator gives in the layout of training.

    `masked` are the places, over all episodes, of the trajectories without a loss.
    """
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


def kl_again(record: TrajectoryRecord, algorithm: AlgorithmConfig) -> Numbers:
    """Call the run's KL estimator for the sampled tokens of a trajectory."""
    mask_T = record.trajectory.loss_mask_T
    count = int(mask_T.sum())
    estimates_M = kl_of_arrays(
        algorithm.kl.estimator.bind(),
        old_logprobs_M=record.token_arrays["old_logprobs"][mask_T],
        ref_logprobs_M=record.token_arrays["ref_logprobs"][mask_T],
        rollout_logprobs_M=record.trajectory.rollout_logprobs_T[mask_T],
        mask_M=np.ones(count, np.bool_),
        sequences_M=np.zeros(count, np.int64),
    )
    return [float(each) for each in estimates_M]


def _turns_of(episode: TrajectoryRecord) -> Int32Array:
    """Return the number of the turn of each token of an episode; -1 for prompts and observations."""
    found: list[int] = []
    first = 0
    for record in episode.episode_trajectories:
        numbers = [-1] * len(record.trajectory.token_ids_T)
        for turn in record.trajectory.turns:
            numbers[turn.start : turn.stop] = [first] * (turn.stop - turn.start)
            first += 1
        found += [-1] * len(record.trajectory.prompt.token_ids) + numbers
    return np.array(found, np.int32)
