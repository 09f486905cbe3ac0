"""The estimators of 2026 against their formulas in plain loops, and GRPO-RoC against its published code."""

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean, stdev

import numpy as np
import pytest

from builders import call, failed, grade, scored_group, trajectory
from graded_inputs import estimate, groups_of, random_inputs, rows
from torl.base.types import ScoredTrajectory
from torl.components.algorithms import ESTIMATORS
from torl.components.algorithms.advantages import EstimatorInputs
from torl.components.algorithms.requirements import requirements_of
from torl.components.algorithms.selection import MEMBER_FILTERS, defects


def normalized(values: list[float]) -> list[float]:
    """(r - mean) / (std + 1e-6), as GRPO has it; a single value has mean 0 and std 1."""
    if len(values) == 1:
        return [values[0] / (1 + 1e-6)]
    mean = fmean(values)
    return [(value - mean) / (stdev(values) + 1e-6) if len(set(values)) > 1 else 0.0 for value in values]


# --- references: one response at a time -----------------------------------------------------------------------------


def maxrl(inputs: EstimatorInputs) -> list[float]:
    found = [0.0] * len(inputs.rewards_N)
    for indices in groups_of(inputs):
        rewards = [float(inputs.rewards_N[index]) for index in indices]
        mean = fmean(rewards)
        for index, reward in zip(indices, rewards, strict=True):
            found[index] = (reward - mean) / mean if len(indices) > 1 and mean > 0 else 0.0
    return found


def gdpo(inputs: EstimatorInputs, weights: Mapping[str, float]) -> list[float]:
    found = [0.0] * len(inputs.rewards_N)
    for indices in groups_of(inputs):
        for name in ("answer", "length"):
            values = [inputs.members_N[index].grade.parts[name] for index in indices]
            for index, value in zip(indices, normalized(values), strict=True):
                found[index] += weights.get(name, 1.0) * value
    tokens = [value for value, row in zip(found, rows(inputs, inputs.mask_M), strict=True) for _ in row]
    mean = fmean(tokens)
    variance = sum((value - mean) ** 2 for value in tokens) / (len(tokens) - 1)
    return [(value - mean) / math.sqrt(variance + 1e-8) for value in found]


def aspo(inputs: EstimatorInputs) -> list[float]:
    found = [0.0] * len(inputs.rewards_N)
    for indices in groups_of(inputs):
        advantages = normalized([float(inputs.rewards_N[index]) for index in indices])
        places, lengths = {}, {}
        for index in indices:
            each = inputs.members_N[index]
            if each.grade.correct and each.trajectory.first_code is not None:
                mask = each.trajectory.loss_mask_T
                places[index], lengths[index] = int(mask[: each.trajectory.first_code].sum()), int(mask.sum())
        for index, advantage in zip(indices, advantages, strict=True):
            bonus = 0.0
            if index in places:
                bonus = -2.0 * (places[index] - fmean(places.values())) / fmean(lengths.values())
            bound = 0.7 * abs(advantage)
            found[index] = advantage + min(max(bonus, -bound), bound)
    return found


def adatir(inputs: EstimatorInputs) -> list[float]:
    found = [0.0] * len(inputs.rewards_N)
    for indices in groups_of(inputs):
        advantages = normalized([float(inputs.rewards_N[index]) for index in indices])
        right = [index for index in indices if inputs.members_N[index].grade.correct]
        easy = len(right) >= 2 and 1 - len(right) / len(indices) < 0.5
        penalties = {
            index: -0.5 * math.sin(math.pi / 2 * min(len(inputs.members_N[index].trajectory.tool_calls) / 2, 1))
            for index in right
        }
        for index, advantage in zip(indices, advantages, strict=True):
            found[index] = advantage
            if easy and index in penalties:
                shaped = advantage + penalties[index] - fmean(penalties.values())
                found[index] = max(shaped, 0.1 * max(advantage, 0.0))
    return found


REFERENCES = {
    "maxrl": maxrl,
    "gdpo": lambda inputs: gdpo(inputs, {"length": 0.3}),
    "aspo": aspo,
    "adatir": adatir,
}


