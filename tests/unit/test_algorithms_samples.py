"""From trajectories to training samples: what stands where, and what is written down of it."""

from dataclasses import replace

import numpy as np
import pytest

from torl.algorithms.samples import mean_advantage, token_numbers, training_samples, with_advantages
from torl.config import AlgorithmConfig
from torl.types import FinishReason, Problem, Prompt, TrainingSample, Trajectory, Turn

NOTHING = np.zeros(6, np.float32)


def trajectory() -> Trajectory:
    """A prompt of two tokens and a response of four, the third of which is observed."""
    return Trajectory(
        prompt=Prompt(Problem("p", "?", "1"), (8, 9)),
        group="0/p",
        sample=0,
        token_ids_T=np.array([10, 11, 12, 13], np.int32),
        loss_mask_T=np.array([True, True, False, True]),
        rollout_logprobs_T=np.array([-0.5, -0.25, 0, -0.125], np.float32),
        policy_versions_T=np.array([0, 0, -1, 0], np.int32),
        turns=(Turn(0, 2, 0), Turn(3, 4, 0)),
        tool_calls=(),
        finish_reason=FinishReason.STOP,
        text="",
        sampled_text="",
        seconds=0.0,
    )


def sample() -> TrainingSample:
    (found,) = training_samples([trajectory()])
    return found


def test_prompt_and_response_laid_end_to_end() -> None:
    found = sample()
    assert found.token_ids.tolist() == [8, 9, 10, 11, 12, 13]
    assert found.loss_mask.tolist() == [False, False, True, True, False, True]
    assert found.rollout_logprobs.tolist() == [0, 0, -0.5, -0.25, 0, -0.125]
    assert found.advantages is None


def test_numbers_that_are_written_down_are_those_of_the_response() -> None:
    numbers = np.arange(6, dtype=np.float32)
    of_values = replace(sample(), values=numbers, advantages=10 * numbers)
    found = token_numbers(of_values, 4, AlgorithmConfig(estimator="ppo"))
    assert {name: array.tolist() for name, array in found.items()} == {
        "values": [2, 3, 4, 5],
        "advantages": [20, 30, 40, 50],
    }
    assert token_numbers(of_values, 4, AlgorithmConfig()) == {}  # one number says it all


def test_the_mean_advantage_is_over_sampled_tokens() -> None:
    assert mean_advantage(replace(sample(), advantages=np.array([9, 9, 1, 2, 9, 6], np.float32))) == 3
    assert mean_advantage(replace(sample(), advantages=NOTHING, loss_mask=np.zeros(6, np.bool_))) == 0
    assert mean_advantage(sample()) == 0


def test_distance_from_the_reference_is_paid_for() -> None:
    """Where the policy gives a sampled token more than the reference does, the reward is less."""
    algorithm = AlgorithmConfig(estimator="dr_grpo", kl_in="reward", kl_coefficient=0.5, kl_estimator="k1")
    far = replace(sample(), old_logprobs=np.array([9, 9, -1, -1, 9, -1], np.float32), ref_logprobs=NOTHING - 3)
    near = replace(far, ref_logprobs=far.old_logprobs)
    found = with_advantages([far, near], [1.0, 1.0], ["a", "a"], algorithm)
    # Three sampled tokens, each twice as likely (in logs) as the reference says: 1 - 3 * 0.5 * 2 = -2, and 1.
    assert [mean_advantage(each) for each in found] == pytest.approx([-1.5, 1.5])
    assert all(not each.advantages[~each.loss_mask].any() for each in found if each.advantages is not None)
