"""The checks of a step's advantages, from its records, and of the critic's values that they are computed from."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torl.components.algorithms.requirements import requirements_of
from torl.components.hub import resolve_model
from torl.learner.checkpoint.directory import LEARNER, checkpoint_path
from torl.learner.checkpoint.shards import CRITIC_TAG, ShardIndex
from torl.run.config import AlgorithmConfig, LearningConfig
from torl.run.records.rows import TrajectoryRecord
from torl.training.policy_versions import load_model
from torl_lab.audit.again import estimate_again, kl_again
from torl_lab.audit.batch import LearnedBatch
from torl_lab.audit.checks import Check, place_of
from torl_lab.audit.naive.estimators import BatchRewards, Numbers, naive_advantages
from torl_lab.audit.naive.learner import NAIVE_KL, naive_kl

_TOLERANCE = 2e-5  # for float32 numbers divided by a deviation that may be small


def check_advantages(check: Check, batch: LearnedBatch) -> None:
    """Recompute the advantages of a step's batch and compare them, per token if the records contain them per token."""
    algorithm, episodes = batch.config.algorithm, batch.episodes
    masked = frozenset(index for index, is_masked in enumerate(batch.masked) if is_masked)
    uncounted = frozenset[int]() if batch.config.selection.mask_after_advantages else masked
    rewards = _batch_rewards(episodes, uncounted, algorithm)
    per_episode = naive_advantages(algorithm, rewards)
    if per_episode is None:
        check.note = f"{algorithm.estimator.name} has no second implementation: compared with a second call"
        per_episode = estimate_again(episodes, uncounted, rewards, algorithm)
    following = iter([number for numbers in per_episode for number in numbers])
    inputs = _recorded_inputs(algorithm)
    for index, record in enumerate(batch.trajectories):
        counted = 0 if index in uncounted else int(record.trajectory.loss_mask_T.sum())
        recomputed = [next(following) for _ in range(counted)]
        recomputed = [] if index in masked else recomputed
        assert record.advantage is not None
        found = record.token_arrays.keys() - {"advantages", "token_rewards"}
        if found != inputs:
            check.add(False, f"{place_of(record)}: expected numbers of tokens {sorted(inputs)}, found {sorted(found)}")
        pairs = [(record.advantage, statistics.fmean(recomputed) if recomputed else 0.0)]
        if "advantages" in record.token_arrays:
            pairs += zip(_sampled(record, "advantages", index in masked), recomputed, strict=True)
        gap = max(abs(one - other) for one, other in pairs)
        right = all(abs(one - other) <= _TOLERANCE * max(1.0, abs(other)) for one, other in pairs)
        check.add(right, f"{place_of(record)}: advantage {record.advantage}, again {pairs[0][1]}", gap)


def _recorded_inputs(algorithm: AlgorithmConfig) -> set[str]:
    """Return the names of the numbers of tokens that advantages or masks are computed from, which records have."""
    inputs = set(requirements_of(algorithm.estimator.target).token_arrays)
    if algorithm.penalizes_rewards:
        inputs |= {"old_logprobs", "ref_logprobs"}
    if algorithm.needs_critic:
        inputs.add("values")
    return inputs | {"ref_logprobs"} if algorithm.keeps_reference else inputs


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
    """Return the estimate of the KL divergence at each sampled token."""
    name = algorithm.kl.estimator.name
    if name not in NAIVE_KL:
        return kl_again(record, algorithm)
    old, ref = (_sampled(record, each) for each in ("old_logprobs", "ref_logprobs"))
    return [naive_kl(name, *pair) for pair in zip(old, ref, strict=True)]


def _sampled(record: TrajectoryRecord, name: str, masked: bool = False) -> Numbers:
    """Return one of the record's arrays at the tokens with a loss."""
    numbers: Numbers = [] if masked else record.token_arrays[name][record.trajectory.loss_mask_T].tolist()
    return numbers


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

    `samples` are the records with values of steps after a checkpoint, and of step 0: a critic begins with values of 0.
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