@pytest.mark.parametrize("name", REFERENCES)
def test_an_estimator_is_its_formula(name: str) -> None:
    different = 0
    for seed in range(200):
        inputs = random_inputs(seed)
        options = {"weights": {"length": 0.3}} if name == "gdpo" else {}
        expected = REFERENCES[name](inputs)
        for row, value in zip(rows(inputs, estimate(name, inputs, **options)), expected, strict=True):
            assert row == pytest.approx([value] * len(row), rel=1e-6, abs=1e-6)
        different += not np.allclose(estimate(name, inputs, **options), estimate("grpo", inputs), atol=1e-3)
    assert different > 100  # the batches reach the branches in which it is not GRPO


def test_distillation_is_the_difference_of_teacher_and_policy() -> None:
    inputs = random_inputs(0)
    assert inputs.ref_logprobs_M is not None
    assert inputs.old_logprobs_M is not None
    expected = np.where(inputs.mask_M, np.clip(inputs.ref_logprobs_M - inputs.old_logprobs_M, -1, 1), 0)
    assert estimate("distillation", inputs, limit=1.0) == pytest.approx(expected)


@pytest.mark.parametrize("name", sorted(ESTIMATORS.keys() - {"optimal_token_baseline"}))  # where one token is alone
def test_an_estimator_declares_that_it_learns_from_equal_rewards(name: str) -> None:
    """Groups of one reward have advantages. Each group has one reward, another one than the others."""
    options = {"discount": 0.9} if name == "gtpo" else {}
    found = False
    for seed in range(30):
        inputs = random_inputs(seed)
        rewards_N = inputs.rewards_N.copy()
        for number, indices in enumerate(groups_of(inputs)):
            rewards_N[indices] = number if len(indices) > 1 else 0.0
        found |= bool(estimate(name, replace(inputs, rewards_N=rewards_N), **options).any())
    requirements = requirements_of(ESTIMATORS[name])
    assert found == (requirements.uniform_groups or requirements.across_groups)


def test_equal_rewards_by_hand() -> None:
    """Two correct responses, of two turns and of one, and of no call and of four."""
    two, one = (ScoredTrajectory(trajectory(*turns), grade(), 1.0) for turns in (("a", "b"), ("c",)))
    masks = [each.trajectory.loss_mask_T for each in (two, one)]
    inputs = EstimatorInputs(
        rewards_N=np.ones(2),
        groups_N=["g"] * 2,
        lengths_N=np.array([len(mask) for mask in masks], np.int64),
        mask_M=np.concatenate(masks),
        turns_M=np.array([0, -1, -1, 1, 0], np.int32),
        members_N=[two, one],
    )
    assert scored_group(two, one).has_zero_variance
    found = estimate("gtpo", inputs, discount=0.9)
    assert found[inputs.mask_M] == pytest.approx([-1.1547, 0.5774, 0.5774], abs=1e-3)
    none, four = said("1"), played(True, 4, 0)
    masks = [each.trajectory.loss_mask_T for each in (none, four)]
    assert scored_group(none, four).has_zero_variance
    lengths_N, mask_M = np.array([len(mask) for mask in masks], np.int64), np.concatenate(masks)
    inputs = replace(inputs, lengths_N=lengths_N, mask_M=mask_M, turns_M=None, members_N=[none, four])
    by_row = rows(inputs, estimate("adatir", inputs, max_calls=4))
    assert [set(row) for row in by_row] == [{0.25}, {0.0}]


def test_shaping_keeps_correct_responses_above_wrong_ones() -> None:
    for seed in range(100):
        inputs = random_inputs(seed)
        inputs = replace(inputs, rewards_N=np.where(inputs.correct, 1.0, -1.0))
        for name in ("aspo", "adatir"):
            found = [row[0] for row in rows(inputs, estimate(name, inputs))]
            for indices in groups_of(inputs):
                right = [found[index] for index in indices if inputs.correct[index]]
                wrong = [found[index] for index in indices if not inputs.correct[index]]
                if right and wrong:
                    assert min(right) >= 0 >= max(wrong)
                    assert min(right) > max(wrong)


def test_maxrl_refuses_negative_rewards_and_gdpo_weights_of_unknown_parts() -> None:
    inputs = random_inputs(1)
    with pytest.raises(Exception, match="'maxrl' divides by the mean reward and requires rewards of"):
        estimate("maxrl", replace(inputs, rewards_N=inputs.rewards_N * 0 - 1))
    with pytest.raises(Exception, match="'gdpo' has a weight of 'style'; the parts are answer, length"):
        estimate("gdpo", inputs, weights={"style": 2.0})


