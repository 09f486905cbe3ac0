"""From trajectories and their grades to training samples: the layout of the tokens, and the records of it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from builders import grade, scored, trajectory
from torl.base.errors import ComponentError
from torl.base.types import FinishReason, Problem, Prompt, ScoredGroup, ScoredTrajectory, TrainingSample
from torl.components.algorithms.advantages import EstimatorInputs, TokenAdvantages
from torl.run.config import AlgorithmConfig, TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.training.samples import (
    prepare_samples,
    training_samples,
    turn_numbers,
    with_advantages,
    with_kl_penalties,
)
from torl.training.selection import mask_samples
from torl.training.step import mean_advantage, token_arrays

NOTHING = np.zeros(6, np.float32)
DR_GRPO = AlgorithmConfig.model_validate({"estimator": "dr_grpo"})
PROMPT = Prompt(Problem("p", "?", "1"), (8, 9))


def member(reward: float = 1.0, *turn_rewards: float, turns: Sequence[str] = ("a", "b")) -> ScoredTrajectory:
    """A prompt of two tokens and a response of two for the first turn, one observed, and one for the second."""
    played = trajectory(*turns, prompt=PROMPT, turn_tokens=1, observation_tokens=1)
    return scored(played, reward=reward, turn_rewards=turn_rewards)


def group(*members: ScoredTrajectory) -> ScoredGroup:
    return ScoredGroup(PROMPT, members)


def sample() -> TrainingSample:
    """A prompt of two tokens and a response of four, the third of which is observed."""
    played = trajectory("a", "b", prompt=PROMPT, observation_tokens=1)
    first, second = played.turns
    played = replace(
        played,
        token_ids_T=np.array([10, 11, 12, 13], np.int32),
        loss_mask_T=np.array([True, True, False, True]),
        rollout_logprobs_T=np.array([-0.5, -0.25, 0, -0.125], np.float32),
        policy_versions_T=np.array([0, 0, -1, 0], np.int32),
        turns=(replace(first, stop=2), replace(second, start=3, stop=4)),
    )
    (found,) = training_samples([scored(played)])
    return found


def test_prompt_and_response_laid_end_to_end() -> None:
    found = sample()
    assert found.token_ids.tolist() == [8, 9, 10, 11, 12, 13]
    assert found.loss_mask.tolist() == [False, False, True, True, False, True]
    assert found.rollout_logprobs.tolist() == [0, 0, -0.5, -0.25, 0, -0.125]
    assert found.policy_versions is not None
    assert found.policy_versions.tolist() == [-1, -1, 0, 0, -1, 0]
    assert found.advantages is None


# --- rewards of turns ---------------------------------------------------------------------------------------------


def test_turn_rewards_are_at_their_last_tokens() -> None:
    played = trajectory("a", "b", "c", prompt=PROMPT, turn_tokens=3, observation_tokens=2)
    rewarded, unpaid = training_samples([scored(played, turn_rewards=(0.5, -1.0, 0.0)), scored(trajectory("d"))])
    assert rewarded.token_rewards is not None
    #                                   prompt  turn       observed  turn     observed  turn
    assert rewarded.token_rewards.tolist() == [0, 0, 0, 0, 0.5, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0]
    assert rewarded.token_rewards.dtype == np.float32
    assert rewarded.loss_mask[rewarded.token_rewards != 0].all()
    assert unpaid.token_rewards is not None
    assert unpaid.token_rewards.tolist() == [0] * len(unpaid)


def test_samples_without_turn_rewards_have_no_token_rewards() -> None:
    assert [each.token_rewards for each in training_samples([member(1.0), member(0.0)])] == [None, None]


def test_grade_with_too_few_turn_rewards_is_refused() -> None:
    with pytest.raises(ValueError, match="0/p, sample 0: 1 turn rewards for 2 turns; a grade has one for every turn"):
        training_samples([member(1.0, 0.5)])


def test_turn_rewards_are_part_of_group_comparison() -> None:
    members = [member(1.0, 0.5, -0.25), member(0.0, 0.0, 0.25)]  # 1.25 and 0.25 in all
    found = with_advantages(training_samples(members), [group(*members)], DR_GRPO)
    assert [mean_advantage(each) for each in found] == [0.5, -0.5]


def test_turn_reward_does_not_reach_later_turns() -> None:
    """Undiscounted returns, 1 + 2 before and 2 after the first turn's end; a critic's advantages less its values."""
    members = [member(2.0, 1.0, 0.0)]
    ppo = AlgorithmConfig.model_validate({"estimator": "ppo"})
    samples = [replace(each, values=np.full(5, 0.5, np.float32)) for each in training_samples(members)]
    (found,) = with_advantages(samples, [group(*members)], ppo)
    assert found.advantages is not None
    assert found.returns is not None
    assert found.advantages.tolist() == [0, 0, 2.5, 0, 1.5]
    assert found.returns.tolist() == [0, 0, 3, 0, 2]


# --- advantages ---------------------------------------------------------------------------------------------------


def mask_second(samples: Sequence[TrainingSample]) -> list[TrainingSample]:
    return mask_samples(samples, {"void_turn": np.arange(len(samples)) == 1})


def test_masked_trajectory_stays_in_its_group_statistics() -> None:
    members = [
        scored(trajectory(*turns), reward=reward) for turns, reward in ((("a", "b"), 1), (("c",), -2), (("d",), -2))
    ]
    samples = training_samples(members)
    assert samples[0].token_ids.tolist() == [1, 2, 3, 0, 1, 2, 3]
    assert samples[0].loss_mask.tolist() == [False] * 3 + [True, False, False, True]
    found = with_advantages(mask_second(samples), [group(*members)], DR_GRPO)
    assert [mean_advantage(each) for each in found] == [2.0, 0.0, -1.0]
    assert found[0].advantages is not None
    assert found[0].advantages.tolist() == [0, 0, 0, 2, 0, 0, 2]
    assert found[1].advantages is not None
    assert not found[1].advantages.any()


def test_turn_rewards_of_a_masked_trajectory_stay_in_the_statistics() -> None:
    members = [member(1.0, 0.0, 0.0), member(0.0, 2.0, 1.0)]  # 1 and 3 in all
    found = with_advantages(mask_second(training_samples(members)), [group(*members)], DR_GRPO)
    assert [mean_advantage(each) for each in found] == [-1.0, 0.0]


def test_groups_are_compared_separately_under_any_names() -> None:
    pairs = [(member(1.0), member(0.0)), (member(5.0), member(3.0))]
    samples = training_samples([each for pair in pairs for each in pair])
    found = with_advantages(samples, [group(*pair) for pair in pairs], DR_GRPO)
    assert [mean_advantage(each) for each in found] == [0.5, -0.5, 1.0, -1.0]


def test_normalized_advantages_have_mean_zero_and_deviation_one() -> None:
    members = [member(1.0), member(0.0), member(0.5)]
    algorithm = DR_GRPO.model_copy(update={"normalize_advantages": True})
    found = with_advantages(training_samples(members), [group(*members)], algorithm)
    sampled = np.concatenate([each.advantages[each.loss_mask] for each in found if each.advantages is not None])
    assert sampled.mean() == pytest.approx(0, abs=1e-6)
    assert sampled.std(ddof=1) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("estimator", ["grpo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "ppo"])
def test_a_step_without_trajectories(estimator: str) -> None:
    assert with_advantages([], [], AlgorithmConfig.model_validate({"estimator": estimator})) == []


def shows_what_it_gets(rewards: EstimatorInputs, missing: int = 0) -> TokenAdvantages:
    """A custom estimator, which gives every token the number of inputs that it received, or one token less."""
    received = sum(each is not None for each in (rewards.token_rewards_M, rewards.values_M))
    return TokenAdvantages(np.full(len(rewards.mask_M) - missing, received, np.float32))


def test_estimator_receives_only_its_requirements() -> None:
    own = {"name": f"{__name__}:shows_what_it_gets"}
    members = [member(1.0)]
    samples = [replace(each, values=np.zeros(5, np.float32)) for each in training_samples(members)]
    found = with_advantages(samples, [group(*members)], AlgorithmConfig.model_validate({"estimator": own}))
    assert found[0].advantages is not None
    assert not found[0].advantages.any()  # no token was rewarded, and nothing asks for a critic
    with pytest.raises(
        ComponentError, match=r"shows_what_it_gets\) .*\nexpected advantages_M of shape \(5,\), got \(4,\)"
    ):
        with_advantages(samples, [group(*members)], AlgorithmConfig.model_validate({"estimator": own | {"missing": 1}}))


def test_missing_input_is_named() -> None:
    members = [member(1.0)]
    with pytest.raises(ValueError, match="annotate them first"):
        with_advantages(
            training_samples(members), [group(*members)], AlgorithmConfig.model_validate({"estimator": "ppo"})
        )
    with pytest.raises(ValueError, match="1 samples of 2 trajectories"):
        with_advantages(training_samples(members), [group(*members, *members)], DR_GRPO)


# --- the distance from a reference policy -------------------------------------------------------------------------


def paying(estimator: str, coefficient: float) -> AlgorithmConfig:
    kl = {"target": "reward", "coefficient": coefficient, "estimator": "k1"}
    return AlgorithmConfig.model_validate({"estimator": estimator, "kl": kl})


def test_a_penalty_on_the_divergence_enters_each_reward() -> None:
    """Undiscounted, the first of two tokens gets the reward for both, and it passes through the observation."""
    members = [member(), member(turns=["c"])]
    samples = training_samples(members)
    prepared = [
        replace(
            each,
            old_logprobs=np.where(each.loss_mask, np.float32(-1), 0),
            ref_logprobs=np.where(each.loss_mask, np.float32(-1.5), 0),
        )
        for each in samples
    ]
    algorithm = paying("dr_grpo", 0.2)
    found = with_advantages(with_kl_penalties(prepared, algorithm), [group(*members)], algorithm)
    # Rewards 1 - 2 * 0.1 and 1 - 0.1.
    assert [mean_advantage(each) for each in found] == pytest.approx([-0.05, 0.05])
    with pytest.raises(ValueError, match="annotate them first"):
        with_kl_penalties(samples, algorithm)


def test_kl_penalty_reduces_the_reward() -> None:
    """If the policy gives a sampled token more than the reference does, the reward is less."""
    far = replace(sample(), old_logprobs=np.array([9, 9, -1, -1, 9, -1], np.float32), ref_logprobs=NOTHING - 3)
    near = replace(far, ref_logprobs=far.old_logprobs)
    algorithm = paying("dr_grpo", 0.5)
    paid = with_kl_penalties([far, near], algorithm)
    found = with_advantages(paid, [group(member(1.0), member(1.0))], algorithm)
    # Three sampled tokens, each twice as likely (in logs) as the reference says: 1 - 3 * 0.5 * 2 = -2, and 1.
    assert [mean_advantage(each) for each in found] == pytest.approx([-1.5, 1.5])
    assert all(not each.advantages[~each.loss_mask].any() for each in found if each.advantages is not None)


def test_turn_reward_and_kl_penalty_combine() -> None:
    members = [member(1.0, 0.5, 0.0), member(1.0, 0.0, 0.0)]
    prepared = [
        replace(each, old_logprobs=np.zeros(5, np.float32), ref_logprobs=np.where(each.loss_mask, np.float32(-1), 0))
        for each in training_samples(members)
    ]
    prepared[1] = replace(prepared[1], ref_logprobs=np.zeros(5, np.float32))
    algorithm = paying("dr_grpo", 0.125)
    found = with_advantages(with_kl_penalties(prepared, algorithm), [group(*members)], algorithm)
    assert [mean_advantage(each) for each in found] == [0.125, -0.125]  # 1 + 0.5 - 2 / 8, and 1


@pytest.mark.parametrize("estimator", ["dr_grpo", "rloo"])
async def test_masked_trajectory_is_compared_with_its_penalty(estimator: str) -> None:
    """Two equal trajectories, of which one is masked: the other has an advantage of 0."""

    async def annotate(samples: Sequence[TrainingSample]) -> list[TrainingSample]:
        return [
            replace(
                each,
                old_logprobs=np.where(each.loss_mask, np.float32(-1), 0),
                ref_logprobs=np.where(each.loss_mask, np.float32(-2), 0),
            )
            for each in samples
        ]

    cut = whole = replace(member(-1.0), grade=grade(False))
    cut = replace(cut, trajectory=replace(cut.trajectory, finish_reason=FinishReason.LENGTH))
    kl = {"kl.target": "reward", "kl.coefficient": 0.1, "kl.estimator": "k1", "estimator": estimator}
    changes = {f"algorithm.{name}": value for name, value in kl.items()} | {"selection.mask.wrong_truncated": {}}
    config = load_config(TrainConfig, find_config("demo"), changes)
    found, masked = await prepare_samples([group(cut, whole)], annotate, config, lambda problem: PROMPT, 10)
    assert masked == {"selection/masked/wrong_truncated": 1}
    assert [mean_advantage(each) for each in found] == [0, 0]
    assert [each.loss_mask.any() for each in found] == [False, True]


@pytest.mark.parametrize(("estimator", "expected"), [("dr_grpo", 0.2), ("reinforce_plus_plus_baseline", 0.0)])
def test_penalty_of_a_masked_trajectory_is_part_of_totals_alone(estimator: str, expected: float) -> None:
    """The baseline of REINFORCE++ is that of the final rewards, without penalties, masked or not."""
    members = [member(-1.0), member(-1.0)]
    far, near = (replace(each, token_rewards=np.zeros(len(each), np.float32)) for each in training_samples(members))
    far = replace(far, token_rewards=np.where(far.loss_mask, np.float32(-0.2), 0))
    samples = mask_samples([far, near], {"cut": np.array([True, False])})
    algorithm = AlgorithmConfig.model_validate({"estimator": estimator})
    _, found = with_advantages(samples, [group(*members)], algorithm)
    assert mean_advantage(found) == pytest.approx(expected)


# --- turn by turn -------------------------------------------------------------------------------------------------

GTPO = AlgorithmConfig.model_validate({"estimator": {"name": "gtpo", "discount": 0.5}})


def test_each_token_knows_the_turn_that_sampled_it() -> None:
    played = member(turns=("a", "b", "c")).trajectory
    assert turn_numbers([played]).tolist() == [-1, -1, 0, -1, 1, -1, 2]
    # An observation may have no token: the turns stay two.
    touching = trajectory("a", "b", prompt=PROMPT, turn_tokens=2, observation_tokens=0)
    assert turn_numbers([touching]).tolist() == [-1, -1, 0, 0, 1, 1]
    # The trajectories of an episode follow one another, and so do their turns.
    assert turn_numbers([touching, touching]).tolist() == [-1, -1, 0, 0, 1, 1, -1, -1, 2, 2, 3, 3]


def test_masked_trajectory_enters_turn_statistics_with_its_total_reward() -> None:
    """Rewards 1/4 and 3/4 for its turns and 1 at the end; a masked trajectory gets 2 in its last turn."""
    for turns in ((0.25, 0.75), (0.0, 0.0)):
        members = [member(1.0 if any(turns) else 2.0, *turns), member(-1.0, turns=["c"])]
        quiet = mask_samples(training_samples(members), {"cut": np.arange(len(members)) == 0})
        first, second = with_advantages(quiet, [group(*members)], GTPO)
        assert mean_advantage(first) == 0
        # Returns 1, 2 and -1: mean 2/3, variance 7/3.
        assert mean_advantage(second) == pytest.approx((-1 - 2 / 3) / (7 / 3) ** 0.5, rel=1e-5)


# --- what is written down -----------------------------------------------------------------------------------------


def test_numbers_that_are_written_down_are_those_of_the_response() -> None:
    numbers = np.arange(6, dtype=np.float32)
    of_values = replace(sample(), values=numbers, advantages=10 * numbers)
    found = token_arrays(of_values, 4, AlgorithmConfig.model_validate({"estimator": "ppo"}))
    assert {name: array.tolist() for name, array in found.items()} == {
        "values": [2, 3, 4, 5],
        "advantages": [20, 30, 40, 50],
    }
    assert token_arrays(of_values, 4, AlgorithmConfig()) == {}  # one number says it all
    rewarded = token_arrays(replace(of_values, token_rewards=numbers / 2), 4, AlgorithmConfig())
    assert {name: array.tolist() for name, array in rewarded.items()} == {
        "token_rewards": [1, 1.5, 2, 2.5],
        "advantages": [20, 30, 40, 50],
    }
    distant = replace(of_values, old_logprobs=-numbers, ref_logprobs=-2 * numbers)
    assert list(token_arrays(distant, 4, paying("grpo", 0.1))) == ["old_logprobs", "ref_logprobs", "advantages"]


def test_the_mean_advantage_is_over_sampled_tokens() -> None:
    assert mean_advantage(replace(sample(), advantages=np.array([9, 9, 1, 2, 9, 6], np.float32))) == 3
    assert mean_advantage(replace(sample(), advantages=NOTHING, loss_mask=np.zeros(6, np.bool_))) == 0
    assert mean_advantage(sample()) == 0
