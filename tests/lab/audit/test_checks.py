"""The checks of an audit on records made by hand."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from builders import grade, scored_group, trajectory
from torl.base.types import (
    FinishReason,
    Grade,
    Group,
    Outcome,
    OutcomeStatus,
    Problem,
    Prompt,
    ScoredTrajectory,
    TrainingSample,
)
from torl.components.rewards import Reward
from torl.run.config import AlgorithmConfig, TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.records.row_types import MAX_OUTPUT_CHARACTERS
from torl.run.records.rows import TrajectoryRecord
from torl.training.health import inexact_logprobs
from torl.training.samples import training_samples, with_advantages
from torl.training.selection import mask_samples
from torl.training.step import mean_advantage, token_arrays
from torl_lab.audit.advantages import check_advantages
from torl_lab.audit.batch import LearnedBatch
from torl_lab.audit.checks import Check, check_rewards, grade_mismatch, version_mismatch
from torl_lab.audit.logprobs import Sample, check_references, token_gaps
from torl_lab.audit.replay import is_complete, python_mismatch


def config(**overrides: Any) -> TrainConfig:
    overrides = {name.replace("__", "."): value for name, value in overrides.items()}
    return load_config(TrainConfig, find_config("demo"), overrides)


def batch(*rewards: float, turn_rewards: Sequence[float] = ()) -> list[TrajectoryRecord]:
    """A group with two turns in each trajectory, whose advantages are by dr_grpo."""
    grades = [
        grade(reward > 0, reward, turn_rewards=turn_rewards if not index else ())
        for index, reward in enumerate(rewards)
    ]
    mean = sum(each.total for each in grades) / len(grades)
    return [
        TrajectoryRecord(0, trajectory("```python\n1\n```\n```output", "2", turn_tokens=3), each, each.total - mean)
        for each in grades
    ]


# --- versions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "allowed"), [(2, False), (3, True), (5, True), (6, False)])
def test_a_step_allows_so_many_versions(version: int, allowed: bool) -> None:
    problem = version_mismatch(TrajectoryRecord(5, trajectory("2", version=version), grade()), max_staleness=2)
    assert (problem is None) is allowed
    if problem is not None:
        assert problem == f"sampled by policy versions [{version}], expected 3 to 5"


def test_the_first_steps_allow_no_version_before_the_first() -> None:
    played = trajectory("2", turn_tokens=2)
    played = replace(played, policy_versions_T=np.array([0, -1], np.int32))
    assert version_mismatch(TrajectoryRecord(1, played, grade()), max_staleness=4) is not None


# --- rewards ------------------------------------------------------------------------------------------------------


class Stubborn(Reward):
    """Says the same of every trajectory, and remembers what it was asked."""

    def __init__(self, said: Grade) -> None:
        self.said = said
        self.asked: list[Group] = []

    async def grade(self, group: Group) -> list[Grade]:
        self.asked.append(group)
        return [self.said for _ in group.trajectories]


async def test_a_reward_sees_whole_groups_with_the_run_s_limit() -> None:
    groups = [
        [trajectory("1", group=name, sample=sample, tokens=[7, 8]) for sample in range(3)] for name in ("0/a", "0/b")
    ]
    # A further round may have been played in between.
    mixed = [each for pair in zip(*groups, strict=True) for each in pair]
    reward, check = Stubborn(grade()), Check("rewards")
    await check_rewards(check, [TrajectoryRecord(0, each, grade()) for each in mixed], reward, 77, {})
    assert [request.trajectories for request in reward.asked] == [tuple(members) for members in groups]
    assert {request.max_response_tokens for request in reward.asked} == {77}
    assert (check.compared, check.wrong) == (6, 0)


async def test_a_grade_that_could_not_be_decided_says_nothing() -> None:
    records = [TrajectoryRecord(0, trajectory("1"), each) for each in (grade(), grade(False, failure="timeout"))]
    check = Check("rewards")
    await check_rewards(check, records, Stubborn(grade(False)), 10, {})
    assert (check.compared, check.wrong) == (1, 1)
    undecided = Check("rewards")
    await check_rewards(undecided, records, Stubborn(grade(False, failure="error")), 10, {})
    assert undecided.compared == 0


@pytest.mark.parametrize(
    ("again", "words"),
    [
        ({"reward": 0.5}, "reward 1.0, again 0.5"),
        ({"correct": False}, "is correct: True"),
        ({"answer": "2"}, "again '2'"),
        ({"parts": {"answer": 0.5, "length": 0.5}}, "parts"),
        ({"parts": {"answer": 1.0}}, "parts"),
        ({"turn_rewards": (0.0, 0.25)}, "turn rewards"),
        ({"turn_rewards": ()}, "turn rewards"),
    ],
)
def test_grade_mismatch_is_named(again: Mapping[str, Any], words: str) -> None:
    recorded = Grade(1.0, True, "1", parts={"answer": 0.75, "length": 0.25}, turn_rewards=(0.25, 0.0))
    assert grade_mismatch(recorded, recorded) is None
    assert words in (grade_mismatch(recorded, replace(recorded, **again)) or "")


# --- advantages ---------------------------------------------------------------------------------------------------


DR_GRPO = {"algorithm__estimator__name": "dr_grpo"}


def checked(records: Sequence[TrajectoryRecord], **overrides: Any) -> Check:
    check = Check("advantages")
    check_advantages(check, LearnedBatch(records, 0, config(selection__groups__zero_variance=False, **overrides)))
    return check


def test_advantages_that_follow_from_the_rewards_are_right() -> None:
    assert checked(batch(1.0, -1.0, 1.0), **DR_GRPO).wrong == 0
    off = batch(1.0, -1.0, 1.0)
    off[1] = replace(off[1], advantage=-1.3)
    assert checked(off, **DR_GRPO).wrong == 1


def test_turn_rewards_are_compared() -> None:
    check = checked(batch(1.0, -1.0, turn_rewards=(0.5, 0.25)), **DR_GRPO)
    assert (check.compared, check.wrong) == (2, 0)


def test_turn_rewards_of_masked_trajectories_are_compared() -> None:
    cut, other = batch(-1.0, 1.0, turn_rewards=(0.5, 0.25))
    cut = replace(cut, trajectory=replace(cut.trajectory, finish_reason=FinishReason.LENGTH), advantage=0.0)
    check = checked([cut, other], selection__mask={"wrong_truncated": {}}, **DR_GRPO)
    assert (check.compared, check.wrong) == (2, 0)


@pytest.mark.parametrize(("advantage", "wrong"), [(0.0, 0), (-0.3, 1)])
def test_kl_penalties_of_masked_trajectories_are_compared(advantage: float, wrong: int) -> None:
    """Both trajectories, of six sampled tokens each, get -1 - 6 * 0.1 * 0.5."""
    records = []
    for record, mean in zip(batch(-1.0, -1.0), (0.0, advantage), strict=True):
        mask_T = record.trajectory.loss_mask_T
        arrays = {"old_logprobs": np.where(mask_T, -1.0, 0), "ref_logprobs": np.where(mask_T, -1.5, 0)}
        arrays["advantages"] = np.where(mask_T, mean, 0)
        records.append(replace(record, advantage=mean, token_arrays={k: v.astype("f4") for k, v in arrays.items()}))
    cut = replace(records[0].trajectory, finish_reason=FinishReason.LENGTH)
    records[0] = replace(records[0], trajectory=cut)
    kl = {"target": "reward", "coefficient": 0.1, "estimator": "k1"}
    check = checked(records, selection__mask={"wrong_truncated": {}}, algorithm__kl=kl, **DR_GRPO)
    assert (check.compared, check.wrong) == (2, wrong)


@pytest.mark.parametrize(("max_perplexity", "wrong"), [(7.9, 0), (8.1, 1), (1e9, 1)])
def test_improbable_trajectories_have_no_advantage(max_perplexity: float, wrong: int) -> None:
    """Sampled tokens of perplexity 8 and 2: the first is recorded as masked."""
    records = batch(-1.0, 1.0)
    for index, perplexity in enumerate((8.0, 2.0)):
        mask = records[index].trajectory.loss_mask_T
        numbers = {"ref_logprobs": np.where(mask, -np.log(perplexity), 0).astype(np.float32)}
        records[index] = replace(records[index], token_arrays=numbers)
    records[0] = replace(records[0], advantage=0.0)
    masks = {"improbable": {"above": max_perplexity}}
    assert checked(records, selection__mask=masks, **DR_GRPO).wrong == wrong


def test_turn_reward_is_at_its_last_token() -> None:
    """Its reward is in the returns of its own tokens and of those before it."""
    records = batch(0.0, 0.0, turn_rewards=(0.5, 0.25))
    returns = [[0.75, 0.75, 0.75, 0.25, 0.25, 0.25], [0.0] * 6]
    mean = sum(map(sum, returns)) / 12
    deviation = (sum((value - mean) ** 2 for row in returns for value in row) / 11) ** 0.5
    for index, row in enumerate(returns):
        mask = records[index].trajectory.loss_mask_T
        expected = np.zeros(len(mask), np.float32)
        expected[mask] = [(value - mean) / deviation for value in row]
        records[index] = replace(
            records[index], advantage=float(expected[mask].mean()), token_arrays={"advantages": expected}
        )
    check = checked(records, algorithm__estimator__name="reinforce_plus_plus")
    assert (check.compared, check.wrong) == (2, 0)
    assert checked(records[::-1], algorithm__estimator__name="reinforce_plus_plus").wrong == 0


def test_turn_level_advantages_are_recomputed_as_in_training() -> None:
    """Also if the first of three was masked: its turns stay in the comparison, rewarded at their end."""
    cut, *others = batch(-1.0, 1.0, -1.0, turn_rewards=(0.5, 0.25))
    cut = replace(cut, trajectory=replace(cut.trajectory, finish_reason=FinishReason.LENGTH))
    records = [cut, *others]
    estimator = {"name": "gtpo", "discount": 0.5, "baseline": "group"}
    for quiet in ([False] * 3, [True, False, False]):
        members = [ScoredTrajectory(record.trajectory, record.grade, record.grade.reward) for record in records]
        samples = mask_samples(training_samples(members), {"wrong_truncated": np.array(quiet)})
        trained = with_advantages(
            samples, [scored_group(*members)], AlgorithmConfig.model_validate({"estimator": estimator})
        )
        again = [
            replace(record, advantage=mean_advantage(sample), token_arrays=numbers_of(record, sample))
            for record, sample in zip(records, trained, strict=True)
        ]
        masked = {"wrong_truncated": {}} if any(quiet) else {}
        options = {f"algorithm__estimator__{name}": value for name, value in estimator.items()}
        check = checked(again, selection__mask=masked, **options)
        assert (check.compared, check.wrong) == (3, 0)
        options["algorithm__estimator__discount"] = 0.75
        assert checked(again, selection__mask=masked, **options).wrong > 0


def numbers_of(record: TrajectoryRecord, sample: TrainingSample) -> dict[str, Any]:
    return token_arrays(sample, len(record.trajectory), AlgorithmConfig())


def test_custom_estimator_is_called_again_and_noted() -> None:
    name = "custom_components:scaled"
    records = [replace(record, advantage=2 * record.grade.reward) for record in batch(1.0, -1.0)]
    check = checked(records, algorithm__estimator__name=name, algorithm__estimator__scale=2.0)
    assert check.note == "custom_components:scaled has no second implementation: compared with a second call"
    assert (check.compared, check.wrong) == (2, 0)
    assert checked(records, algorithm__estimator__name=name, algorithm__estimator__scale=3.0).wrong == 2


def test_shuffled_rewards_are_shuffled_again() -> None:
    settings = {"ablation__shuffle": "rewards", "algorithm__estimator": "dr_grpo"}
    rewards = (1.0, -1.0, -1.0, 0.5)
    shuffled = config(**settings)
    records = [
        replace(each, trajectory=replace(each.trajectory, sample_index=index))
        for index, each in enumerate(batch(*rewards))
    ]
    found = [each.grade.reward for each in LearnedBatch(records, 0, shuffled).trained]
    assert sorted(found) == sorted(rewards)
    assert found != list(rewards)
    mean = sum(rewards) / len(rewards)
    recorded = [replace(each, advantage=reward - mean) for each, reward in zip(records, found, strict=True)]
    moved = sum(one != other for one, other in zip(found, rewards, strict=True))
    for changed, wrong in ((recorded, 0), (records, moved)):
        check = Check("advantages")
        check_advantages(check, LearnedBatch(changed, 0, shuffled))
        assert (check.compared, check.wrong) == (4, wrong)


# --- nuclei -------------------------------------------------------------------------------------------------------


class FixedLogits:
    """A policy with the same logits after every token."""

    def __init__(self, probabilities: Sequence[float]) -> None:
        self.logits = torch.tensor(probabilities).log()
        self.config = type("Config", (), {"vocab_size": len(probabilities)})

    def __call__(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
        return type("Output", (), {"logits": self.logits.expand(*input_ids.shape, -1)})


@pytest.mark.parametrize(
    ("token", "logprob", "top_p", "gap"),
    [
        (0, math.log(0.5), 1.0, 0.0),
        (0, math.log(0.5), 0.9, -math.log(0.95)),  # of the whole distribution
        (0, math.log(0.5 / 0.95), 0.94, 0.0),
        (2, math.log(0.15 / 0.95), 0.94, 0.0),
        (2, math.log(0.15 / 0.95) * 1.5, 0.94, 0.5 * -math.log(0.15 / 0.95)),
        (3, math.log(0.05), 0.94, 1e3 - math.log(0.95)),  # it is not in the nucleus
        (1, math.log(0.3 / 0.8), 0.8, 0.0),
        (1, math.log(0.3 / 0.95), 0.8, 0.0),  # rounding decides about the third token
        (2, math.log(0.15 / 0.95), 0.8, 0.0),
    ],
)
def test_logprobs_of_a_nucleus_are_its_shares_of_the_whole(
    token: int, logprob: float, top_p: float, gap: float
) -> None:
    played = trajectory("2", tokens=[token], prompt=Prompt(Problem("p", "?", "2"), (0, 1)))
    sample = Sample(
        TrajectoryRecord(0, played, grade()),
        np.array([logprob], np.float32),
        np.array([True]),
        temperature=1.0,
        dtype="float32",
        top_p=top_p,
    )
    ((_, gaps),) = token_gaps(FixedLogits([0.5, 0.3, 0.15, 0.05]), [sample])
    assert gaps == [pytest.approx(gap, abs=2e-4)]


# --- outcomes -----------------------------------------------------------------------------------------------------

TRACEBACK = 'Traceback (most recent call last):\n  File "<string>", line 1\nZeroDivisionError: division by zero\n'
GROUP = (
    "  + Exception Group Traceback (most recent call last):\n  | ExceptionGroup: a (1 sub-exception)\n"
    "  +-+---------------- 1 ----------------\n    | ValueError: b\n    +------------------------------------\n"
)


def outcome(status: str, text: str, error: str | None = None, **details: Any) -> Outcome:
    return Outcome(OutcomeStatus(status), text, error, {"stdout": "", "stderr": "", "traceback": None, **details})


@pytest.mark.parametrize(
    "right",
    [
        outcome("ok", "2\n", stdout="2\n"),
        outcome("error", "ZeroDivisionError: division by zero", "ZeroDivisionError", traceback=TRACEBACK, stdout="1"),
        outcome("error", "SystemExit: 3\nand more", "SystemExit"),
        outcome("error", "ExceptionGroup: a (1 sub-exception)", "ExceptionGroup", traceback=GROUP),
        outcome("error", "m.Odd: x", "Odd", traceback="Traceback ...\nm.Odd: x\na note\n"),
        outcome("memory", "MemoryError", "MemoryError", traceback="Traceback ...\nMemoryError\n"),
        outcome("timeout", "", stdout="printed before"),
        outcome("crash", ""),
        Outcome(OutcomeStatus.ERROR, "TypeError: the argument 'code' must be text", "TypeError"),
    ],
)
def test_an_outcome_that_follows_from_its_details_is_right(right: Outcome) -> None:
    assert python_mismatch(right) is None


@pytest.mark.parametrize(
    "wrong",
    [
        outcome("ok", "2\n", stdout="3\n"),
        outcome("ok", "2\n", "NameError", stdout="2\n"),
        Outcome(OutcomeStatus.OK, "2\n"),
        outcome("error", "ZeroDivisionError: by 0", "ZeroDivisionError", traceback=TRACEBACK),
        outcome("error", "ZeroDivisionError: division by zero", "NameError", traceback=TRACEBACK),
        outcome("error", "NameError: x", "SystemExit"),
        outcome("error", "ValueError: b", "ExceptionGroup", traceback=GROUP),
        outcome("error", "ExceptionGroup: a", "ExceptionGroup", traceback=GROUP),
        outcome("timeout", "2", stdout="2"),
        outcome("timeout", "", traceback=TRACEBACK),
    ],
)
def test_an_outcome_that_contradicts_its_details_is_wrong(wrong: Outcome) -> None:
    assert python_mismatch(wrong) is not None


def test_an_outcome_is_whole_if_no_text_in_it_was_cut() -> None:
    cut = "x" * MAX_OUTPUT_CHARACTERS
    assert is_complete(outcome("ok", cut[1:], stdout=cut[1:], pages=[{"title": "a"}, 1, None]))
    assert not is_complete(outcome("ok", "", stdout=cut))
    assert not is_complete(outcome("ok", cut))
    assert not is_complete(outcome("ok", "", pages=[{"title": cut}]))


# --- logprobs -----------------------------------------------------------------------------------------------------


def test_logprobs_of_another_policy_are_not_compared() -> None:
    assert inexact_logprobs(config()) is None
    assert "top_p is below 1" in (inexact_logprobs(config(rollout__top_p=0.9)) or "")
    stale = {"rollout__max_staleness": 1, "algorithm__importance_correction__name": "tis"}
    assert inexact_logprobs(config(**stale)) is None
    assert "stale KV cache" in (inexact_logprobs(config(**stale, engine__on_weight_update="keep")) or "")


def test_reference_model_that_is_gone_is_a_note(tmp_path: Path) -> None:
    """A run has done nothing wrong if its teacher was removed since."""
    check, path = Check("logprobs"), str(tmp_path / "gone")
    assert check_references(check, {path: []}, lambda: None) == []
    assert (check.compared, check.wrong) == (0, 0)
    assert check.note.startswith("reference model: ")
    assert path in check.note
