"""Recorded responses, and naive metrics of their code blocks, calls and outcomes (figure 5 of ToRL)."""

import builtins
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean

from torl.base.types import Grade, OutcomeStatus, ScoredGroup, ToolCall, Trajectory, Turn
from torl.components.text.answers import find_answer
from torl.run.records import metric_names as names

Response = tuple[Trajectory, Grade]
"""A response with the grade of its episode."""


def responses_of(groups: Iterable[ScoredGroup]) -> list[Response]:
    """Return all responses of groups. Each branch of an episode is one."""
    members = (member for group in groups for member in group.members)
    return [(each, member.grade) for member in members for each in (*member.trajectory.branches, member.trajectory)]


def share(name: str, part: float, whole: float) -> dict[str, float]:
    """Return a ratio by its name; nothing if the denominator is 0."""
    return {name: part / whole} if whole else {}


def total_reward(grade: Grade) -> float:
    """Return the reward at the end plus the rewards of the turns."""
    return grade.reward + sum(grade.turn_rewards)


def is_credited(grade: Grade) -> bool:
    """Whether the answer is correct in a valid format."""
    return grade.correct and grade.valid_format


def is_run(call: ToolCall) -> bool:
    """Whether a call was executed."""
    return call.request is not None


def code_of(call: ToolCall) -> str:
    """Return the code argument of a call; an empty text without one."""
    return "" if call.request is None else str(call.request.arguments.get("code", ""))


def calls_after(trajectory: Trajectory, turn: Turn) -> list[ToolCall]:
    """Return the calls whose observation begins where the turn ends."""
    return [call for call in trajectory.tool_calls if call.start == turn.stop]


def sampled_text(turns: Sequence[Turn]) -> str:
    """Return the text of turns, with a newline instead of each observation."""
    return "\n".join(turn.text for turn in turns)


_OTHER_EXCEPTION = "other"  # of the classes that a model defines


def naive_code_ratio(trajectories: Iterable[Trajectory]) -> float:
    """Return the fraction of responses with a code block."""
    return fmean(any(len(turn.blocks) for turn in trajectory.turns) for trajectory in trajectories)


def tool_metrics(responses: Sequence[Response]) -> dict[str, float]:
    """Return the metrics of blocks, calls and runs by name."""
    blocks = executed = early = calls = 0
    waited = seconds = 0.0
    outcomes: list[tuple[bool, bool]] = []  # of each run: whether it succeeded, whether the response is correct
    statuses, errors = Counter[str](), Counter[str]()
    recovered, chosen = 0, list[bool]()
    for trajectory, grade in responses:
        seconds += trajectory.seconds
        calls += len(trajectory.tool_calls)
        early += _blocks_before_answer(trajectory)
        for turn in trajectory.turns:
            blocks += len(turn.blocks)
            executed += min(len(turn.blocks), len([call for call in calls_after(trajectory, turn) if is_run(call)]))
        own: list[bool] = []
        for call in trajectory.tool_calls:
            waited += call.wait_seconds
            if not is_run(call):
                continue
            own.append(call.outcome.status is OutcomeStatus.OK)
            statuses[call.outcome.status.value] += 1
            if call.outcome.error is not None:
                errors[_exception(call.outcome.error)] += 1
        outcomes += [(succeeded, grade.correct) for succeeded in own]
        recovered += grade.correct and any(True in own[place + 1 :] for place, each in enumerate(own) if not each)
        chosen += _tool_choice(trajectory)
    runs = len(outcomes)
    found: dict[str, float] = {
        names.CODE_RATIO: naive_code_ratio(trajectory for trajectory, _ in responses),
        names.CODE_BLOCKS_PER_RESPONSE: blocks / len(responses),
        names.CALLS_PER_TRAJECTORY: calls / len(responses),
        names.RECOVERED_ERRORS: recovered / len(responses),
    }
    found |= share(names.EXECUTED_RATIO, executed, blocks) | share(names.BEFORE_ANSWER_RATIO, early, blocks)
    found |= share(names.CALLS_WITHOUT_CODE, calls - runs, calls) | share(names.WAIT_SHARE, waited, seconds)
    found |= share(names.RIGHT_TOOL, sum(chosen), len(chosen))
    of_correct = [succeeded for succeeded, correct in outcomes if correct]
    of_others = [succeeded for succeeded, correct in outcomes if not correct]
    found |= share(names.PASS_RATIO, sum(succeeded for succeeded, _ in outcomes), runs)
    found |= share(names.PASS_RATIO_CORRECT, sum(of_correct), len(of_correct))
    found |= share(names.PASS_RATIO_INCORRECT, sum(of_others), len(of_others))
    found |= {names.status_fraction(status): count / runs for status, count in statuses.items()}
    return found | {names.error_fraction(error): count / runs for error, count in errors.items()}


def _blocks_before_answer(trajectory: Trajectory) -> int:
    answer = find_answer(sampled_text(trajectory.turns))
    if answer is None:
        return 0
    count = 0
    for number, turn in enumerate(trajectory.turns):
        before = len(sampled_text([*trajectory.turns[:number], turn])) - len(turn.text)
        count += len([block for block in turn.blocks if before + block.start < answer.start])
    return count


def _exception(error: str) -> str:
    known = getattr(builtins, error, None)
    return error if isinstance(known, type) and issubclass(known, BaseException) else _OTHER_EXCEPTION


def _tool_choice(trajectory: Trajectory) -> list[bool]:
    """Return whether a response calls only the tool that its problem names; nothing without a call or a name."""
    called = [call.request.tool for call in trajectory.tool_calls if call.request is not None]
    wanted = trajectory.prompt.problem.metadata.get("tool")
    return [all(tool == wanted for tool in called)] if called and wanted is not None else []
