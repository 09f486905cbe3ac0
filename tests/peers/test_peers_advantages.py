"""Advantages against verl's own functions, on ragged batches with observations; and the cases where the two differ."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from verl.trainer.ppo import core_algos

from builders import scored, trajectory
from ragged import RaggedBatch, ragged_batches
from torl import _core
from torl.components.algorithms import ESTIMATORS
from torl.components.algorithms.advantages import TokenAdvantages
from torl.components.algorithms.reward_advantages import gdpo, group_advantages
from torl.components.algorithms.token_advantages import optimal_token_baseline

CASES = 1000
thorough = settings(max_examples=CASES, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
batches = ragged_batches(min_sampled=1, min_rows=2)


def padded(batch: RaggedBatch, *, place: str = "last sampled") -> dict[str, torch.Tensor]:
    """A batch in verl's layout, in float64: the reward at the trajectory's last sampled token, or at its last."""
    mask = batch.padded(batch.mask)
    rewards = np.where(mask, batch.padded(batch.token_rewards), 0)
    for index, reward in enumerate(batch.rewards):
        last = int(np.flatnonzero(mask[index])[-1]) if place == "last sampled" else int(batch.lengths[index]) - 1
        rewards[index, last] += reward
    return {"token_level_rewards": torch.tensor(rewards), "response_mask": torch.tensor(mask)}


def ours(estimator: str, batch: RaggedBatch, *, normalize: bool = False, **options: float) -> np.ndarray:
    found: TokenAdvantages = ESTIMATORS[estimator](batch.paid, **options)
    advantages_M = found.advantages_M
    return batch.padded(_core.whiten(advantages_M, batch.lengths, batch.mask) if normalize else advantages_M)


def spread_of(values: np.ndarray, mask: torch.Tensor) -> float:
    return float(values[mask.numpy() > 0].std())


@thorough
@given(st.sampled_from(["grpo", "dr_grpo", "rloo"]), batches)
def test_group_estimators(estimator, batch) -> None:
    arguments = padded(batch) | {"index": np.array(batch.groups)}
    if estimator == "rloo":
        expected, _ = core_algos.compute_rloo_outcome_advantage(**arguments)
        # verl leaves a group of one without a baseline, as torl does.
    else:
        expected, _ = core_algos.compute_grpo_outcome_advantage(
            **arguments, norm_adv_by_std_in_grpo=estimator == "grpo"
        )
    found = ours(estimator, batch)
    # Where the rewards of a group nearly agree, their float32 rounding is divided by next to nothing.
    assume(np.abs(expected.numpy()).max() < 1e3)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@thorough
@given(batches, st.sampled_from([1.0, 0.99, 0.5]))
def test_reinforce_plus_plus(batch, discount) -> None:
    arguments = padded(batch)
    config = OmegaConf.create({"gamma": discount})
    expected, returns = core_algos.compute_reinforce_plus_plus_outcome_advantage(**arguments, config=config)
    assume(spread_of(returns.numpy(), arguments["response_mask"]) > 0.3)
    found = ours("reinforce_plus_plus", batch, discount=discount)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@thorough
@given(batches)
def test_reinforce_plus_plus_baseline(batch) -> None:
    """Without token rewards: verl's estimator does not have them, it takes their sum as part of the reward."""
    bare = RaggedBatch(batch.rewards, batch.groups, batch.masks, np.zeros_like(batch.token_rewards), batch.values)
    arguments = padded(bare)
    expected, _ = core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage(
        **arguments, index=np.array(batch.groups)
    )
    centred = np.repeat(np.array(batch.rewards), batch.lengths)[batch.mask]
    assume(centred.std() > 0.3)
    assume(np.abs(expected.numpy()).max() < 1e2)
    np.testing.assert_allclose(ours("reinforce_plus_plus_baseline", bare), expected, rtol=1e-6, atol=1e-6)


@thorough
@given(batches, st.sampled_from([1.0, 0.99]), st.sampled_from([1.0, 0.95, 0.5]))
def test_generalized_advantages(batch, discount, gae_lambda) -> None:
    arguments = padded(batch)
    expected, returns = core_algos.compute_gae_advantage_return(
        **arguments, values=torch.tensor(batch.padded(batch.values)), gamma=discount, lam=gae_lambda
    )
    mask = arguments["response_mask"]
    assume(spread_of((returns - torch.tensor(batch.padded(batch.values))).numpy(), mask) > 0.3)
    found = ours("ppo", batch, discount=discount, gae_lambda=gae_lambda, normalize=True)
    # verl leaves values on tokens outside the mask; nothing reads them.
    np.testing.assert_allclose(found, expected * mask, rtol=1e-6, atol=1e-6)


