"""Training dynamics against numbers worked out by hand."""

import dataclasses

import numpy as np
import pytest

from torl.metrics import names
from torl.metrics.blocks import written_blocks
from torl.metrics.dynamics import staleness, training_dynamics
from torl.types import FinishReason, Grade, Outcome, OutcomeStatus, Problem, Prompt, ToolCall, Trajectory, Turn

OK = Outcome(OutcomeStatus.OK, "2\n", "", None, None, None, 0.01, 0.01, 1)
ZERO = Outcome(OutcomeStatus.ERROR, "", "", "ZeroDivisionError", "ZeroDivisionError: x", "", 0.01, 0.01, 1)
OWN = Outcome(OutcomeStatus.ERROR, "", "", "MyError17", "MyError17: x", "", 0.01, 0.01, 1)
TIMEOUT = Outcome(OutcomeStatus.TIMEOUT, "", "", None, None, None, 10.0, 10.0, 1)
NO_CODE = Outcome(OutcomeStatus.ERROR, "", "", "NoCode", "NoCode: there was none", None, 0.0, 0.0, 0)
RIGHT, WRONG = Grade(1.0, True, "2"), Grade(-1.0, False, None)


def call(outcome: Outcome, code: str = "print(2)\n", wait_seconds: float = 0.5) -> ToolCall:
    return ToolCall(code, outcome, "\n2\n```\n", 0, 0, wait_seconds)


def trajectory(
    sampled_text: str,
    *calls: ToolCall,
    group: str = "0/a",
    sampled: int = 4,
    observed: int = 0,
    truncated: bool = False,
    seconds: float = 2.0,
    versions: tuple[int, ...] | None = None,
    cached_at_first: int = 0,
) -> Trajectory:
    mask = np.array([True] * sampled + [False] * observed)
    return Trajectory(
        prompt=Prompt(Problem("a", "1 + 1?", "2"), (1,)),
        group=group,
        sample=0,
        token_ids_T=np.arange(len(mask), dtype=np.int32),
        loss_mask_T=mask,
        rollout_logprobs_T=np.zeros(len(mask), np.float32),
        policy_versions_T=np.zeros(len(mask), np.int32) if versions is None else np.array(versions, np.int32),
        turns=tuple(Turn(index, index + 1, index if index else cached_at_first) for index in range(len(calls) + 1)),
        tool_calls=calls,
        finish_reason=FinishReason.LENGTH if truncated else FinishReason.STOP,
        text=sampled_text,
        sampled_text=sampled_text,
        seconds=seconds,
    )


BLOCK = "```python\nprint(2)\n```output"


def test_a_step_worked_out_by_hand() -> None:
    trajectories = [
        # one block that ran ok, before the answer
        trajectory(f"{BLOCK}\n\nso \\boxed{{2}}", call(OK), sampled=20, observed=6),
        # no code
        trajectory("\\boxed{2}", sampled=4, seconds=1.0),
        # two blocks; the first ran and failed, the second came after the answer and never ran
        trajectory(f"{BLOCK}\n\n\\boxed{{3}}\n```python\n3\n```\n", call(ZERO), group="0/b", sampled=30, observed=6),
        # two runs, one ok, one timed out; no answer, cut off
        trajectory(
            f"{BLOCK}\n\n{BLOCK}\n", call(OK), call(TIMEOUT), group="0/b", sampled=40, observed=14, truncated=True
        ),
    ]
    grades = [RIGHT, RIGHT, Grade(-1.0, False, "3"), Grade(-1.0, False, None)]
    metrics = training_dynamics(trajectories, grades)
    assert metrics == {
        names.REWARD_MEAN: 0.0,
        names.CACHED_SHARE: 5 / 9,
        names.ACCURACY: 0.5,
        names.SOLVED: 0.5,  # 0/a, not 0/b
        names.ANSWERED: 0.75,
        names.GRADER_TIMEOUTS: 0,
        names.GRADER_ERRORS: 0,
        names.UNIFORM_GROUPS: 1.0,
        names.CODE_RATIO: 0.75,
        names.CODE_BLOCKS_PER_RESPONSE: 5 / 4,
        names.EXECUTED_RATIO: 4 / 5,
        names.BEFORE_ANSWER_RATIO: 2 / 5,
        names.CALLS_PER_TRAJECTORY: 1.0,
        names.CALLS_WITHOUT_CODE: 0.0,
        names.PASS_RATIO: 2 / 4,
        names.PASS_RATIO_CORRECT: 1.0,
        names.PASS_RATIO_INCORRECT: 1 / 3,
        names.WAIT_SHARE: (4 * 0.5) / 7.0,
        names.status_share("ok"): 0.5,
        names.status_share("error"): 0.25,
        names.status_share("timeout"): 0.25,
        names.error_share("ZeroDivisionError"): 0.25,
        names.RESPONSE_TOKENS: (26 + 4 + 36 + 54) / 4,
        names.SAMPLED_TOKENS: (20 + 4 + 30 + 40) / 4,
        names.OBSERVED_TOKENS: (6 + 6 + 14) / 4,
        names.LONGEST_RESPONSE: 54,
        names.TURNS: (2 + 1 + 2 + 3) / 4,
        names.TRUNCATED: 0.25,
        names.EPISODE_SECONDS: 7.0 / 4,
    }


