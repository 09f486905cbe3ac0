"""Selection within a step, by hand: groups that stay, trajectories without a loss, and counts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from builders import scored, scored_group, trajectory
from torl.base.types import FinishReason, ScoredGroup
from torl.run.config import SelectionConfig
from torl.run.records import metric_names as names
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


def dropping(**filters: object) -> SelectionConfig:
    return SelectionConfig.model_validate({"groups": filters})


def selected(**filters: object) -> tuple[str, int, int]:
    found = select_groups(list(GROUPS.values()), dropping(**filters))
    kept = "".join(next(name for name, group in GROUPS.items() if group is kept) for kept in found.kept)
    counts = [found.counts.get(names.dropped_groups(name), 0) for name in ("zero_variance", "accuracy_outside")]
    return kept, counts[0], counts[1]


def outside(low: float, high: float) -> dict[str, list[float]]:
    return {"range": [low, high]}


def test_groups_by_hand() -> None:
    assert selected() == ("abcde", 0, 0)
    assert selected(zero_variance={}) == ("bde", 2, 0)
    assert selected(accuracy_outside=outside(0.0, 1.0)) == ("be", 0, 3)  # a group of one is all right or all wrong
    assert selected(accuracy_outside=outside(-1.0, 0.8)) == ("bce", 0, 2)
    assert selected(accuracy_outside=outside(0.5, 0.75)) == ("", 0, 5)  # both ends are outside
    assert selected(zero_variance={}, accuracy_outside=outside(0.0, 1.0)) == ("be", 2, 1)
    assert selected(accuracy_outside=outside(0.0, 1.0), zero_variance={}) == ("be", 0, 3)  # in the order of the table


def test_equal_rewards_have_zero_variance_despite_correctness() -> None:
    """A punishment of length may part rewards of equal correctness, and the window still sees the accuracy."""
    groups = [scored_group(scored(reward=1.0), scored(reward=0.5))]
    by_reward = select_groups(groups, dropping(zero_variance={}))
    by_accuracy = select_groups(groups, dropping(accuracy_outside=outside(0.0, 1.0)))
    assert by_reward.counts["selection/dropped_groups/zero_variance"] == 0
    assert by_accuracy.counts["selection/dropped_groups/accuracy_outside"] == 1


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


def test_accuracy_filter_uses_rewards_not_correctness() -> None:
    """ZeroTIR's `answer_rewards` are 0 without a valid format, for any answer."""
    unformed = scored(reward=0.0, valid_format=False)
    half_formed = scored_group(*[scored()] * 8, *[unformed] * 8)
    none_formed = scored_group(*[scored(correct=False, reward=0.0)] * 8, *[unformed] * 8)
    found = select_groups([half_formed, none_formed], dropping(accuracy_outside=outside(0.05, 0.8)))
    assert (found.kept, found.counts["selection/dropped_groups/accuracy_outside"]) == ((half_formed,), 1)


def test_a_group_of_undecided_grades_is_left_out() -> None:
    failed = scored(correct=False, failure="timeout")
    groups = [scored_group(*[scored()] * (5 - count), *[failed] * count) for count in range(5)]
    found = select_groups(groups, dropping(undecided={"above": 0.4}))
    assert (found.kept, found.counts["selection/dropped_groups/undecided"]) == (tuple(groups[:3]), 2)
    assert select_groups(groups, SelectionConfig()).kept == tuple(groups)


# --- custom filters -------------------------------------------------------------------------------------------------


def filtered(groups: list[ScoredGroup], /, **options: object) -> tuple[list[list[float]], dict[str, int]]:
    """The rewards of the kept members, and the counts that are not 0."""
    config = SelectionConfig.model_validate(options)
    found = select_groups(groups, config, min_group_size=2)
    kept = [[member.reward for member in group.members] for group in found.kept]
    return kept, {name: count for name, count in found.counts.items() if count}