@thorough
@given(batches, st.integers(0, 2**32 - 1))
def test_optimal_token_baseline(batch, seed) -> None:
    generator = np.random.default_rng(seed)
    probs, others = generator.uniform(0.01, 0.99, (2, len(batch.mask)))
    arrays = {
        "old_logprobs_M": np.log(probs).astype(np.float32),
        "collision_probs_M": (probs**2 + others * (1 - probs) ** 2).astype(np.float32),
    }
    expected, _ = core_algos.compute_multi_turn_optimal_token_baseline_advantage(
        **padded(batch),
        index=np.array(batch.groups),
        old_log_probs=torch.tensor(batch.padded(arrays["old_logprobs_M"])),
        sum_pi_squared=torch.tensor(batch.padded(arrays["collision_probs_M"])),
    )
    found = optimal_token_baseline(dataclasses.replace(batch.paid, **arrays)).advantages_M
    np.testing.assert_allclose(batch.padded(found), expected, rtol=1e-6, atol=1e-6)


def test_a_response_cut_inside_an_observation_keeps_its_reward() -> None:
    """verl's reward managers put the reward at a response's last token. Where that is an observation, its estimators
    of returns lose it: here the correct trajectory gets 0 and the mean of the batch falls on everyone."""
    batch = RaggedBatch(
        rewards=[1.0, -1.0],
        groups=[0, 0],
        masks=[[True, True, False], [True, True]],
        token_rewards=np.zeros(5, np.float32),
        values=np.zeros(5, np.float32),
    )
    config = OmegaConf.create({"gamma": 1.0})
    _, at_last = core_algos.compute_reinforce_plus_plus_outcome_advantage(**padded(batch, place="last"), config=config)
    _, at_last_sampled = core_algos.compute_reinforce_plus_plus_outcome_advantage(**padded(batch), config=config)
    assert at_last.tolist() == [[0, 0, 0], [-1, -1, 0]]
    assert at_last_sampled.tolist() == [[1, 1, 0], [-1, -1, 0]]
    found = ours("reinforce_plus_plus", batch)
    assert found[0, :2] == pytest.approx([np.sqrt(3) / 2] * 2)


def test_a_penalty_stays_at_its_token_under_the_baseline() -> None:
    """verl sums token rewards into the trajectory's before it takes the group's mean, so that a token is rewarded for
    earlier tokens; torl compares outcomes and lets each token answer for what follows."""
    penalties = np.array([-1, 0, 0, 0], np.float32)
    batch = RaggedBatch([1.0, -1.0], [0, 0], [[True, True], [True, True]], penalties, np.zeros(4, np.float32))
    expected, _ = core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage(
        **padded(batch), index=np.array([0, 0])
    )
    assert expected[0, 0] == expected[0, 1]
    found = ours("reinforce_plus_plus_baseline", batch)
    # Returns 0, 1 and -1, -1: whitened, the first token of the better response is below its second.
    returns = np.array([[0.0, 1.0], [-1.0, -1.0]])
    np.testing.assert_allclose(found, (returns + 0.25) / returns.std(ddof=1), rtol=1e-6)


@thorough
@given(batches, st.integers(0, 2**32 - 1), st.sampled_from([None, (1.0, 0.25), (3.0, 1.0)]))
def test_gdpo_of_two_parts(batch, seed, weights) -> None:
    """Against verl's GDPO, which takes the parts from the batch and puts each at the last token of its response."""
    generator = np.random.default_rng(seed)
    parts = {
        "answer": generator.choice([-1.0, 1.0], len(batch.rewards)),
        "length": generator.choice([0.0, 0.1, 0.2], len(batch.rewards)) + generator.normal(0, 0.01, len(batch.rewards)),
    }
    arguments = padded(batch, place="last")
    lengths = torch.tensor(batch.lengths)
    attention = torch.arange(int(lengths.max()))[None] < lengths[:, None]
    expected, _ = core_algos.compute_gdpo_outcome_advantage(
        **arguments,
        index=np.array(batch.groups),
        config=OmegaConf.create(
            {"gdpo_reward_keys": list(parts), "gdpo_reward_weights": None if weights is None else list(weights)}
        ),
        non_tensor_batch=parts,
        batch={"prompts": torch.zeros(len(lengths), 0), "attention_mask": attention.long()},
    )
    member = scored(trajectory("x"))
    members = []
    for index in range(len(batch.rewards)):
        of_member = {name: float(values[index]) for name, values in parts.items()}
        members.append(dataclasses.replace(member, grade=dataclasses.replace(member.grade, parts=of_member)))
    inputs = dataclasses.replace(batch.paid, members_N=members)
    options = {} if weights is None else {"weights": dict(zip(parts, weights, strict=True))}
    found = batch.padded(gdpo(inputs, **options).advantages_M)
    mask = arguments["response_mask"].numpy()
    assume(np.isfinite(expected.numpy()).all())
    groups = np.array(batch.groups)
    spreads = [values[groups == group].std() for values in parts.values() for group in set(batch.groups)]
    # Else verl divides its float32 rounding by little: within a part, or where the parts cancel each other.
    assume(all(each == 0 or each > 1e-3 for each in spreads))
    summed = sum(
        weight * group_advantages("grpo", values, batch.groups)
        for weight, values in zip(weights or (1.0, 1.0), parts.values(), strict=True)
    )
    assume(summed.std() > 1e-2)
    assume(np.abs(found).max() < 1e2)
    np.testing.assert_allclose(found * mask, expected, rtol=1e-4, atol=1e-4)