def test_the_cached_share_is_of_later_turns_only() -> None:
    """What the first turn finds is the prompt of another sample of the problem, which says nothing about episodes."""
    # Of the second turn: 1 token cached of the prompt's 1 and the first turn's 1.
    found = training_dynamics([trajectory(BLOCK, call(OK), cached_at_first=1)], [WRONG])
    assert found[names.CACHED_SHARE] == 1 / 2
    assert names.CACHED_SHARE not in training_dynamics([trajectory("", cached_at_first=1)], [WRONG])


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
    metrics = training_dynamics([trajectory("\\boxed{3}")], [WRONG])
    for name in (names.PASS_RATIO, names.EXECUTED_RATIO, names.BEFORE_ANSWER_RATIO, names.UNIFORM_GROUPS):
        assert name not in metrics
    assert metrics[names.CODE_RATIO] == 0.0
    assert metrics[names.CALLS_PER_TRAJECTORY] == 0.0


def test_a_call_without_code_is_a_call_but_no_run() -> None:
    text = f"```output\n\n{BLOCK}\n"
    metrics = training_dynamics([trajectory(text, call(NO_CODE, code=""), call(OK))], [WRONG])
    assert metrics[names.CALLS_PER_TRAJECTORY] == 2.0
    assert metrics[names.CALLS_WITHOUT_CODE] == 0.5
    assert metrics[names.PASS_RATIO] == 1.0
    assert metrics[names.EXECUTED_RATIO] == 1.0


def test_an_empty_block_that_ran_is_a_run() -> None:
    metrics = training_dynamics([trajectory("```python\n```output\n", call(OK, code=""))], [WRONG])
    assert metrics[names.PASS_RATIO] == 1.0
    assert metrics[names.CALLS_WITHOUT_CODE] == 0.0


def test_exceptions_of_the_model_s_own_making_share_one_name() -> None:
    metrics = training_dynamics([trajectory(BLOCK, call(OWN), call(OWN), call(ZERO), call(ZERO))], [WRONG])
    assert [name for name in metrics if name.startswith("tool/error/")] == [
        "tool/error/ZeroDivisionError",
        "tool/error/other",
    ]


def test_groups_of_one_say_nothing_about_variance_and_mixed_groups_are_not_uniform() -> None:
    trajectories = [trajectory("", group=group) for group in ("0/a", "0/a", "0/b", "0/b", "0/c")]
    metrics = training_dynamics(trajectories, [RIGHT, WRONG, WRONG, WRONG, RIGHT])
    assert metrics[names.UNIFORM_GROUPS] == 0.5
    assert metrics[names.SOLVED] == 2 / 3


def test_grader_failures_are_counted() -> None:
    failed = [dataclasses.replace(WRONG, failure="timeout"), dataclasses.replace(WRONG, failure="error"), WRONG]
    metrics = training_dynamics([trajectory("")] * 3, failed)
    assert (metrics[names.GRADER_TIMEOUTS], metrics[names.GRADER_ERRORS]) == (1, 1)


def test_a_grade_for_each_trajectory() -> None:
    with pytest.raises(ValueError, match="1 trajectories and 2 grades"):
        training_dynamics([trajectory("")], [RIGHT, RIGHT])
    with pytest.raises(ValueError, match="0 trajectories"):
        training_dynamics([], [])


@pytest.mark.parametrize(
    ("text", "calls", "codes"),
    [
        ("no code", 0, []),
        ("```python\nprint(1)\n```\n", 0, ["print(1)\n"]),
        ("```python\nprint(1)\n```output\n\n```python\nprint(2)\n```\n", 1, ["print(1)\n", "print(2)\n"]),
        ("```python\nprint(1)\n", 0, []),  # never closed
        ("in a line ```python\nprint(1)\n```\n", 0, []),
        # a marker in the middle of a line of code ends the turn and its open block
        ("```python\nprint('```output\n\n```python\nprint(2)\n```\n", 1, ["print(2)\n"]),
        # the same text where it ended no turn: one block with a strange line in it, closed by the next fence
        ("```python\nprint('```output\n\n```\n", 0, ["print('```output\n\n"]),
        ("é```python\n1\n```\n\n```python\n2 # é\n```\n", 0, ["2 # é\n"]),
    ],
)
def test_written_blocks(text: str, calls: int, codes: list[str]) -> None:
    blocks = written_blocks(text, calls)
    assert [block.code for block in blocks] == codes
    assert [text[block.start : block.stop] for block in blocks] == codes