def test_gdpo_is_whitened_grpo_for_a_reward_without_parts() -> None:
    inputs = replace(random_inputs(2), members_N=())
    one = estimate("gdpo", inputs)[inputs.mask_M]
    plain = estimate("grpo", inputs)[inputs.mask_M]
    assert np.corrcoef(one, plain)[0, 1] == pytest.approx(1.0)
    assert (one.mean(), one.std(ddof=1)) == pytest.approx((0.0, 1.0), abs=1e-5)


def test_optimal_token_baseline_equals_its_formula() -> None:
    inputs = random_inputs(5)
    assert inputs.old_logprobs_M is not None
    assert inputs.collision_probs_M is not None
    found = rows(inputs, estimate("optimal_token_baseline", inputs))
    norms = rows(inputs, 1 - 2 * np.exp(inputs.old_logprobs_M) + inputs.collision_probs_M)
    for indices in groups_of(inputs):
        for index in indices:
            for place, advantage in enumerate(found[index]):
                long = [other for other in indices if len(norms[other]) > place]
                weights = [math.fsum(norms[other][: place + 1]) for other in long]
                paid = [weight * inputs.rewards_N[other] for weight, other in zip(weights, long, strict=True)]
                baseline = sum(paid) / sum(weights) if len(long) > 1 else 0.0
                assert advantage == pytest.approx(inputs.rewards_N[index] - baseline, abs=1e-5)


# --- GRPO-RoC -------------------------------------------------------------------------------------------------------


def played(correct: bool, calls: int, bad: int, answers: int = 1) -> ScoredTrajectory:
    outcomes = [call(outcome=failed()) if index < bad else call() for index in range(calls)]
    texts = ["step"] * calls + ["\\boxed{1} " * answers]
    given = grade(correct)
    return ScoredTrajectory(trajectory(*texts, calls=outcomes), given, given.reward)


def said(text: str) -> ScoredTrajectory:
    return ScoredTrajectory(trajectory(text), grade(), 1.0)


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        (played(True, 0, 0), 0.5),
        (played(True, 4, 1), 0.25),
        (played(True, 1, 1, answers=3), 2.0),
        (played(True, 3, 0, answers=2), 0.25),
        (played(False, 2, 1, answers=0), 1.5),
        (said("So <answer> \\boxed{1} </answer>"), 0.5),
        (said("<answer>1</answer> or <answer>2</answer>"), 1.5),
    ],
)
def test_defects_are_failed_calls_and_repeated_or_missing_answers(member: ScoredTrajectory, expected: float) -> None:
    assert defects(member) == pytest.approx(expected)


def published(penalties: list[tuple[bool, float]], count: int) -> set[int]:
    """`resample_of_correct` of rStar2's `roc.py` (commit 5e95b19), on pairs of correctness and penalty."""
    wrong = [(p, i) for i, (right, p) in enumerate(penalties) if not right]
    right = sorted((p, i) for i, (correct, p) in enumerate(penalties) if correct)
    wrong_count = round(len(wrong) * count / len(penalties))
    right_count = round(len(right) * count / len(penalties))
    if wrong_count <= min(2, len(wrong)):
        wrong_count = min(2, len(wrong))
        right_count = count - wrong_count
    if right_count <= min(2, len(right)):
        right_count = min(2, len(right))
        wrong_count = count - right_count
    return {i for _, i in right[:right_count] + wrong[:wrong_count]}


def test_resampling_equals_the_published_code() -> None:
    random = np.random.default_rng(0)
    for _ in range(300):
        size = int(random.integers(5, 33))
        rate = random.random()
        members = [
            played(
                bool(random.random() < rate), calls := int(random.integers(0, 5)), int(random.integers(0, calls + 1))
            )
            for _ in range(size)
        ]
        count = size // 2
        expected = published([(each.grade.correct, defects(each)) for each in members], count)
        kept = {id(each) for each in MEMBER_FILTERS["resample_on_correct"](scored_group(*members), count=count)}
        assert len(kept) == count
        if len(expected) == count:  # its rounding may miss the number, which stops it there
            assert kept == {id(members[index]) for index in expected}


def test_a_group_that_is_small_enough_is_kept() -> None:
    group = scored_group(*[played(True, 1, 0) for _ in range(7)], played(False, 0, 0))
    assert MEMBER_FILTERS["resample_on_correct"](group, count=8) == list(group.members)
    assert len(MEMBER_FILTERS["resample_on_correct"](group, count=7)) == 7
