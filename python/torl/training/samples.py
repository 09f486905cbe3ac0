"""Training samples: trajectories with loss masks, annotations of the learner and advantages."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import torl._core as _core
from torl.base.types import (
    BoolArray,
    Float32Array,
    Int32Array,
    Problem,
    Prompt,
    ScoredGroup,
    ScoredTrajectory,
    TrainingSample,
    Trajectory,
)
from torl.components.algorithms.advantages import EstimatorInputs
from torl.components.algorithms.losses import kl_of_arrays
from torl.components.algorithms.requirements import requirements_of
from torl.run.config import AlgorithmConfig, TrainConfig
from torl.run.records import metric_names as names
from torl.training.experience import with_teacher_prompts
from torl.training.selection import mask_samples, masked_by_reference, masked_trajectories


async def prepare_samples(
    groups: Sequence[ScoredGroup],
    annotate: Callable[[Sequence[TrainingSample]], Awaitable[list[TrainingSample]]],
    config: TrainConfig,
    encode: Callable[[Problem], Prompt],
    longest_sample: int,
) -> tuple[list[TrainingSample], dict[str, int]]:
    """Make the samples of a batch, mask them, annotate them and estimate advantages.

    Args:
        groups: Groups of the batch.
        annotate: `Learner.annotate`.
        config: Configuration of the step.
        encode: Function that puts a problem into the run's template and encodes it, for `algorithm.kl.prompt`.
        longest_sample: Maximum length of a sample in the run, in tokens.

    Returns:
        The samples, complete for `Learner.update`, and the metrics of their masks and teacher prompts.
    """
    members = [member for group in groups for member in group.members]
    trajectories = [each for member in members for each in member.episode_trajectories]
    masks = await asyncio.to_thread(masked_trajectories, trajectories, config.selection)
    samples = await asyncio.to_thread(training_samples, members)
    samples = with_imitation(samples, trajectories, config.algorithm)
    kl = config.algorithm.kl
    samples, too_long = await asyncio.to_thread(with_teacher_prompts, samples, groups, kl, encode, longest_sample)
    late = config.selection.mask_after_advantages
    # The KL penalty of a masked trajectory is part of the reward that its group is compared with.
    all_annotated = late or config.algorithm.penalizes_rewards
    samples = await annotate(samples if all_annotated else mask_samples(samples, masks))
    samples = with_kl_penalties(samples, config.algorithm)
    masks |= masked_by_reference(trajectories, samples, config.selection)
    samples = samples if late else mask_samples(samples, masks)
    samples = await asyncio.to_thread(with_advantages, samples, groups, config.algorithm)
    counts = {names.masked(name): int(masked.sum()) for name, masked in masks.items()}
    if kl.prompt is not None:
        counts[names.LONG_TEACHER_PROMPTS] = too_long
    return mask_samples(samples, masks), counts


def training_samples(scored: Sequence[ScoredTrajectory]) -> list[TrainingSample]:
    """Make one sample from each trajectory, prompt and response, without advantages.

    The samples of an episode are adjacent, branches first (`ScoredTrajectory.episode_trajectories`). Turn rewards are
    at the last token of their turns, and omitted if no trajectory has any.

    Raises:
        ValueError: A grade has turn rewards for only a part of its turns.
    """
    rewards_turns = any(each.grade.turn_rewards for each in scored)
    return [
        replace(_training_sample(each, rewards_turns), episode=episode)
        for episode, member in enumerate(scored)
        for each in member.episode_trajectories
    ]


def with_imitation(
    samples: Sequence[TrainingSample], trajectories: Sequence[ScoredTrajectory], algorithm: AlgorithmConfig
) -> list[TrainingSample]:
    """Add the imitation weights of the trajectories to their samples, 0 on prompts.

    Raises:
        ComponentError: The imitation raised an exception, or returned an invalid value.
    """
    if algorithm.imitation is None:
        return list(samples)
    imitation = algorithm.imitation.bind()
    weights = [np.asarray(imitation(each), np.float32) for each in trajectories]
    return [
        replace(sample, imitation_weights=np.pad(weights_T, (len(sample) - len(weights_T), 0)))
        for sample, weights_T in zip(samples, weights, strict=True)
    ]


def with_kl_penalties(samples: Sequence[TrainingSample], algorithm: AlgorithmConfig) -> list[TrainingSample]:
    """Subtract the KL penalty from the rewards of the tokens, if it is part of the reward.

    Raises:
        ValueError: Logprobs are missing.
    """
    if not (algorithm.penalizes_rewards and samples):
        return list(samples)
    lengths = [len(sample) for sample in samples]
    kl_M = kl_of_arrays(
        algorithm.kl.estimator.bind(),
        old_logprobs_M=_concatenate([sample.old_logprobs for sample in samples]),
        ref_logprobs_M=_concatenate([sample.ref_logprobs for sample in samples]),
        rollout_logprobs_M=_concatenate([sample.rollout_logprobs for sample in samples]),
        mask_M=np.concatenate([sample.loss_mask for sample in samples]),
        sequences_M=np.repeat(np.arange(len(samples)), lengths),
    )
    penalties = np.split(algorithm.kl.coefficient * kl_M, np.cumsum(lengths)[:-1])
    return [
        replace(sample, token_rewards=((0.0 if sample.token_rewards is None else sample.token_rewards) - penalty_T))
        for sample, penalty_T in zip(samples, penalties, strict=True)
    ]


def with_advantages(
    samples: Sequence[TrainingSample], groups: Sequence[ScoredGroup], algorithm: AlgorithmConfig
) -> list[TrainingSample]:
    """Add advantages to samples and, with a critic, its value targets.

    Args:
        samples: Samples with the annotations that the estimator requires (`Learner.annotate`) and with KL penalties.
        groups: Scored trajectories of the samples, in the same order. The trajectories of an episode are concatenated
            for the estimator, which sees one response with a reward at its last sampled token.
        algorithm: Estimator and its inputs.

    Raises:
        ValueError: The numbers of samples and trajectories differ, a reward is not finite, or values or logprobs are
            missing.
        ComponentError: The estimator raised an exception, or returned an invalid value.
    """
    if not samples:
        return []
    inputs = _estimator_inputs(samples, groups, algorithm)
    estimated = algorithm.estimator.bind()(inputs)
    advantages_M = estimated.advantages_M
    if algorithm.normalize_advantages:
        advantages_M = _core.whiten(advantages_M, inputs.lengths_N, inputs.mask_M)
    cuts = np.cumsum([len(sample) for sample in samples])[:-1]
    advantages = np.split(advantages_M, cuts)
    returns = [None] * len(samples) if estimated.returns_M is None else np.split(estimated.returns_M, cuts)
    return [
        replace(sample, advantages=advantage, returns=target)
        for sample, advantage, target in zip(samples, advantages, returns, strict=True)
    ]


def turn_numbers(episode: Sequence[Trajectory]) -> Int32Array:
    """Return the number of the turn that sampled each token, or -1; shape (tokens of the episode, with prompts).

    Args:
        episode: Trajectories of an episode, whose turns are numbered consecutively.
    """
    numbers: list[Int32Array] = []
    earlier = 0
    for trajectory in episode:
        in_response = np.full(len(trajectory), -1, np.int32)
        for number, turn in enumerate(trajectory.turns, earlier):
            in_response[turn.start : turn.stop] = number
        earlier += len(trajectory.turns)
        numbers += [np.full(len(trajectory.prompt.token_ids), -1, np.int32), in_response]
    return np.concatenate(numbers)


def _training_sample(scored: ScoredTrajectory, rewards_turns: bool) -> TrainingSample:
    trajectory, prompt = scored.trajectory, scored.trajectory.prompt.token_ids
    return TrainingSample(
        token_ids=np.concatenate([np.asarray(prompt, np.int32), trajectory.token_ids_T]),
        loss_mask=np.concatenate([np.zeros(len(prompt), np.bool_), trajectory.loss_mask_T]),
        rollout_logprobs=np.concatenate([np.zeros(len(prompt), np.float32), trajectory.rollout_logprobs_T]),
        policy_versions=np.concatenate([np.full(len(prompt), -1, np.int32), trajectory.policy_versions_T]),
        token_rewards=_token_rewards(scored) if rewards_turns else None,
    )


def _token_rewards(scored: ScoredTrajectory) -> Float32Array:
    """Place each turn's reward at its last token."""
    trajectory, turn_rewards = scored.trajectory, scored.grade.turn_rewards
    prompt_tokens = len(trajectory.prompt.token_ids)
    token_rewards = np.zeros(prompt_tokens + len(trajectory), np.float32)
    if turn_rewards and len(turn_rewards) != len(trajectory.turns):
        raise ValueError(
            f"{trajectory.group_id}, sample {trajectory.sample_index}: {len(turn_rewards)} turn rewards for "
            f"{len(trajectory.turns)} turns; a grade has one for every turn, or none"
        )
    if turn_rewards:
        token_rewards[[prompt_tokens + turn.stop - 1 for turn in trajectory.turns]] = turn_rewards
    return token_rewards


