"""The audit of a single file of trajectories, of torl or of another library, without a run's configuration."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Final

from torl.base.errors import RecordError
from torl.base.types import ToolCall, Trajectory, UserMessage
from torl.components.grading.grader import Grader
from torl.components.grading.verdict import compare_exactly
from torl.components.text.answers import find_answer
from torl.run.records.reading import read_rows
from torl.run.records.rows import TrajectoryRecord, decode_trajectory
from torl_lab.audit.checks import Check, OwnCheck, place_of
from torl_lab.audit.replay import MismatchError, check_arrays
from torl_lab.exchange import foreign_format, read_foreign, readers

_UNCHECKED: Final = {
    "prompts": "the file does not name the problem source and the template",
    "versions": "the allowed staleness is unknown",
    "advantages": "the estimator is unknown",
    "metrics": "the file has no metrics",
    "logprobs": "the file has no weights",
}


def verify_file(path: Path, line: int | None = None) -> list[Check]:
    """Check the trajectories of a file: structure, groups, arrays against turns, and a second grading.

    A check that needs a run has no comparisons, and a note with the reason.

    Args:
        path: File of torl, or of another library.
        line: Number of one trajectory in the file, from 0. Only its comparisons are counted.

    Raises:
        RecordError: The file cannot be read, has an unknown format, or ends before the line.
        RewardError: The grader failed.
    """
    names = ("structure", "groups", "tokens", "rewards")
    rows: Iterable[tuple[int, dict[str, Any]]] = enumerate(_rows(path), start=1)
    if line is None:
        structure, groups, arrays, rewards = map(Check, names)
    else:
        rows, place = _own_rows(path, list(rows), line)
        structure, groups, arrays, rewards = (OwnCheck(name, place=place) for name in names)
    seen: set[tuple[int, str, int]] = set()
    questions: dict[tuple[int, str], str] = {}
    with ExitStack() as stack:
        grader = cache(lambda: stack.enter_context(Grader()))  # its processes start for the first hard pair
        for number, row in rows:
            try:
                record = decode_trajectory(row)
            except ValueError as error:
                structure.add(False, f"trajectory {number}: {error}")
                continue
            for each in record.episode_trajectories:
                structure.add_mismatch(each, span_mismatch(each.trajectory))
                _check_tokens(arrays, each)
            trajectory = record.trajectory
            group = record.step, trajectory.group_id
            key = *group, trajectory.sample_index
            question = questions.setdefault(group, trajectory.prompt.problem.question)
            groups.add(key not in seen, f"{place_of(record)}: recorded twice")
            groups.expect(f"{place_of(record)}: question", question, trajectory.prompt.problem.question)
            seen.add(key)
            _check_grade(rewards, record, grader)
    unchecked = [Check(name, note=note) for name, note in _UNCHECKED.items()]
    return [structure, groups, arrays, rewards, *unchecked]


def span_mismatch(trajectory: Trajectory) -> str | None:
    """Return a message unless turns and observations follow each other within the response."""
    position = 0
    for number, turn in enumerate(trajectory.turns):
        if not position <= turn.start <= turn.stop:
            return f"turn {number} is at {turn.start} to {turn.stop}, after position {position}"
        position = turn.stop
    stops = {turn.stop for turn in trajectory.turns}
    observations: list[ToolCall | UserMessage] = [*trajectory.tool_calls, *trajectory.user_messages]
    for each in observations:
        if each.start not in stops or each.stop < each.start:
            return f"an observation at {each.start} to {each.stop} follows no turn"
    if len(trajectory) and position > len(trajectory):
        return f"a turn ends at {position}, after the last of {len(trajectory)} tokens"
    return None


def _own_rows(
    path: Path, rows: Sequence[tuple[int, dict[str, Any]]], line: int
) -> tuple[list[tuple[int, dict[str, Any]]], str]:
    """Return the rows of the group of a trajectory, and the place that its comparisons begin with."""
    if line >= len(rows):
        raise RecordError(f"{path}: has {len(rows)} trajectories, expected line {line + 1}")
    number, own = rows[line]
    group = own.get("step"), own.get("group")
    chosen = [(each, row) for each, row in rows if (row.get("step"), row.get("group")) == group]
    try:
        return chosen, place_of(decode_trajectory(own))
    except ValueError:
        return chosen, f"trajectory {number}"


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if foreign_format(path) is not None:
        yield from read_foreign(path)
        return
    for row in read_rows(path):
        if not {"turns", "tool_calls", "question"} <= row.keys():
            raise RecordError(f"{path}: neither a file of trajectories, nor one of {', '.join(readers())}")
        yield row


def _check_tokens(check: Check, record: TrajectoryRecord) -> None:
    trajectory = record.trajectory
    if not len(trajectory):
        check.add_note("some trajectories have no token ids")
        return
    if len(trajectory.turns) == 1 and trajectory.turns[0].text == trajectory.text and not trajectory.loss_mask_T.all():
        check.add_note("the turns of some trajectories are not separated: name the tokenizer in torl convert")
        return
    mismatch = None
    try:
        check_arrays(trajectory, trajectory.turns)
    except MismatchError as error:
        mismatch = str(error)
    check.add_mismatch(record, mismatch)


def _check_grade(check: Check, record: TrajectoryRecord, grader: Callable[[], Grader]) -> None:
    """Compare the last boxed answer with the reference answer, and the result with the recorded one."""
    reference = record.trajectory.prompt.problem.answer
    answer = find_answer(record.trajectory.sampled_text)
    if not reference or record.grade.failure is not None:
        check.add_note("some trajectories have no reference answer or no grade")
        return
    if answer is None and record.grade.correct and not record.trajectory.format:
        check.add_note("another library graded answers that are not boxed")
        return
    verdict = None
    if answer is not None:
        verdict = compare_exactly(reference, answer.text) or grader().grade(reference, answer.text)
    if verdict is not None and verdict.failure is not None:
        check.add_note("the grader did not decide some answers")
        return
    correct = verdict is not None and verdict.correct
    found = None if answer is None else answer.text
    check.add(
        correct == record.grade.correct,
        f"{place_of(record)}: the boxed answer {found!r} is correct: {correct}, recorded: {record.grade.correct}",
    )
