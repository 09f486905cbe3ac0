"""Training dynamics against numbers worked out by hand."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from torl._core import Scanner, StopCondition, Vocabulary
from torl.base.types import (
    FinishReason,
    Grade,
    Outcome,
    OutcomeStatus,
    Problem,
    Prompt,
    ScoredGroup,
    ScoredTrajectory,
    StopReason,
    ToolCall,
    ToolRequest,
    Trajectory,
    Turn,
)
from torl.components.text.vocabulary import read_turn
from torl.run.records import metric_names as names
from torl.run.records.dynamics import staleness, training_dynamics

OK = Outcome(OutcomeStatus.OK, "2\n")
ZERO = Outcome(OutcomeStatus.ERROR, "ZeroDivisionError: x", "ZeroDivisionError")
OWN = Outcome(OutcomeStatus.ERROR, "MyError17: x", "MyError17")
TIMEOUT = Outcome(OutcomeStatus.TIMEOUT, "")
NO_CODE = Outcome(OutcomeStatus.ERROR, "NoCode: there was none", "NoCode")
RIGHT, WRONG = Grade(1.0, True, "2"), Grade(-1.0, False, None)


@cache
def single_bytes() -> Vocabulary:
    return Vocabulary([bytes([byte]) for byte in range(256)])


def turn(text: str, index: int = 0, cached_tokens: int = 0, last: bool = True) -> Turn:
    """A turn of this text, with the blocks that the scanner of episodes finds in it."""
    token_ids = list(text.encode())
    scan = Scanner(single_bytes(), StopCondition.never()).feed(token_ids)
    stop_reason = StopReason.STOP if last else StopReason.CALL
    found = read_turn(single_bytes(), token_ids, scan, index, stop_reason, cached_tokens)
    return Turn(index, index + 1, found.text, found.stop_reason, found.blocks, cached_tokens)


def call(outcome: Outcome, code: str | None = "print(2)\n", wait_seconds: float = 0.5) -> ToolCall:
    request = None if code is None else ToolRequest("python", {"code": code})
    return ToolCall(request, outcome, "\n2\n```\n", 0, 0, wait_seconds)


def trajectory(
    texts: str | Sequence[str],
    *calls: ToolCall,
    sampled: int = 4,
    observed: int = 0,
    truncated: bool = False,
    seconds: float = 2.0,
    versions: tuple[int, ...] | None = None,
    cached_at_first: int = 0,
) -> Trajectory:
    """One whose turns have these texts; turn i is one token at i, with i tokens of its prefix cached."""
    texts = [texts] if isinstance(texts, str) else texts
    mask = np.array([True] * sampled + [False] * observed)
    return Trajectory(
        prompt=Prompt(Problem("a", "1 + 1?", "2"), (1,)),
        group_id="0/a",
        sample_index=0,
        token_ids_T=np.arange(len(mask), dtype=np.int32),
        loss_mask_T=mask,
        rollout_logprobs_T=np.zeros(len(mask), np.float32),
        policy_versions_T=np.zeros(len(mask), np.int32) if versions is None else np.array(versions, np.int32),
        turns=tuple(
            turn(text, index, index if index else cached_at_first, last=index == len(texts) - 1)
            for index, text in enumerate(texts)
        ),
        tool_calls=tuple(replace(call, start=index + 1, stop=index + 1) for index, call in enumerate(calls)),
        finish_reason=FinishReason.LENGTH if truncated else FinishReason.STOP,
        text="".join(texts),
        seconds=seconds,
    )


def group(*members: tuple[Trajectory, Grade]) -> ScoredGroup:
    scored = tuple(ScoredTrajectory(trajectory, grade, grade.reward) for trajectory, grade in members)
    return ScoredGroup(scored[0].trajectory.prompt, scored)


def measured(trajectory: Trajectory, grade: Grade = WRONG) -> dict[str, float]:
    return training_dynamics([group((trajectory, grade))])


BLOCK = "```python\nprint(2)\n```output"


@pytest.mark.parametrize(
    ("calls", "grade", "share"),
    [
        ((ZERO, OK), RIGHT, 1),
        ((OK, ZERO, TIMEOUT, OK), RIGHT, 1),
        ((OK, ZERO), RIGHT, 0),
        ((ZERO, OK), WRONG, 0),
        ((ZERO, TIMEOUT), RIGHT, 0),
        ((OK, OK), RIGHT, 0),
        ((), RIGHT, 0),
    ],
)
def test_an_error_is_recovered_by_a_later_run_in_a_correct_response(
    calls: tuple[Outcome, ...], grade: Grade, share: int
) -> None:
    played = trajectory([BLOCK] * len(calls) + ["\nso \\boxed{2}"], *map(call, calls))
    assert measured(played, grade)[names.RECOVERED_ERRORS] == share


def test_a_step_worked_out_by_hand() -> None:
    groups = [
        group(
            # one block that ran ok, before the answer
            (trajectory([BLOCK, "\nso \\boxed{2}"], call(OK), sampled=20, observed=6), RIGHT),
            # no code
            (trajectory("\\boxed{2}", sampled=4, seconds=1.0), RIGHT),
        ),
        group(
            # two blocks; the first ran and failed, the second came after the answer and never ran
            (
                trajectory([BLOCK, "\n\\boxed{3}\n```python\n3\n```\n"], call(ZERO), sampled=30, observed=6),
                Grade(-1.0, False, "3"),
            ),
            # two runs, one ok, one timed out; no answer, cut off
            (
                trajectory(
                    [BLOCK, "\n" + BLOCK, "\n"], call(OK), call(TIMEOUT), sampled=40, observed=14, truncated=True
                ),
                Grade(-1.0, False, None),
            ),
        ),
    ]
    metrics = training_dynamics(groups)
    assert metrics == {
        names.REWARD_MEAN: 0.0,
        names.RECOVERED_ERRORS: 0.0,
        names.CACHED_SHARE: 5 / 9,
        names.ACCURACY: 0.5,
        names.SOLVED: 0.5,  # 0/a, not 0/b
        names.VALID_FORMAT: 1.0,
        names.ANSWERED: 0.75,
        names.GRADER_TIMEOUTS: 0,
        names.GRADER_ERRORS: 0,
        names.UNIFORM_GROUPS: 1.0,
        names.CODE_RATIO: 0.75,
        names.CODE_BLOCKS_PER_RESPONSE: 5 / 4,
        names.EXECUTED_RATIO: 4 / 5,
        names.BEFORE_ANSWER_RATIO: 2 / 5,
        names.CODE_LINES: 1.0,
        names.CODE_NAMES: 4 / 5,
        names.CROSS_CHECKED: 0.0,
        names.RAN_BEFORE_ANSWER: 1.0,
        names.RAN_AFTER_ANSWER: 0.0,
        names.REASONED_BEFORE_CODE: 0.0,
        names.CHANGED_CODE: 0.0,  # of one response with two runs, of the same code
        names.INVENTED_RESULTS: 0.0,
        names.CODE_LINES_EASY: 1.0,
        names.CODE_LINES_HARD: 1.0,
        names.CALLS_PER_TRAJECTORY: 1.0,
        names.CALLS_WITHOUT_CODE: 0.0,
        names.PASS_RATIO: 2 / 4,
        names.PASS_RATIO_CORRECT: 1.0,
        names.PASS_RATIO_INCORRECT: 1 / 3,
        names.WAIT_SHARE: (4 * 0.5) / 7.0,
        names.status_fraction("ok"): 0.5,
        names.status_fraction("error"): 0.25,
        names.status_fraction("timeout"): 0.25,
        names.error_fraction("ZeroDivisionError"): 0.25,
        names.RESPONSE_TOKENS: (26 + 4 + 36 + 54) / 4,
        names.SAMPLED_TOKENS: (20 + 4 + 30 + 40) / 4,
        names.OBSERVED_TOKENS: (6 + 6 + 14) / 4,
        names.MAX_RESPONSE: 54,
        names.TURNS: (2 + 1 + 2 + 3) / 4,
        names.TRUNCATED: 0.25,
        names.EPISODE_SECONDS: 7.0 / 4,
    }


def test_the_cached_share_is_of_later_turns_only() -> None:
    """The first turn finds the prompt of another sample of the problem, which carries no information on episodes."""
    # Of the second turn: 1 token cached of the prompt's 1 and the first turn's 1.
    found = measured(trajectory([BLOCK, ""], call(OK), cached_at_first=1))
    assert found[names.CACHED_SHARE] == 1 / 2
    assert names.CACHED_SHARE not in measured(trajectory("", cached_at_first=1))


def test_how_old_the_policies_of_a_step_are() -> None:
    one = trajectory("", sampled=2, observed=2, versions=(5, 5, -1, -1))
    two = trajectory("", sampled=3, observed=1, versions=(3, 4, 5, -1))
    found = staleness([one, two], 5)
    assert found == {
        names.STALENESS_MEAN: (2 + 1) / 5,
        names.STALENESS_MAX: 2,
        names.SPANNING: 1 / 2,  # of the two only the second has tokens of several versions
    }


def test_ratios_without_a_denominator_are_left_out() -> None:
    metrics = measured(trajectory("\\boxed{3}"))
    for name in (names.PASS_RATIO, names.EXECUTED_RATIO, names.BEFORE_ANSWER_RATIO, names.UNIFORM_GROUPS):
        assert name not in metrics
    assert metrics[names.CODE_RATIO] == 0.0
    assert metrics[names.CALLS_PER_TRAJECTORY] == 0.0


def test_a_call_without_code_is_a_call_but_no_run() -> None:
    metrics = measured(trajectory(["```output", "\n" + BLOCK, "\n"], call(NO_CODE, code=None), call(OK)))
    assert metrics[names.CALLS_PER_TRAJECTORY] == 2.0
    assert metrics[names.CALLS_WITHOUT_CODE] == 0.5
    assert metrics[names.PASS_RATIO] == 1.0
    assert metrics[names.EXECUTED_RATIO] == 1.0


def test_an_empty_block_that_ran_is_a_run() -> None:
    metrics = measured(trajectory(["```python\n```output", "\n"], call(OK, code="")))
    assert metrics[names.PASS_RATIO] == 1.0
    assert metrics[names.EXECUTED_RATIO] == 1.0
    assert metrics[names.CALLS_WITHOUT_CODE] == 0.0


def test_a_call_that_no_block_made_is_a_run_of_no_block() -> None:
    searched = ToolCall(ToolRequest("search", {"query": "two"}), OK, "2", 0, 0, 0.5)
    metrics = measured(trajectory(["<search>two</search>", "```python\n2\n```\n"], searched))
    assert metrics[names.PASS_RATIO] == 1.0
    assert metrics[names.EXECUTED_RATIO] == 0.0


def test_exceptions_of_the_model_s_own_making_share_one_name() -> None:
    metrics = measured(trajectory([BLOCK] * 4, call(OWN), call(OWN), call(ZERO), call(ZERO)))
    assert [name for name in metrics if name.startswith("tool/error/")] == [
        "tool/error/ZeroDivisionError",
        "tool/error/other",
    ]


def test_groups_of_one_say_nothing_about_variance_and_mixed_groups_are_not_uniform() -> None:
    each = trajectory("")
    metrics = training_dynamics(
        [group((each, RIGHT), (each, WRONG)), group((each, WRONG), (each, WRONG)), group((each, RIGHT))]
    )
    assert metrics[names.UNIFORM_GROUPS] == 0.5
    assert metrics[names.SOLVED] == 2 / 3


def test_grader_failures_are_counted() -> None:
    failures = ["timeout", "error", None]
    metrics = training_dynamics([group(*((trajectory(""), Grade(-1.0, False, None, each)) for each in failures))])
    assert (metrics[names.GRADER_TIMEOUTS], metrics[names.GRADER_ERRORS]) == (1, 1)


def test_mean_reward_counts_all_and_parts_only_their_trajectories() -> None:
    each = trajectory([BLOCK, ""], call(OK))
    grades = [
        Grade(1.5, True, "2", parts={"answer": 1.0, "length": 0.5}, turn_rewards=(0.25, 0.5)),
        Grade(-1.0, False, None, parts={"answer": -1.0}),
    ]
    metrics = training_dynamics([group(*((each, grade) for grade in grades))])
    assert metrics[names.REWARD_MEAN] == (1.5 + 0.75 - 1.0) / 2
    assert metrics[names.reward_part("answer")] == 0.0
    assert metrics["reward/part/length"] == 0.5
    assert metrics[names.REWARD_TURNS] == 0.75 / 2


def test_rewards_without_parts_or_pay_by_turn_have_no_metric_of_them() -> None:
    metrics = measured(trajectory(""), RIGHT)
    assert not [name for name in metrics if name in names.reward_part]
    assert names.REWARD_TURNS not in metrics


def test_groups_that_differ_in_the_pay_of_their_turns_are_not_uniform() -> None:
    rewarded = Grade(1.0, True, "2", turn_rewards=(0.5,))
    metrics = training_dynamics([group((trajectory(""), RIGHT), (trajectory(""), rewarded))])
    assert metrics[names.UNIFORM_GROUPS] == 0.0


def test_the_tool_that_a_problem_names_is_chosen_or_not() -> None:
    """Five responses: one asks for no tool and one names nothing that is called; the other three choose."""
    prompt = Prompt(Problem("p", "?", "2", {"tool": "search"}), (1,))
    searches = replace(call(OK), request=ToolRequest("search", {"query": "x"}))
    calls = [[searches, searches], [call(OK)], [searches, call(OK)], [], [call(NO_CODE, code=None)]]
    made = [replace(trajectory([""] * (len(own) + 1), *own), prompt=prompt) for own in calls]
    metrics = training_dynamics([group(*((each, RIGHT) for each in made))])
    assert metrics[names.RIGHT_TOOL] == 1 / 3
    assert names.RIGHT_TOOL not in measured(trajectory([BLOCK, ""], call(OK)), RIGHT)


def test_rewards_by_prompt_variant() -> None:
    high = Prompt(Problem("p", "?", "2"), (1,), variant="high")
    low = replace(high, token_ids=(2,), variant="low")
    made = [(high, RIGHT), (high, WRONG), (high, RIGHT), (low, WRONG)]
    metrics = training_dynamics([group(*((replace(trajectory(""), prompt=prompt), grade) for prompt, grade in made))])
    assert (metrics[names.variant_reward("high")], metrics[names.variant_reward("low")]) == (1 / 3, -1.0)
    assert names.variant_reward("high") not in measured(trajectory(""), RIGHT)


def test_nothing_cannot_be_measured() -> None:
    with pytest.raises(ValueError, match="no trajectory"):
        training_dynamics([])


def test_a_tool_s_counts_stand_under_its_name() -> None:
    assert names.tool_counts("python", {"shared": 3}) == {"tool/python/shared": 3}


@pytest.mark.parametrize(
    ("texts", "before"),
    [
        (["\\boxed{1} ```python\n1\n```\n"], 0),  # in a line: no block
        (["```python\n1\n```\n\\boxed{1}"], 1),
        (["\\boxed{1}\n```python\n1\n```\n"], 0),
        # The place of the answer is counted over the turns before it: here it follows two blocks of three.
        (["é" * 9 + "\n```python\n1\n```output", "```python\n1\n```\n\\boxed{1}\n```python\n1\n```\n"], 2),
        # An answer in an earlier turn is the last one: the block after it comes later.
        (["\\boxed{1}\n```output", "```python\n1\n```\n"], 0),
    ],
)
def test_blocks_before_the_answer(texts: list[str], before: int) -> None:
    metrics = measured(trajectory(texts, *[call(OK)] * (len(texts) - 1)))
    blocks = sum(text.count("\n```python") + text.startswith("```python") for text in texts)
    assert metrics.get(names.BEFORE_ANSWER_RATIO, 0.0) == (before / blocks if blocks else 0.0)


@pytest.mark.parametrize(
    ("texts", "codes"),
    [
        (["no code"], []),
        (["```python\nprint(1)\n```\n"], ["print(1)\n"]),
        (["```python\nprint(1)\n```output", "\n```python\nprint(2)\n```\n"], ["print(1)\n", "print(2)\n"]),
        (["```python\nprint(1)\n"], []),  # never closed
        (["in a line ```python\nprint(1)\n```\n"], []),
        # a marker in the middle of a line of code ends the turn and its open block
        (["```python\nprint('```output", "\n```python\nprint(2)\n```\n"], ["print(2)\n"]),
        # the same text where it ended no turn: one block with a strange line in it, closed by the next fence
        (["```python\nprint('```output\n\n```\n"], ["print('```output\n\n"]),
        (["é```python\n1\n```\n\n```python\n2 # é\n```\n"], ["2 # é\n"]),
    ],
)
def test_blocks_of_a_response_are_those_of_its_turns(texts: list[str], codes: list[str]) -> None:
    turns = trajectory(texts).turns
    assert [block.code for turn in turns for block in turn.blocks] == codes
    assert [turn.text[block.start : block.stop] for turn in turns for block in turn.blocks] == codes
    metrics = measured(trajectory(texts))
    assert metrics[names.CODE_BLOCKS_PER_RESPONSE] == len(codes)
    assert metrics[names.CODE_RATIO] == bool(codes)
