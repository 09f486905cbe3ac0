"""Episodes of several trajectories: one reward, one advantage, one weight, and every token learned from once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from builders import scored, trajectory
from torl.base.types import (
    FinishReason,
    Group,
    Problem,
    Prompt,
    ScoredGroup,
    ScoredTrajectory,
    TrainingSample,
    Trajectory,
)
from torl.components.algorithms.aggregation import AGGREGATIONS
from torl.components.rewards import MathOptions, MathReward
from torl.learner.batch import pack_batch
from torl.run.config import AlgorithmConfig, TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.records.dynamics import training_dynamics
from torl.run.records.rows import decode_trajectory, encode_trajectory, group_records
from torl.training.samples import training_samples, with_advantages
from torl.training.selection import mask_samples, masked_trajectories
from torl.training.step import PlayedStep, mean_advantage, step_records
from torl_lab.audit.advantages import check_advantages
from torl_lab.audit.batch import LearnedBatch
from torl_lab.audit.checks import Check

PROMPT = Prompt(Problem("p", "?", "1"), (8, 9))
ESTIMATORS = ["grpo", "dr_grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "ppo"]


def episode(sample: int, *branch_tokens: int, tokens: int = 2, answer: str | None = "1") -> Trajectory:
    """A trajectory of the given number of tokens, and branches of the given lengths."""
    branches = tuple(
        trajectory("b", prompt=replace(PROMPT, token_ids=(7, 7, 7)), sample=sample, turn_tokens=count)
        for count in branch_tokens
    )
    main = trajectory("m", prompt=PROMPT, sample=sample, turn_tokens=tokens)
    return replace(main, branches=branches, answer=answer)


def played() -> ScoredGroup:
    """Rewards 1, 0, 0 in a group whose first episode has two branches."""
    members = (
        scored(episode(0, 3, 1), reward=1.0),
        scored(episode(1), reward=0.0),
        scored(episode(2, 5), reward=0.0),
    )
    return ScoredGroup(PROMPT, members)


def config(**overrides: Any) -> TrainConfig:
    return load_config(
        TrainConfig, find_config("demo"), {name.replace("__", "."): each for name, each in overrides.items()}
    )


def prepared(members: Sequence[ScoredTrajectory]) -> list[TrainingSample]:
    """The samples with the values of a critic."""
    random = np.random.default_rng(0)
    return [
        replace(sample, values=np.where(sample.loss_mask, random.normal(size=len(sample)), 0).astype(np.float32))
        for sample in training_samples(members)
    ]


def test_groups_compare_episodes_and_branches_share_the_advantage() -> None:
    group = played()
    found = with_advantages(
        training_samples(group.members), [group], AlgorithmConfig.model_validate({"estimator": "dr_grpo"})
    )
    assert [mean_advantage(each) for each in found] == pytest.approx([2 / 3, 2 / 3, 2 / 3, -1 / 3, -1 / 3, -1 / 3])
    assert [each.episode for each in found] == [0, 0, 0, 1, 2, 2]
    assert [int(each.loss_mask.sum()) for each in found] == [3, 1, 2, 2, 5, 2]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_branched_episode_is_estimated_as_one_with_all_tokens(estimator: str) -> None:
    options = {"discount": 0.5} if estimator in ("reinforce_plus_plus", "ppo") else {}
    algorithm = AlgorithmConfig.model_validate({"estimator": {"name": estimator, **options}})
    group = played()
    samples = prepared(group.members)
    found = with_advantages(samples, [group], algorithm)

    def joined(member: ScoredTrajectory) -> ScoredTrajectory:
        tokens = sum(len(each) for each in member.trajectory.episode_trajectories)
        return replace(member, trajectory=trajectory("m", prompt=PROMPT, turn_tokens=tokens))

    whole = replace(group, members=tuple(map(joined, group.members)))
    values = [
        np.concatenate(
            [each.values[each.loss_mask] for each in samples if each.episode == number and each.values is not None]
        )
        for number in range(3)
    ]
    alone = [
        replace(each, values=np.concatenate([np.zeros(2, np.float32), own]))
        for each, own in zip(training_samples(whole.members), values, strict=True)
    ]
    for number, expected in enumerate(with_advantages(alone, [whole], algorithm)):
        for name in ("advantages", "returns") if estimator == "ppo" else ("advantages",):
            own = [getattr(each, name)[each.loss_mask] for each in found if each.episode == number]
            assert np.concatenate(own).tolist() == getattr(expected, name)[expected.loss_mask].tolist()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_an_episode_counts_once_in_the_loss_however_many_trajectories_it_has(aggregation: str) -> None:
    options = {"length": 10} if aggregation == "fixed_length" else {}
    algorithm = AlgorithmConfig.model_validate({"aggregation": {"name": aggregation, **options}})
    group = played()
    samples = [replace(each, advantages=each.loss_mask.astype(np.float32)) for each in training_samples(group.members)]
    batch = pack_batch(samples, max_row_tokens=64, ranks=1, aggregation=algorithm.aggregation.bind())
    (row,) = batch.rows[0]
    tokens = [6, 2, 7]
    by_hand = {"token": [1 / 15] * 3, "sequence": [1 / (3 * count) for count in tokens], "fixed_length": [1 / 30] * 3}
    for index, sample in enumerate(samples):
        assert sample.episode is not None
        assert set(row.weight_K[row.sample_K == index].tolist()) == {np.float32(by_hand[aggregation][sample.episode])}


@pytest.mark.parametrize("estimator", ESTIMATORS[:-1])
@pytest.mark.parametrize("late", [False, True])
def test_audit_recomputes_branch_advantages_and_finds_a_wrong_one(estimator: str, late: bool) -> None:
    settings = config(
        algorithm__estimator__name=estimator,
        selection__groups__zero_variance=False,
        selection__mask={"wrong_truncated": {}},
        selection__mask_after_advantages=late,
    )
    group = played()
    cut = replace(group.members[2].trajectory.branches[0], finish_reason=FinishReason.LENGTH)
    last = replace(group.members[2], trajectory=replace(group.members[2].trajectory, branches=(cut,)))
    group = replace(group, members=(*group.members[:2], replace(last, grade=replace(last.grade, correct=False))))
    flat = [each for member in group.members for each in member.episode_trajectories]
    quiet = masked_trajectories(flat, settings.selection)
    assert {name: np.flatnonzero(masked).tolist() for name, masked in quiet.items()} == {"wrong_truncated": [4]}
    samples = mask_samples(training_samples(group.members), {} if late else quiet)
    samples = mask_samples(with_advantages(samples, [group], settings.algorithm), quiet)
    records = step_records(0, PlayedStep((group,), (group,), {}, 0.0, 0.0), samples, settings.algorithm)
    assert [len(record.branches) for record in records] == [2, 0, 1]
    check = Check("advantages")
    check_advantages(check, LearnedBatch(records, 0, settings))
    assert (check.compared, check.wrong) == (6, 0)
    branch = records[0].branches[1]
    wrong = replace(records[0], branches=(records[0].branches[0], replace(branch, advantage=branch.advantage + 0.1)))
    check_advantages(again := Check("advantages"), LearnedBatch([wrong, *records[1:]], 0, settings))
    assert again.wrong == 1


def test_turn_rewards_are_in_the_last_trajectory_only() -> None:
    branch, main = training_samples([scored(episode(0, 3), turn_rewards=(0.5,))])
    assert branch.token_rewards is not None
    assert main.token_rewards is not None
    assert (branch.token_rewards.sum(), main.token_rewards.sum()) == (0.0, 0.5)


def test_a_row_holds_the_branches_of_its_episode() -> None:
    for record in group_records(3, [played()]):
        again = decode_trajectory(encode_trajectory(record))
        assert encode_trajectory(again) == encode_trajectory(record)
        assert [len(each) for each in again.trajectory.branches] == [len(each) for each in record.trajectory.branches]
        assert again.trajectory.answer == "1"
    assert "branches" not in encode_trajectory(group_records(3, [played()])[1])


def test_metrics_count_responses_and_say_how_many_are_branches() -> None:
    dynamics = training_dynamics([played()])
    assert dynamics["response/branches"] == 1.0
    assert dynamics["response/sampled_tokens"] == 15 / 6
    assert dynamics["reward/mean"] == pytest.approx(1 / 3)
    plain = ScoredGroup(PROMPT, (scored(episode(0)),))
    assert "response/branches" not in training_dynamics([plain])


async def test_the_programs_answer_is_graded_instead_of_the_text() -> None:
    both = [trajectory("\\boxed{2}", answer="1"), replace(trajectory("\\boxed{2}", answer="1"), answer="so \\boxed{1}")]
    reward = MathReward(MathOptions())
    grades = await reward.grade(Group(both[0].prompt, tuple(both), 10))
    assert [each.correct for each in grades] == [False, True]
