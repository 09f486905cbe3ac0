"""Selection within a step, by hand: groups that stay, trajectories without a loss, and counts."""

from hypothesis import given
from hypothesis import strategies as st

from builders import scored, scored_group
from torl.config import SelectionConfig
from torl.training.selection import (
    describe_missing_signal,
    prompts_for_next_round,
    select_groups,
)

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
    return kept, found.zero_variance, found.out_of_range


def test_groups_by_hand() -> None:
    assert selected() == ("abcde", 0, 0)
    assert selected(drop_zero_variance_groups=True) == ("bde", 2, 0)
    assert selected(accuracy_range=(0.0, 1.0)) == ("be", 0, 3)  # a group of one is all right or all wrong
    assert selected(accuracy_range=(-1.0, 0.8)) == ("bce", 0, 2)
    assert selected(accuracy_range=(0.5, 0.75)) == ("", 0, 5)  # both ends are outside
    assert selected(accuracy_range=(0.0, 1.0), drop_zero_variance_groups=True) == ("be", 2, 1)


def test_equal_rewards_have_zero_variance_despite_correctness() -> None:
    """A punishment of length may part rewards of equal correctness, and the window still sees the accuracy."""
    groups = [scored_group(scored(reward=1.0), scored(reward=0.5))]
    by_reward = select_groups(groups, SelectionConfig(drop_zero_variance_groups=True))
    by_accuracy = select_groups(groups, SelectionConfig(accuracy_range=(0.0, 1.0)))
    assert (by_reward.zero_variance, by_accuracy.out_of_range) == (0, 1)


def test_pay_for_turns_parts_a_group_too() -> None:
    assert not scored_group(scored(turn_rewards=[0.5]), scored(turn_rewards=[0.25])).has_zero_variance
    assert scored_group(scored(turn_rewards=[0.5]), scored(turn_rewards=[0.5])).has_zero_variance


def test_step_without_a_signal_is_described_by_its_rewards() -> None:
    equal = scored_group(scored(reward=-1.0), scored(reward=-1.0))
    assert describe_missing_signal([equal, equal]) == "no group had a signal: all rewards were -1"
    others = [scored_group(scored(reward=each), scored(reward=each)) for each in (0.5, -1.0, 2, 3, 4, 5)]
    expected = "no group had a signal: the rewards of each group were equal: -1, 0.5, 2, 3, 4, ..."
    assert describe_missing_signal(others) == expected
    for one in (scored_group(scored(reward=-1.0), scored(reward=1.0)), scored_group(scored(reward=-1.0))):
        assert describe_missing_signal([equal, one]) is None
    assert describe_missing_signal([]) is None


def test_next_round_is_sized_by_share_kept_so_far() -> None:
    assert prompts_for_next_round(wanted=16, kept=8, played=16) == 16
    assert prompts_for_next_round(wanted=16, kept=15, played=20) == 2
    assert prompts_for_next_round(wanted=16, kept=0, played=16) == 64


@given(st.integers(1, 200), st.integers(0, 199), st.integers(1, 400))
def test_the_next_round_is_never_empty_and_never_more_than_four_for_each(wanted: int, kept: int, played: int) -> None:
    if kept < wanted and kept <= played:
        assert wanted - kept <= prompts_for_next_round(wanted, kept, played) <= 4 * (wanted - kept)


def test_accuracy_range_uses_rewards_not_correctness() -> None:
    """ZeroTIR's `answer_rewards` are 0 without a valid format, for any answer."""
    unformed = scored(reward=0.0, valid_format=False)
    half_formed = scored_group(*[scored()] * 8, *[unformed] * 8)
    none_formed = scored_group(*[scored(correct=False, reward=0.0)] * 8, *[unformed] * 8)
    found = select_groups([half_formed, none_formed], SelectionConfig(accuracy_range=(0.05, 0.8)))
    assert (found.kept, found.out_of_range) == ((half_formed,), 1)


def test_a_group_of_undecided_grades_is_left_out() -> None:
    failed = scored(correct=False, failure="timeout")
    groups = [scored_group(*[scored()] * (5 - count), *[failed] * count) for count in range(5)]
    found = select_groups(groups, SelectionConfig(drop_undecided_above=0.4))
    assert (found.kept, found.undecided) == (tuple(groups[:3]), 2)
    assert select_groups(groups, SelectionConfig()).undecided == 0
