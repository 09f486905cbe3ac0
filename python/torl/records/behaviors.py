"""Metrics of the code in responses: its size, and whether it checks an answer.

They use the text alone: the training process never parses a model's code as Python.
"""

import re
from collections.abc import Sequence
from keyword import iskeyword

from torl.records import metric_names as names
from torl.text.answers import find_answer
from torl.types import Grade, ScoredTrajectory, ToolCall, Trajectory

# Starts at the first letter of a name only: starting at each letter is quadratic in the length of a name.
_CALLED = re.compile(r"(?<!\w)(?<!\w\.)([A-Za-z_]\w*(?:\.\w+)*)\s*\(")
_MARKUP = re.compile(r"[\s$]|\\[,;!]")


def code_behaviors(members: Sequence[ScoredTrajectory]) -> dict[str, float]:
    """Return the metrics by name, without ratios whose denominator is zero."""
    blocks = [block.code for member in members for turn in member.trajectory.turns for block in turn.blocks]
    checks = [(member, check) for member in members if (check := cross_check(member.trajectory)) is not None]
    disagreed = [member for member, (stated, printed) in checks if not same_value(stated, printed)]
    metrics = {names.CROSS_CHECKED: len(checks) / len(members)}
    if blocks:
        metrics[names.CODE_LINES] = sum(map(code_lines, blocks)) / len(blocks)
        metrics[names.CODE_NAMES] = sum(len(called_names(code)) for code in blocks) / len(blocks)
    if checks:
        metrics[names.CROSS_CHECK_AGREED] = 1 - len(disagreed) / len(checks)
    if disagreed:
        metrics[names.CROSS_CHECK_CORRECTED] = sum(member.grade.correct for member in disagreed) / len(disagreed)
    return metrics


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
            if "\\boxed" in stated and (answer := find_answer(stated)) is not None:
                return answer.text, printed
        before += turn.text + "\n"
    return None


def recovers(trajectory: Trajectory, grade: Grade) -> bool:
    """Whether the response is correct, and a failed run is followed by a successful one."""
    succeeded = [call.outcome.ok for call in trajectory.tool_calls if call.ran]
    return grade.correct and False in succeeded and True in succeeded[succeeded.index(False) :]


def same_value(one: str, other: str) -> bool:
    """Whether two texts are equal except for spaces and dollar signs, or are the same number."""
    one, other = _MARKUP.sub("", one), _MARKUP.sub("", other)
    try:
        return one == other or float(one) == float(other)
    except ValueError:
        return False


def _printed(call: ToolCall) -> str | None:
    """Return the last line that a successful run of code printed; None without one."""
    lines = call.outcome.text.split("\n") if call.code and call.outcome.ok else []
    return next((line.strip() for line in reversed(lines) if line.strip()), None)
