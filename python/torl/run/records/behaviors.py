"""Metrics of the code in responses: its size, its place among text and answers, and changes of strategy.

They use the text alone: the training process never parses a model's code as Python.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from keyword import iskeyword
from typing import Final

from torl.base.types import Grade, ScoredGroup, ScoredTrajectory, StopReason, ToolCall, Trajectory
from torl.components.formats.results import invented_results, result_tags_of
from torl.components.text.answers import find_answer
from torl.run.records import metric_names as names
from torl.run.records.row_types import has_recovery

MIN_REASONING_WORDS: Final = 30
MIN_SHARED_LINES: Final = 0.5
HARD_ACCURACY: Final = 0.5

# Starts at the first letter of a name only: starting at each letter is quadratic in the length of a name.
_CALLED = re.compile(r"(?<!\w)(?<!\w\.)([A-Za-z_]\w*(?:\.\w+)*)\s*\(")
_FENCE = re.compile(r"```\w*\s*\Z")
_MARKUP = re.compile(r"[\s$]|\\[,;!]")


def code_behaviors(members: Sequence[ScoredTrajectory]) -> dict[str, float]:
    """Return the metrics by name, without ratios whose denominator is zero."""
    blocks = [block.code for member in members for turn in member.trajectory.turns for block in turn.blocks]
    checks = [(member, check) for member in members if (check := cross_check(member.trajectory)) is not None]
    disagreed = [member for member, (stated, printed) in checks if not same_value(stated, printed)]
    metrics: dict[str, float] = {names.CROSS_CHECKED: len(checks) / len(members)}
    if blocks:
        metrics[names.CODE_LINES] = sum(map(code_lines, blocks)) / len(blocks)
        metrics[names.CODE_NAMES] = sum(len(called_names(code)) for code in blocks) / len(blocks)
    if checks:
        metrics[names.CROSS_CHECK_AGREED] = 1 - len(disagreed) / len(checks)
        changed = sum(_changes_answer(member.trajectory, stated) for member, (stated, _) in checks)
        metrics[names.CROSS_CHECK_CHANGED] = changed / len(checks)
    if disagreed:
        metrics[names.CROSS_CHECK_CORRECTED] = sum(member.grade.correct for member in disagreed) / len(disagreed)
    trajectories = [member.trajectory for member in members]
    ran = [sides for trajectory in trajectories if any(sides := runs_around_answer(trajectory))]
    if ran:
        metrics[names.RAN_BEFORE_ANSWER] = sum(before for before, _ in ran) / len(ran)
        metrics[names.RAN_AFTER_ANSWER] = sum(after for _, after in ran) / len(ran)
    words = [number for trajectory in trajectories if (number := words_before_code(trajectory)) is not None]
    if words:
        metrics[names.REASONED_BEFORE_CODE] = sum(number >= MIN_REASONING_WORDS for number in words) / len(words)
    changes = [change for trajectory in trajectories if (change := changes_code(trajectory)) is not None]
    if changes:
        metrics[names.CHANGED_CODE] = sum(changes) / len(changes)
    invented = [result for trajectory in trajectories if (result := invents_results(trajectory)) is not None]
    if invented:
        metrics[names.INVENTED_RESULTS] = sum(invented) / len(invented)
    return metrics


def difficulty_behaviors(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """Return the mean lines of a code block in groups of low and of high accuracy, by name."""
    lines: dict[str, list[int]] = {names.CODE_LINES_HARD: [], names.CODE_LINES_EASY: []}
    for group in groups:
        if len(group.members) < 2:
            continue
        accuracy = sum(member.grade.correct for member in group.members) / len(group.members)
        name = names.CODE_LINES_HARD if accuracy < HARD_ACCURACY else names.CODE_LINES_EASY
        played = (each.trajectory for member in group.members for each in member.episode_trajectories)
        lines[name] += [code_lines(block.code) for each in played for turn in each.turns for block in turn.blocks]
    return {name: sum(counts) / len(counts) for name, counts in lines.items() if counts}


def runs_around_answer(trajectory: Trajectory) -> tuple[bool, bool]:
    """Return whether code ran successfully before the first boxed answer, and after it.

    A run of a turn counts as after an answer in the text before the blocks that ran. Without an answer, every run is
    before it.
    """
    before = after = False
    text = ""
    for turn in trajectory.turns:
        calls = [call for call in trajectory.calls_in(turn) if call.ran]
        if any(call.outcome.ok for call in calls):
            first = turn.blocks[-len(calls)].start if len(turn.blocks) >= len(calls) else len(turn.text)
            if _stated_answer(text + turn.text[:first]) is not None:
                after = True
            else:
                before = True
        text += turn.text + "\n"
    return before, after


def words_before_code(trajectory: Trajectory) -> int | None:
    """Return the number of words before the first code block; None without a block."""
    words = 0
    for turn in trajectory.turns:
        if turn.blocks:
            return words + len(_FENCE.sub("", turn.text[: turn.blocks[0].start]).split())
        words += len(turn.text.split())
    return None


def changes_code(trajectory: Trajectory) -> bool | None:
    """Whether a run shares less than half of its lines with the run before it; None with fewer than two runs."""
    codes = [_lines_of(call.code) for call in trajectory.tool_calls if call.ran and call.code]
    if len(codes) < 2:
        return None
    return any(len(one & other) < MIN_SHARED_LINES * len(one | other) for one, other in pairwise(codes))


def invents_results(trajectory: Trajectory) -> bool | None:
    """Whether the model wrote a tool result itself; None for a format that does not mark results."""
    tags = result_tags_of(trajectory.format)
    if tags is None:
        return None
    found = (
        invented_results(turn.text, tags, ends_with_call=turn.stop_reason is StopReason.CALL)
        for turn in trajectory.turns
    )
    return any(True for results in found for _ in results)


def code_lines(code: str) -> int:
    """Return the number of lines that are neither empty nor only a comment."""
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in code.splitlines())


def called_names(code: str) -> set[str]:
    """Return the names that are called or defined: those before a parenthesis. `sympy.solve` is one name."""
    return {found[1] for found in _CALLED.finditer(code) if not iskeyword(found[1])}


def cross_check(trajectory: Trajectory) -> tuple[str, str] | None:
    """Return the first boxed answer before code that printed output, and the last line of that output."""
    before = ""
    for turn in trajectory.turns:
        calls = trajectory.calls_in(turn)
        printed = next((line for call in calls if (line := _printed(call)) is not None), None)
        if printed is not None and len(turn.blocks) >= len(calls):
            stated = before + turn.text[: turn.blocks[-len(calls)].start]  # calls run the last blocks of a turn
            if (answer := _stated_answer(stated)) is not None:
                return answer, printed
        before += turn.text + "\n"
    return None


def recovers(trajectory: Trajectory, grade: Grade) -> bool:
    """Whether the response is correct, and a failed run is followed by a successful one."""
    return grade.correct and has_recovery([call.outcome.ok for call in trajectory.tool_calls if call.ran])


def same_value(one: str, other: str) -> bool:
    """Whether two texts are equal except for spaces and dollar signs, or are the same number."""
    one, other = _MARKUP.sub("", one), _MARKUP.sub("", other)
    try:
        return one == other or float(one) == float(other)
    except ValueError:
        return False


def _changes_answer(trajectory: Trajectory, stated: str) -> bool:
    final = find_answer(trajectory.sampled_text)
    return final is None or not same_value(final.text, stated)


def _stated_answer(text: str) -> str | None:
    """Return the last boxed answer of a text; None without one, or if it is empty, as in a quoted instruction."""
    answer = find_answer(text) if "\\boxed" in text else None
    return answer.text if answer is not None and answer.text.strip() else None


def _lines_of(code: str) -> frozenset[str]:
    """Return the distinct lines that are neither empty nor only a comment, without spaces."""
    lines = (re.sub(r"\s+", "", line) for line in code.splitlines())
    return frozenset(line for line in lines if line and not line.startswith("#"))


def _printed(call: ToolCall) -> str | None:
    """Return the last line that a successful run of code printed; None without one."""
    lines = call.outcome.text.split("\n") if call.code and call.outcome.ok else []
    return next((line.strip() for line in reversed(lines) if line.strip()), None)
