"""Selection within a step, by hand: which groups stay, which trajectories carry no loss, and what is counted."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torl.algorithms.rewards import normalize_rewards, overlong_punishment
from torl.algorithms.samples import mean_advantage, training_samples, with_advantages
from torl.algorithms.selection import (
    has_void_turn,
    invents_output,
    prompts_for_next_round,
    repetition,
    select_groups,
    silenced,
    without_loss,
)
from torl.config import AlgorithmConfig, SelectionConfig
from torl.metrics.blocks import split_turns
from torl.types import FinishReason, Grade, Outcome, OutcomeStatus, Problem, Prompt, ToolCall, Trajectory, Turn

CODE = "```python\nprint(1)\n```\n"
OK = Outcome(OutcomeStatus.OK, "1\n", "", None, None, None, 0.0, 0.0, 0)


def trajectory(
    turns: list[str],
    *,
    calls: int | None = None,
    finish: FinishReason = FinishReason.STOP,
    tokens: list[int] | None = None,
    observed: int = 2,
) -> Trajectory:
    """A response of these turns, each of one token if `tokens` are not given; all turns but the last call the tool."""
    calls = len(turns) - 1 if calls is None else calls
    if tokens is None:
        mask = [sampled for index in range(len(turns)) for sampled in [True] + [False] * observed * (index < calls)]
    else:
        mask = [True] * len(tokens)
    ids = np.arange(len(mask), dtype=np.int32) if tokens is None else np.array(tokens, dtype=np.int32)
    call = ToolCall("print(1)", OK, "\n1\n```\n", 0, 0, 0.0)
    return Trajectory(
        prompt=Prompt(Problem("p", "", ""), (1, 2, 3)),
        group="0/p",
        sample=0,
        token_ids_T=ids,
        loss_mask_T=np.array(mask),
        rollout_logprobs_T=np.where(mask, -1, 0).astype(np.float32),
        policy_versions_T=np.where(mask, 0, -1).astype(np.int32),
        turns=tuple(Turn(0, 0, 0) for _ in turns),
        tool_calls=(call,) * calls,
        finish_reason=finish,
        text="",
        sampled_text="\n".join(turns),
        seconds=0.0,
    )


def grade(correct: bool, reward: float | None = None) -> Grade:
    return Grade(float(correct) if reward is None else reward, correct, None)


# --- groups -------------------------------------------------------------------------------------------------------

GROUPS = ["a", "a", "b", "b", "c", "c", "d"]
CORRECT = [True, True, True, False, False, False, True]


def selected(**options: object) -> tuple[list[str], int, int]:
    grades = [grade(correct) for correct in CORRECT]
    found = select_groups([each.reward for each in grades], grades, GROUPS, SelectionConfig(**options))  # type: ignore[arg-type]
    kept = [group for group, stays in zip(GROUPS, found.kept_N, strict=True) if stays]
    assert found.groups(GROUPS) == list(dict.fromkeys(kept))
    return found.groups(GROUPS), found.uniform, found.outside_window


def test_groups_by_hand() -> None:
    assert selected() == (["a", "b", "c", "d"], 0, 0)
    assert selected(drop_uniform_groups=True) == (["b", "d"], 2, 0)
    assert selected(accuracy_window=(0.0, 1.0)) == (["b"], 0, 3)  # a group of one is all right or all wrong
    assert selected(accuracy_window=(-1.0, 0.8)) == (["b", "c"], 0, 2)
    assert selected(accuracy_window=(0.0, 1.0), drop_uniform_groups=True) == (["b"], 2, 1)


def test_equal_rewards_are_uniform_whatever_is_correct() -> None:
    """A punishment of length may part rewards of equal correctness, and the window still sees the accuracy."""
    grades = [grade(True, 1.0), grade(True, 0.5)]
    by_reward = select_groups([1.0, 0.5], grades, ["a", "a"], SelectionConfig(drop_uniform_groups=True))
    by_accuracy = select_groups([1.0, 0.5], grades, ["a", "a"], SelectionConfig(accuracy_window=(0.0, 1.0)))
    assert (by_reward.uniform, by_accuracy.outside_window) == (0, 1)


def test_the_next_round_asks_for_what_is_missing_by_the_share_kept_so_far() -> None:
    assert prompts_for_next_round(wanted=16, kept=8, played=16) == 16
    assert prompts_for_next_round(wanted=16, kept=15, played=20) == 2
    assert prompts_for_next_round(wanted=16, kept=0, played=16) == 64


@given(st.integers(1, 200), st.integers(0, 199), st.integers(1, 400))
def test_the_next_round_is_never_empty_and_never_more_than_four_for_each(wanted, kept, played) -> None:
    if kept < wanted and kept <= played:
        assert wanted - kept <= prompts_for_next_round(wanted, kept, played) <= 4 * (wanted - kept)


# --- trajectories -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turns", "calls", "void"),
    [
        ([f"{CODE}```output", "So \\boxed{1}"], 1, False),
        ([f"{CODE}```output", "So it is one."], 1, True),
        (["Let me see.\n```output", "So \\boxed{1}"], 1, True),  # a call without code
        (["\\boxed{1} it is ```output", "and \\boxed{1}"], 1, False),
        (["I do not know."], 0, True),
        (["\\boxed{1}"], 0, False),
        ([f"{CODE}```output"], 1, False),  # the observation filled the response
        ([f"{CODE}```output", f"\n{CODE}```output", "\\boxed{2}"], 2, False),
        ([f"{CODE}```output", "\nhm ```output", "\\boxed{2}"], 2, True),
        (["```python\nprint(1"], 0, True),  # cut off inside the block
    ],
)
def test_void_turns(turns: list[str], calls: int, void: bool) -> None:
    assert has_void_turn(trajectory(turns, calls=calls)) == void


def test_turns_come_back_as_they_were() -> None:
    turns = [f"{CODE}```output", f"\n{CODE}```output", "\n\\boxed{2}"]
    assert split_turns("".join(turns), 2) == turns


def test_invented_output() -> None:
    assert not invents_output(trajectory([f"{CODE}```output", "\\boxed{1}"]))
    assert invents_output(trajectory([f"{CODE}```output", f"\n{CODE}```output\n5\n```\n\\boxed{{5}}"]))
    assert invents_output(trajectory([f"{CODE}```output\n1\n```\n"], calls=0))
    # In ZeroTIR's format the model opens no output block, however often it calls.
    called = replace(trajectory([CODE, "\n```output\n2\n```\n\\boxed{2}"], calls=1), format="zerotir")
    assert invents_output(called)
    assert not invents_output(replace(called, sampled_text=f"{CODE}\n\\boxed{{1}}"))


def test_repetition() -> None:
    assert repetition(trajectory([""], tokens=[1, 2, 3, 4]), 2) == 0
    assert repetition(trajectory([""], tokens=[1, 2, 1, 2, 1]), 2) == 0.5  # 12 21 12 21
    assert repetition(trajectory([""], tokens=[7] * 11), 2) == 0.9
    assert repetition(trajectory([""], tokens=[1]), 2) == 0


def test_each_reason_is_counted() -> None:
    trajectories = [
        trajectory(["\\boxed{1}"]),
        trajectory(["no"]),
        trajectory(["\\boxed{1}"], finish=FinishReason.LENGTH),
        trajectory([f"{CODE}```output\n1\n```\n\\boxed{{1}}"], calls=0),
        trajectory(["\\boxed{1}"], tokens=[3] * 50),
    ]
    grades = [grade(True), grade(False), grade(False), grade(True), grade(True)]
    config = SelectionConfig(
        mask_void_turns=True,
        mask_wrong_truncated=True,
        mask_invented_output=True,
        mask_repetition_above=0.5,
        repetition_ngram=3,
    )
    assert silenced(trajectories, grades, config) == {
        "void_turn": {1},
        "wrong_truncated": {2},
        "invented_output": {3},
        "repetitive": {4},
    }
    assert silenced(trajectories, [grade(True)] * 5, config)["wrong_truncated"] == set()
    assert silenced(trajectories, [grade(False)] * 5, config)["invented_output"] == set()
    assert silenced(trajectories, grades, SelectionConfig()) == {}


def test_a_silenced_trajectory_stays_in_the_statistics_of_its_group() -> None:
    samples = training_samples([trajectory(["a", "b"]), trajectory(["c"]), trajectory(["d"])])
    assert samples[0].token_ids.tolist() == [1, 2, 3, 0, 1, 2, 3]
    assert samples[0].loss_mask.tolist() == [False] * 3 + [True, False, False, True]
    samples[1] = without_loss(samples[1])
    found = with_advantages(samples, [1.0, -2.0, -2.0], ["a"] * 3, AlgorithmConfig(estimator="dr_grpo"))
    assert [mean_advantage(sample) for sample in found] == [2.0, 0.0, -1.0]
    assert found[0].advantages.tolist() == [0, 0, 0, 2, 0, 0, 2]
    assert not found[1].advantages.any()


@pytest.mark.parametrize("estimator", ["grpo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "ppo"])
def test_a_step_without_trajectories(estimator: str) -> None:
    assert with_advantages([], [], [], AlgorithmConfig(estimator=estimator)) == []  # type: ignore[arg-type]


# --- rewards ------------------------------------------------------------------------------------------------------


def test_overlong_punishment_by_hand() -> None:
    punishments = overlong_punishment([10, 80, 85, 90, 100], limit=100, buffer=20)
    assert punishments.tolist() == pytest.approx([0, 0, -0.25, -0.5, -1.0])
    assert not overlong_punishment([100], limit=100, buffer=0).any()


def test_normalized_rewards() -> None:
    assert normalize_rewards([0.0, 2.0]).tolist() == pytest.approx([-np.sqrt(0.5), np.sqrt(0.5)], rel=1e-5)
    assert normalize_rewards([3.0]).tolist() == [0]
    assert normalize_rewards([3.0, 3.0, 3.0]).tolist() == [0, 0, 0]


def test_a_penalty_on_the_divergence_enters_each_reward() -> None:
    """Undiscounted, the first of two tokens pays for both, and the reward reaches it through the observation."""
    sample = training_samples([trajectory(["a", "b"]), trajectory(["c"])])
    old, ref = np.float32(-1), np.float32(-1.5)
    prepared = [
        type(each)(
            each.token_ids,
            each.loss_mask,
            each.rollout_logprobs,
            old_logprobs=np.where(each.loss_mask, old, 0),
            ref_logprobs=np.where(each.loss_mask, ref, 0),
        )
        for each in sample
    ]
    algorithm = AlgorithmConfig(estimator="dr_grpo", kl_coefficient=0.2, kl_estimator="k1", kl_in="reward")
    found = with_advantages(prepared, [1.0, 1.0], ["a", "a"], algorithm)
    # Rewards 1 - 2 * 0.1 and 1 - 0.1.
    assert [mean_advantage(each) for each in found] == pytest.approx([-0.05, 0.05])
    with pytest.raises(ValueError, match="prepare them first"):
        with_advantages(sample, [1.0, 1.0], ["a", "a"], algorithm)
