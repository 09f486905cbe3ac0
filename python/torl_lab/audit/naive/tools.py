"""Naive metrics of code blocks, calls and their outcomes (figure 5 of ToRL)."""

import builtins
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean

from torl.base.types import OutcomeStatus, Trajectory
from torl.components.text.answers import find_answer
from torl.run.records import metric_names as names
from torl_lab.audit.naive.responses import Response, calls_after, is_run, sampled_text, share

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
