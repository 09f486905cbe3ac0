"""From trajectories and their rewards to what the learner trains on."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import torl._core as _core
from torl.algorithms.advantages import EstimatorInputs
from torl.algorithms.rewards import kl_to_reference
from torl.config import AlgorithmConfig
from torl.types import BoolArray, Float32Array, Int32Array, ScoredGroup, ScoredTrajectory, TrainingSample, Trajectory


def training_samples(scored: Sequence[ScoredTrajectory]) -> list[TrainingSample]:
    """One sample for each trajectory, prompt and response, as the engine sampled it; no advantages yet.

    Those of an episode are neighbors, its branches first (`Scored.episode_trajectories`).

    Turn rewards stand at the last token of their turns; samples have none where no trajectory has any.

    Raises:
        ValueError: a grade has turn rewards, but not one for every turn.
    """
    pays_turns = any(each.grade.turn_rewards for each in scored)
    return [
        replace(_training_sample(each, pays_turns), episode=episode)
        for episode, member in enumerate(scored)
        for each in member.episode_trajectories
    ]


def with_advantages(
    samples: Sequence[TrainingSample], groups: Sequence[ScoredGroup], algorithm: AlgorithmConfig
) -> list[TrainingSample]:
    """The samples with their advantages, and with the critic's targets where there is one.

    Args:
        samples: with everything that the estimator asks for (`Learner.prepare`).
        groups: their trajectories, in the same order, and the rewards at their ends. The trajectories of an episode are
            laid end to end for the estimator, which sees one that is paid once, at its last sampled token.
        algorithm: the estimator, and whether the rewards pay for the distance from a reference policy.

    Raises:
        ValueError: other numbers of samples and trajectories, a reward that is not finite, values or logprobs that are
            missing, an estimator that does not give one number for each token.
    """
    if not samples:
        return []
    rewards = _rewards(samples, groups, algorithm)
    estimated = algorithm.estimator.bind()(rewards)
    for name, array in (("advantages", estimated.advantages_M), ("returns", estimated.returns_M)):
        if array is not None and array.shape != rewards.mask_M.shape:
            of = f"estimator {algorithm.estimator.name!r}"
            raise ValueError(f"{of}: {name} of shape {array.shape} for {len(rewards.mask_M)} tokens")
    advantages_M = estimated.advantages_M
    if algorithm.normalize_advantages:
        advantages_M = _core.whiten(advantages_M, rewards.lengths_N, rewards.mask_M)
    cuts = np.cumsum([len(sample) for sample in samples])[:-1]
    advantages = np.split(advantages_M, cuts)
    returns = [None] * len(samples) if estimated.returns_M is None else np.split(estimated.returns_M, cuts)
    return [
        replace(sample, advantages=advantage, returns=target)
        for sample, advantage, target in zip(samples, advantages, returns, strict=True)
    ]


def mean_advantage(sample: TrainingSample) -> float:
    """The mean over the sampled tokens: the advantage itself where all of them have the same one."""
    if sample.advantages is None or not sample.loss_mask.any():
        return 0.0
    return float(sample.advantages[sample.loss_mask].mean(dtype=np.float64))


def turn_numbers(episode: Sequence[Trajectory]) -> Int32Array:
    """Which turn sampled each token of an episode, -1 where none did, shape (its tokens, prompts included).

    Args:
        episode: its trajectories, whose turns are numbered one after the other.
    """
    numbers: list[Int32Array] = []
    before = 0
    for trajectory in episode:
        of_response = np.full(len(trajectory), -1, np.int32)
        for number, turn in enumerate(trajectory.turns, before):
            of_response[turn.start : turn.stop] = number
        before += len(trajectory.turns)
        numbers += [np.full(len(trajectory.prompt.token_ids), -1, np.int32), of_response]
    return np.concatenate(numbers)


def token_arrays(sample: TrainingSample, response_tokens: int, algorithm: AlgorithmConfig) -> dict[str, Float32Array]:
    """What the advantages of a response were made of token by token, and these; empty if of its reward alone.

    Args:
        sample: with its advantages.
        response_tokens: the last so many of its tokens.
        algorithm: what was asked for.
    """
    names: list[str] = []
    if algorithm.needs_critic:
        names.append("values")
    if algorithm.penalizes_rewards:
        names += ["old_logprobs", "ref_logprobs"]
    elif algorithm.keep_reference:
        names.append("ref_logprobs")
    if sample.token_rewards is not None:
        names.append("token_rewards")
    arrays = {name: getattr(sample, name) for name in (*names, "advantages")} if names else {}
    return {name: array[len(sample) - response_tokens :] for name, array in arrays.items()}


def _training_sample(scored: ScoredTrajectory, pays_turns: bool) -> TrainingSample:
    trajectory, prompt = scored.trajectory, scored.trajectory.prompt.token_ids
    return TrainingSample(
        token_ids=np.concatenate([np.asarray(prompt, np.int32), trajectory.token_ids_T]),
        loss_mask=np.concatenate([np.zeros(len(prompt), np.bool_), trajectory.loss_mask_T]),
        rollout_logprobs=np.concatenate([np.zeros(len(prompt), np.float32), trajectory.rollout_logprobs_T]),
        token_rewards=_token_rewards(scored) if pays_turns else None,
    )


def _token_rewards(scored: ScoredTrajectory) -> Float32Array:
    """Each turn's reward at its last token."""
    trajectory, paid = scored.trajectory, scored.grade.turn_rewards
    prompt_tokens = len(trajectory.prompt.token_ids)
    token_rewards = np.zeros(prompt_tokens + len(trajectory), np.float32)
    if paid and len(paid) != len(trajectory.turns):
        raise ValueError(
            f"{trajectory.group_id}, sample {trajectory.sample_index}: {len(paid)} turn rewards for "
            f"{len(trajectory.turns)} turns; a grade has one for every turn, or none"
        )
    if paid:
        token_rewards[[prompt_tokens + turn.stop - 1 for turn in trajectory.turns]] = paid
    return token_rewards