def one_group(*lengths: int) -> ScoredGroup:
    """Responses of these lengths, which are their rewards; the last one is truncated."""
    played = [trajectory("a", turn_tokens=length, sample=index) for index, length in enumerate(lengths)]
    played[-1] = replace(played[-1], finish_reason=FinishReason.LENGTH)
    return scored_group(*(scored(each, reward=float(len(each))) for each in played))


def test_members_are_kept_in_their_order_and_the_others_counted() -> None:
    some = {"name": "custom_components:some", "count": 2}
    kept, counts = filtered([one_group(3, 9, 4, 5), one_group(2)], members={"mine": some})
    assert kept in ([[3, 9]], [[9, 4]], [[9, 5]])
    assert counts == {"selection/dropped_members/mine": 2, "selection/small_groups": 1}  # one member
    assert filtered([one_group(3, 9, 4, 5)], members={"mine": some})[0] == kept  # its choice is repeatable


def test_group_filters_see_the_remaining_members() -> None:
    groups = [one_group(1, 1, 7), one_group(1, 2, 7)]
    kept, counts = filtered(groups, members={"complete": {}}, groups={"zero_variance": {}})
    assert kept == [[1, 2]]
    assert counts == {"selection/dropped_members/complete": 2, "selection/dropped_groups/zero_variance": 1}


def test_group_without_members_reaches_no_filter() -> None:
    twice = {"complete": {}, "some": {"name": "custom_components:some"}}
    assert filtered([one_group(3)], members=twice, groups={"zero_variance": {}})[1] == {
        "selection/dropped_members/complete": 1,
        "selection/small_groups": 1,
    }


def test_group_filters_are_counted_under_their_names() -> None:
    groups = [scored_group(True, True), scored_group(True, False), scored_group(False, False)]
    named = {"too_easy": {"name": "accuracy_outside", "range": [-1.0, 0.9]}, "zero_variance": {}}
    kept, counts = filtered(groups, groups=named)
    assert kept == [[1, 0]]
    assert counts == {"selection/dropped_groups/too_easy": 1, "selection/dropped_groups/zero_variance": 1}


def published_remove_clip(tokens: list[int], limit: int, min_n: int) -> bool:
    """Whether SimpleTIR's `remove_clip` drops a group, by the numbers of tokens of its responses (commit 74f3802)."""
    too_long = sum(each >= limit for each in tokens)
    return too_long == len(tokens) or len(tokens) - too_long < min_n


@pytest.mark.parametrize(("options", "min_n"), [({}, 4), ({"at_least": 2}, 2)])
@given(tokens=st.lists(st.integers(1, 6), min_size=1, max_size=9), void=st.integers(0, 9))
def test_groups_with_few_complete_responses_are_dropped(
    options: dict[str, int], min_n: int, tokens: list[int], void: int
) -> None:
    """At a limit of 6 tokens. Void turns change nothing: their trajectories are masked, and stay in the group."""
    played = [
        trajectory("a" if index < void else CALL, turn_tokens=length, sample=index)
        for index, length in enumerate(tokens)
    ]
    group = scored_group(
        *(
            scored(replace(each, finish_reason=FinishReason.LENGTH if length == 6 else FinishReason.STOP))
            for each, length in zip(played, tokens, strict=True)
        )
    )
    found = select_groups([group], SelectionConfig.model_validate({"groups": {"few_complete": options}}))
    dropped = published_remove_clip(tokens, 6, min_n)
    assert found.kept == (() if dropped else (group,))
    assert found.counts["selection/dropped_groups/few_complete"] == dropped


def test_dynamic_sampling_accepts_a_group_filter() -> None:
    SelectionConfig.model_validate({"max_rounds": 10, "groups": {"zero_variance": {}}})
    with pytest.raises(ValidationError, match="max_rounds = 10 requires a filter in groups, such as zero_variance"):
        SelectionConfig.model_validate({"max_rounds": 10})
