"""Records of a step: all that was played, and the part of the batch that was learned."""

from dataclasses import replace

import numpy as np

from builders import asked, grade, scored, scored_group, trajectory
from torl.base.types import ScoredGroup, TrainingSample
from torl.run.config import AlgorithmConfig
from torl.run.records.rows import group_records
from torl.training.samples import training_samples
from torl.training.step import PlayedStep, step_records

PLAIN = AlgorithmConfig.model_validate({"estimator": "dr_grpo"})
PENALIZED = AlgorithmConfig.model_validate({"kl": {"coefficient": 0.1, "target": "reward"}})


def group(problem: str, *rewards: float) -> ScoredGroup:
    """A group whose trajectories are one sampled token each, after a prompt of three."""
    prompt = asked(problem)
    return scored_group(
        *(scored(trajectory("a", prompt=prompt, sample=number), reward=reward) for number, reward in enumerate(rewards))
    )


def played_of(groups: tuple[ScoredGroup, ...], batch: tuple[ScoredGroup, ...]) -> PlayedStep:
    return PlayedStep(groups, batch, {}, 0.0, 0.0)


def learned_of(batch: tuple[ScoredGroup, ...], *advantages: float) -> list[TrainingSample]:
    """The samples of a batch, each with its advantage on its last token."""
    samples = training_samples([member for each in batch for member in each.members])
    return [
        replace(sample, advantages=np.array([0, 0, 0, advantage], np.float32))
        for sample, advantage in zip(samples, advantages, strict=True)
    ]


def test_groups_outside_the_batch_are_written_without_advantages() -> None:
    first, second = group("p", 1.0, 0.0), group("q", 1.0, 1.0)
    records = step_records(7, played_of((second, first), (first,)), learned_of((first,), 0.5, -0.5), PLAIN)
    assert [(each.trajectory.group_id, each.trajectory.sample_index, each.advantage) for each in records] == [
        ("0/q", 0, None),
        ("0/q", 1, None),
        ("0/p", 0, 0.5),
        ("0/p", 1, -0.5),
    ]
    assert {each.step for each in records} == {7}
    assert all(each.token_arrays == {} for each in records)


def test_recorded_grades_are_the_rewards_before_shuffling() -> None:
    only = group("p", 3.0, 1.0)
    shuffled = replace(only, members=tuple(replace(member, reward=-9.0) for member in only.members))
    records = step_records(0, played_of((only,), (shuffled,)), learned_of((shuffled,), 1.0, -1.0), PLAIN)
    assert [each.grade.reward for each in records] == [3.0, 1.0]
    assert [each.advantage for each in records] == [1.0, -1.0]


def test_numbers_on_tokens_are_those_of_the_response() -> None:
    only = (group("p", 1.0),)
    (sample,) = learned_of(only, 2.0)
    old = np.array([9, 9, 9, -0.5], np.float32)
    ref = np.array([9, 9, 9, -0.25], np.float32)
    (record,) = step_records(0, played_of(only, only), [replace(sample, old_logprobs=old, ref_logprobs=ref)], PENALIZED)
    numbers = {name: array.tolist() for name, array in record.token_arrays.items()}
    assert numbers == {"old_logprobs": [-0.5], "ref_logprobs": [-0.25], "advantages": [2.0]}


def test_an_evaluation_has_grades_and_nothing_learned() -> None:
    records = group_records(4, [group("p", 1.0, 0.0), group("q", 1.0)])
    assert [(each.step, each.trajectory.group_id, each.trajectory.sample_index) for each in records] == [
        (4, "0/p", 0),
        (4, "0/p", 1),
        (4, "0/q", 0),
    ]
    assert [each.grade for each in records] == [grade(True, 1.0), grade(True, 0.0), grade(True, 1.0)]
    assert all(each.advantage is None and each.token_arrays == {} for each in records)