def _rewards(
    samples: Sequence[TrainingSample], groups: Sequence[ScoredGroup], algorithm: AlgorithmConfig
) -> EstimatorInputs:
    members = [(index, member) for index, group in enumerate(groups) for member in group.members]
    # Of each sample the episode that it belongs to.
    episodes = [episode for episode, (_, member) in enumerate(members) for _ in member.episode_trajectories]
    if len(episodes) != len(samples):
        raise ValueError(f"{len(samples)} samples of {len(episodes)} trajectories")
    rewards = [member.reward for _, member in members]
    lengths_N = np.zeros(len(members), np.int64)
    np.add.at(lengths_N, episodes, [len(sample) for sample in samples])
    mask_M: BoolArray = np.concatenate([sample.loss_mask for sample in samples])
    token_rewards_M: Float32Array | None = None
    if any(sample.token_rewards is not None for sample in samples):
        token_rewards_M = _flat([sample.token_rewards for sample in samples])
        for episode, sample in zip(episodes, samples, strict=True):
            # No token of a silenced trajectory can be paid: what its turns earned joins the reward at its end, so that
            # its group is compared with all of it.
            if sample.token_rewards is not None and not sample.loss_mask.any():
                rewards[episode] += float(sample.token_rewards.sum(dtype=np.float64))
    if algorithm.penalizes_rewards:
        old_M = _flat([sample.old_logprobs for sample in samples])
        ref_M = _flat([sample.ref_logprobs for sample in samples])
        penalties_M = algorithm.kl.coefficient * kl_to_reference(old_M, ref_M, algorithm.kl.estimator)
        token_rewards_M = -penalties_M if token_rewards_M is None else token_rewards_M - penalties_M
        token_rewards_M = token_rewards_M.astype(np.float32)
    return EstimatorInputs(
        rewards_N=np.array(rewards, dtype=np.float64),
        groups_N=[index for index, _ in members],
        lengths_N=lengths_N,
        mask_M=mask_M,
        token_rewards_M=token_rewards_M,
        values_M=_flat([sample.values for sample in samples]) if algorithm.needs_critic else None,
        turns_M=np.concatenate([turn_numbers(member.trajectory.episode_trajectories) for _, member in members]),
    )


def _flat(arrays: Sequence[Float32Array | None]) -> Float32Array:
    """Laid end to end."""
    present = [array for array in arrays if array is not None]
    if len(present) != len(arrays):
        raise ValueError("samples lack what the estimator asks for: prepare them first")
    return np.concatenate(present)
