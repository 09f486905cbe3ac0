"""Selection within a step, by hand: which groups stay, which trajectories carry no loss, and what is counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import call, scored, scored_group, trajectory, turn
from torl.config import SelectionConfig
from torl.formats import Format, ToRLFormat, ZeroTIRFormat
from torl.training.samples import training_samples
from torl.training.selection import (
    has_void_turn,
    invents_output,
    prompts_for_next_round,
    repetition,
    select_groups,
    silence,
    silenced,
)
from torl.types import FinishReason, TurnEnding

CODE = "```python\nprint(1)\n```\n"
CALL = f"{CODE}```output"


# --- groups -------------------------------------------------------------------------------------------------------

GROUPS = {
    "a": scored_group(True, True),
    "b": scored_group(True, False),
    "c": scored_group(False, False),
    "d": scored_group(True),
    "e": scored_group(True, True, True, False),
}


def selected(**options: object) -> tuple[str, int, int]:
    found = select_groups(list(GROUPS.values()), SelectionConfig(**options))  # type: ignore[arg-type]
    kept = "".join(next(name for name, group in GROUPS.items() if group is kept) for kept in found.kept)
    return kept, found.uniform, found.outside_window


def test_groups_by_hand() -> None:
    assert selected() == ("abcde", 0, 0)
    assert selected(drop_uniform_groups=True) == ("bde", 2, 0)
    assert selected(accuracy_window=(0.0, 1.0)) == ("be", 0, 3)  # a group of one is all right or all wrong
    assert selected(accuracy_window=(-1.0, 0.8)) == ("bce", 0, 2)
    assert selected(accuracy_window=(0.5, 0.75)) == ("", 0, 5)  # both ends are outside
    assert selected(accuracy_window=(0.0, 1.0), drop_uniform_groups=True) == ("be", 2, 1)


def test_equal_rewards_are_uniform_whatever_is_correct() -> None:
    """A punishment of length may part rewards of equal correctness, and the window still sees the accuracy."""
    groups = [scored_group(scored(reward=1.0), scored(reward=0.5))]
    by_reward = select_groups(groups, SelectionConfig(drop_uniform_groups=True))
    by_accuracy = select_groups(groups, SelectionConfig(accuracy_window=(0.0, 1.0)))
    assert (by_reward.uniform, by_accuracy.outside_window) == (0, 1)


def test_pay_for_turns_parts_a_group_too() -> None:
    assert not scored_group(scored(turn_rewards=[0.5]), scored(turn_rewards=[0.25])).is_uniform
    assert scored_group(scored(turn_rewards=[0.5]), scored(turn_rewards=[0.5])).is_uniform


def test_the_next_round_asks_for_what_is_missing_by_the_share_kept_so_far() -> None:
    assert prompts_for_next_round(wanted=16, kept=8, played=16) == 16
    assert prompts_for_next_round(wanted=16, kept=15, played=20) == 2
    assert prompts_for_next_round(wanted=16, kept=0, played=16) == 64


@given(st.integers(1, 200), st.integers(0, 199), st.integers(1, 400))
def test_the_next_round_is_never_empty_and_never_more_than_four_for_each(wanted: int, kept: int, played: int) -> None:
    if kept < wanted and kept <= played:
        assert wanted - kept <= prompts_for_next_round(wanted, kept, played) <= 4 * (wanted - kept)


# --- trajectories -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turns", "calls", "void"),
    [
        ([CALL, "So \\boxed{1}"], 1, False),
        ([CALL, "So it is one."], 1, True),
        (["Let me see.\n```output", "So \\boxed{1}"], 1, True),  # a call without code
        (["\\boxed{1} it is ```output", "and \\boxed{1}"], 1, False),
        (["I do not know."], 0, True),
        (["\\boxed{1}"], 0, False),
        ([CALL], 1, False),  # the observation filled the response
        ([CALL, f"\n{CALL}", "\\boxed{2}"], 2, False),
        ([CALL, "\nhm ```output", "\\boxed{2}"], 2, True),
        (["```python\nprint(1"], 0, True),  # cut off inside the block
    ],
)
def test_void_turns(turns: list[str], calls: int, void: bool) -> None:
    assert has_void_turn(trajectory(*turns, calls=[call()] * calls)) == void


def test_the_blocks_of_a_turn_are_those_that_were_found_when_it_was_sampled() -> None:
    assert has_void_turn(trajectory(turn(CODE, blocks=())))


@pytest.mark.parametrize(
    ("turns", "calls", "torl", "zerotir"),
    [
        ([CALL, "\\boxed{1}"], 1, False, True),
        ([CALL, f"\n{CALL}\n5\n```\n\\boxed{{5}}"], 1, True, True),
        ([f"{CALL}\n1\n```\n"], 0, True, True),
        ([CODE.rstrip(), "\\boxed{1}"], 1, False, False),
        ([CODE.rstrip(), "```output\n5\n```\n\\boxed{5}"], 1, True, True),
    ],
)
def test_invented_output_is_what_the_format_says(turns: list[str], calls: int, torl: bool, zerotir: bool) -> None:
    """In format "torl" the model opens the output blocks of its calls as well; in "zerotir" it should open none."""
    played = trajectory(*turns, calls=[call()] * calls)
    assert invents_output(played, ToRLFormat()) == torl
    assert invents_output(played, ZeroTIRFormat()) == zerotir


def test_one_turn_that_invents_is_enough() -> None:
    asked, answered = turn(CALL, ended_by=TurnEnding.CALL), turn("\\boxed{1}")
    inventing = turn(f"{CALL}\n1\n```\n{CALL}", ended_by=TurnEnding.CALL)
    assert not invents_output(trajectory(asked, asked, answered), ToRLFormat())
    assert invents_output(trajectory(asked, inventing, answered), ToRLFormat())


def test_repetition() -> None:
    assert repetition(trajectory(tokens=[1, 2, 3, 4]), 2) == 0
    assert repetition(trajectory(tokens=[1, 2, 1, 2, 1]), 2) == 0.5  # 12 21 12 21
    assert repetition(trajectory(tokens=[7] * 11), 2) == 0.9
    assert repetition(trajectory(tokens=[1]), 2) == 0


def test_observed_tokens_are_no_repetition() -> None:
    played = trajectory("a", "b", turn_tokens=2, observation_tokens=2)
    played.token_ids_T[:] = [1, 2, 8, 8, 3, 4]
    assert repetition(played, 1) == 0


EVERYTHING = SelectionConfig(
    mask_void_turns=True,
    mask_wrong_truncated=True,
    mask_invented_output=True,
    mask_repetition_above=0.5,
    repetition_ngram=3,
)
TORL: Format = ToRLFormat()
TRAJECTORIES = [
    trajectory("\\boxed{1}"),
    trajectory("no"),
    trajectory("\\boxed{1}", finish=FinishReason.LENGTH),
    trajectory(f"{CALL}\n1\n```\n\\boxed{{1}}"),
    trajectory("\\boxed{1}", tokens=[3] * 50),
]


def test_each_reason_is_counted() -> None:
    graded = zip(TRAJECTORIES, [True, False, False, True, True], strict=True)
    members = [scored(played, correct) for played, correct in graded]
    assert silenced(members, TORL, EVERYTHING) == {
        "void_turn": {1},
        "wrong_truncated": {2},
        "invented_output": {3},
        "repetitive": {4},
    }
    assert silenced(members, TORL, SelectionConfig()) == {}


def test_a_truncated_answer_is_silenced_where_it_is_wrong_an_invented_output_where_it_is_right() -> None:
    right = silenced([scored(played) for played in TRAJECTORIES], TORL, EVERYTHING)
    wrong = silenced([scored(played, correct=False) for played in TRAJECTORIES], TORL, EVERYTHING)
    assert (right["wrong_truncated"], right["invented_output"]) == (set(), {3})
    assert (wrong["wrong_truncated"], wrong["invented_output"]) == ({2}, set())


def test_a_trajectory_may_be_silenced_for_several_reasons() -> None:
    members = [scored(), scored(trajectory("no", tokens=[3] * 50, finish=FinishReason.LENGTH), correct=False)]
    found = silenced(members, TORL, EVERYTHING)
    assert found == {"void_turn": {0, 1}, "wrong_truncated": {1}, "invented_output": set(), "repetitive": {1}}


def test_silenced_samples_have_no_token_in_the_loss_and_the_others_all_of_theirs() -> None:
    samples = training_samples([scored(trajectory("a", "b")), scored(trajectory("c")), scored(trajectory("d"))])
    found = silence(samples, {"void_turn": {1}, "repetitive": {1, 2}, "wrong_truncated": set()})
    assert [each.loss_mask.tolist() for each in found] == [
        [False] * 3 + [True, False, False, True],
        [False] * 4,
        [False] * 4,
    ]
    assert all(np.array_equal(one.token_ids, other.token_ids) for one, other in zip(samples, found, strict=True))
    assert silence(samples, {}) == samples