def _estimator_inputs(
    samples: Sequence[TrainingSample], groups: Sequence[ScoredGroup], algorithm: AlgorithmConfig
) -> EstimatorInputs:
    members = [(index, member) for index, group in enumerate(groups) for member in group.members]
    # The number of each sample's episode.
    episodes = [episode for episode, (_, member) in enumerate(members) for _ in member.episode_trajectories]
    if len(episodes) != len(samples):
        raise ValueError(f"{len(samples)} samples of {len(episodes)} trajectories")
    required = requirements_of(algorithm.estimator.target)
    rewards = [member.reward for _, member in members]
    lengths_N = np.zeros(len(members), np.int64)
    np.add.at(lengths_N, episodes, [len(sample) for sample in samples])
    mask_M: BoolArray = np.concatenate([sample.loss_mask for sample in samples])
    token_rewards_M: Float32Array | None = None
    masked_rewards_N = np.zeros(len(members), np.float64)
    if any(sample.token_rewards is not None for sample in samples):
        token_rewards_M = _concatenate([sample.token_rewards for sample in samples])
        for episode, sample in zip(episodes, samples, strict=True):
            # Tokens of a masked trajectory cannot be rewarded, but its group is compared with its total reward.
            if sample.token_rewards is not None and not sample.loss_mask.any():
                masked_rewards_N[episode] += float(sample.token_rewards.sum(dtype=np.float64))
    return EstimatorInputs(
        rewards_N=np.array(rewards, dtype=np.float64),
        groups_N=[index for index, _ in members],
        lengths_N=lengths_N,
        mask_M=mask_M,
        token_rewards_M=token_rewards_M,
        masked_rewards_N=masked_rewards_N,
        values_M=_concatenate([sample.values for sample in samples]) if algorithm.needs_critic else None,
        turns_M=np.concatenate([turn_numbers(member.trajectory.episode_trajectories) for _, member in members]),
        members_N=[member for _, member in members],
        **dict[str, Any](
            {f"{name}_M": _concatenate([getattr(each, name) for each in samples]) for name in required.token_arrays}
        ),
    )


def _concatenate(arrays: Sequence[Float32Array | None]) -> Float32Array:
    present = [array for array in arrays if array is not None]
    if len(present) != len(arrays):
        raise ValueError("samples lack an input of the estimator: annotate them first")
    return np.concatenate(present)
