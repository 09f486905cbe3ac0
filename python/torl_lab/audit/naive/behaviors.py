"""Naive metrics of the code in responses: its size, its place among text and answers, and changes of strategy."""

from collections.abc import Callable, Iterator, Sequence
from keyword import iskeyword
from statistics import fmean

from torl.base.types import OutcomeStatus, ScoredGroup, StopReason, ToolCall, Trajectory
from torl.components.formats.results import result_tags_of
from torl.components.text.answers import find_answer
from torl.run.records import metric_names as names
from torl_lab.audit.naive.responses import Response, calls_after, code_of, is_run, responses_of, sampled_text, share

_REASONED_WORDS = 30
_HARD = 0.5  # accuracies below it
_SHARED = 0.5  # fraction of the lines of two runs


def naive_behaviors(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """Return the metrics by name, without ratios whose denominator is 0."""
    responses = responses_of(groups)
    trajectories = [trajectory for trajectory, _ in responses]
    codes = [block.code for each in trajectories for turn in each.turns for block in turn.blocks]
    sides = [side for each in trajectories if True in (side := _sides_of_runs(each))]
    found = _cross_checks(responses)
    found |= share(names.CODE_LINES, sum(map(count_lines, codes)), len(codes))
    found |= share(names.CODE_NAMES, sum(len(set(names_before_parentheses(code))) for code in codes), len(codes))
    found |= share(names.RAN_BEFORE_ANSWER, sum(before for before, _ in sides), len(sides))
    found |= share(names.RAN_AFTER_ANSWER, sum(after for _, after in sides), len(sides))
    reasoned = _known(_has_reasoned, trajectories)
    found |= share(names.REASONED_BEFORE_CODE, sum(reasoned), len(reasoned))
    changed = _known(_has_changed, trajectories)
    found |= share(names.CHANGED_CODE, sum(changed), len(changed))
    invented = _known(_has_invented, trajectories)
    return found | share(names.INVENTED_RESULTS, sum(invented), len(invented)) | _lines_by_difficulty(groups)


def _known(fact: Callable[[Trajectory], bool | None], trajectories: Sequence[Trajectory]) -> list[bool]:
    return [value for value in map(fact, trajectories) if value is not None]


def _lines_by_difficulty(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, is_hard in ((names.CODE_LINES_HARD, True), (names.CODE_LINES_EASY, False)):
        lines = [
            count_lines(block.code)
            for group in groups
            if len(group.members) > 1 and (fmean(each.grade.correct for each in group.members) < _HARD) is is_hard
            for trajectory, _ in responses_of([group])
            for turn in trajectory.turns
            for block in turn.blocks
        ]
        found |= share(name, sum(lines), len(lines))
    return found


def count_lines(code: str) -> int:
    """Return the number of lines that are neither empty nor a comment alone."""
    lines = [line.strip() for line in code.splitlines()]
    return len([line for line in lines if line and line[0] != "#"])


def names_before_parentheses(code: str) -> Iterator[str]:
    """Yield the names before opening parentheses, dotted ones as one, without keywords."""
    for place, character in enumerate(code):
        if character != "(":
            continue
        stop = place
        while stop and code[stop - 1].isspace():
            stop -= 1
        start = stop
        while start and (code[start - 1].isalnum() or code[start - 1] in "_."):
            start -= 1
        # After two dots, or one after a parenthesis, another name begins.
        name = (".." + code[start:stop]).rpartition("..")[2].removeprefix(".")
        starts = name[:1] == "_" or (name[:1].isascii() and name[:1].isalpha())
        if starts and not name.endswith(".") and not iskeyword(name):
            yield name


def _cross_checks(responses: Sequence[Response]) -> dict[str, float]:
    """Compare the answers stated before code with the last lines that it printed."""
    compared = agreed = changed = corrected = 0
    for trajectory, grade in responses:
        found = _cross_check(trajectory)
        if found is None:
            continue
        stated, printed = found
        agrees = is_same_value(stated, printed)
        final = find_answer(sampled_text(trajectory.turns))
        compared += 1
        agreed += agrees
        corrected += grade.correct and not agrees
        changed += final is None or not is_same_value(final.text, stated)
    metrics: dict[str, float] = {names.CROSS_CHECKED: compared / len(responses)}
    metrics |= share(names.CROSS_CHECK_AGREED, agreed, compared) | share(names.CROSS_CHECK_CHANGED, changed, compared)
    return metrics | share(names.CROSS_CHECK_CORRECTED, corrected, compared - agreed)


def _cross_check(trajectory: Trajectory) -> tuple[str, str] | None:
    for number, turn in enumerate(trajectory.turns):
        calls = calls_after(trajectory, turn)
        lines = [line for call in calls if (line := _last_line(call))]
        if lines and len(turn.blocks) >= len(calls):  # the calls are of the turn's last blocks
            first = turn.blocks[len(turn.blocks) - len(calls)].start
            answer = _stated(sampled_text(trajectory.turns[:number]) + "\n" + turn.text[:first])
            if answer is not None:
                return answer, lines[0]
    return None


def _last_line(call: ToolCall) -> str:
    """Return the last line that a successful run of code printed; an empty text without one."""
    printed = call.outcome.text if code_of(call) and call.outcome.status is OutcomeStatus.OK else ""
    return printed.rstrip().rpartition("\n")[2].strip()


def _stated(text: str) -> str | None:
    answer = find_answer(text)
    return None if answer is None or not answer.text.strip() else answer.text


def is_same_value(one: str, other: str) -> bool:
    """Whether two texts are equal without spaces and dollar signs, or the same number."""
    one, other = _without_markup(one), _without_markup(other)
    try:
        return one == other or float(one) == float(other)
    except ValueError:
        return False


def _without_markup(text: str) -> str:
    """Return a text without white space, dollar signs, and LaTeX's spaces."""
    kept, place = "", 0
    while place < len(text):
        if text[place] == "\\" and text[place + 1 : place + 2] in (",", ";", "!"):
            place += 1
        elif not text[place].isspace() and text[place] != "$":
            kept += text[place]
        place += 1
    return kept


def _sides_of_runs(trajectory: Trajectory) -> tuple[bool, bool]:
    """Return whether a run succeeded before the first answer, and whether one did after it."""
    before = after = False
    for number, turn in enumerate(trajectory.turns):
        runs = [call for call in calls_after(trajectory, turn) if is_run(call)]
        if not any(call.outcome.status is OutcomeStatus.OK for call in runs):
            continue
        place = len(turn.blocks) - len(runs)
        written = turn.text if place < 0 else turn.text[: turn.blocks[place].start]
        is_late = _stated(sampled_text(trajectory.turns[:number]) + "\n" + written) is not None
        before, after = before or not is_late, after or is_late
    return before, after


def _has_reasoned(trajectory: Trajectory) -> bool | None:
    """Whether there are 30 words before the first block; None without a block."""
    text = ""
    for turn in trajectory.turns:
        if not turn.blocks:
            text += turn.text + "\n"
            continue
        before = turn.text[: turn.blocks[0].start].rstrip()
        while before and (before[-1].isalnum() or before[-1] == "_"):
            before = before[:-1]
        is_fenced = before.endswith("```")
        text += before.removesuffix("```") if is_fenced else turn.text[: turn.blocks[0].start]
        return len(text.split()) >= _REASONED_WORDS
    return None


def _has_changed(trajectory: Trajectory) -> bool | None:
    """Whether a run shares less than half of its lines with the run before it; None with fewer than two runs."""
    runs = []
    for call in trajectory.tool_calls:
        if code := code_of(call):
            lines = {"".join(line.split()) for line in code.splitlines()}
            runs.append({line for line in lines if line and line[0] != "#"})
    if len(runs) < 2:
        return None
    for number in range(1, len(runs)):
        both = [line for line in runs[number] if line in runs[number - 1]]
        if len(both) < _SHARED * (len(runs[number]) + len(runs[number - 1]) - len(both)):
            return True
    return False


def _has_invented(trajectory: Trajectory) -> bool | None:
    """Whether the model wrote a result itself; None for a format that does not mark results.

    The opening tag at the very end of a turn that calls a tool is the format's own.
    """
    tags = result_tags_of(trajectory.format)
    if tags is None:
        return None
    for turn in trajectory.turns:
        _, opening, rest = turn.text.partition(tags[0])
        if opening and (turn.stop_reason is not StopReason.CALL or rest.strip()):
            return True
    return False
