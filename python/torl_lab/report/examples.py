"""Sample trajectories in a report. All model output is untrusted and is escaped."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from torl.base.types import FinishReason, StopReason, Trajectory
from torl.components.formats.results import invented_results, result_tags_of
from torl.components.text.answers import find_answer, shown_reference
from torl.run.records.behaviors import cross_check, recovers, same_value
from torl.run.records.files import evaluation_files, training_files
from torl.run.records.reading import read_trajectories
from torl.run.records.rows import TrajectoryRecord

_CODE = re.compile(r"(```python[^\n`]*\n.*?(?:```(?:output)?|\Z))", re.DOTALL)
_MAX_CHARACTERS: Final = 6000
_INVENTED: Final = '<span class="badge wrong">written by the model, not run</span>'
_KINDS: Final = (
    ("fixed", "wrong before, right after"),
    ("solved", "right before and after"),
    ("failed", "wrong before and after"),
    ("regressed", "right before, wrong after"),
    ("recovered", "an error, and a later successful run (ToRL, table 5)"),
    ("corrected", "an answer that code contradicted, then a right one (ToRL, table 6)"),
)


@dataclass(frozen=True, slots=True)
class Example:
    """One problem with its first and its last response."""

    kind: str
    before: TrajectoryRecord
    after: TrajectoryRecord


def choose_examples(run_directory: Path) -> list[Example]:
    """Choose the first problem of each kind in the first evaluation set with two evaluations; kinds may be missing.

    Without such a set, choose from the problems that the first and the last training step share.
    """
    candidates = [files for files in evaluation_files(run_directory).values() if len(files) > 1]
    files = candidates[0] if candidates else training_files(run_directory)
    if len(files) < 2:
        return []
    first: dict[str, TrajectoryRecord] = {}
    for record in read_trajectories(files[0]):
        first.setdefault(record.trajectory.prompt.problem.id, record)
    examples: dict[str, Example] = {}
    for after in read_trajectories(files[-1]):
        before = first.pop(after.trajectory.prompt.problem.id, None)
        if before is not None:
            kind = {
                (False, True): "fixed",
                (True, True): "solved",
                (False, False): "failed",
                (True, False): "regressed",
            }[before.grade.correct, after.grade.correct]
            used_tool = bool(after.trajectory.tool_calls)
            if kind not in examples or (used_tool and not examples[kind].after.trajectory.tool_calls):
                examples[kind] = Example(kind, before, after)
            for behavior, shown in (("recovered", _recovered), ("corrected", _corrected)):
                if behavior not in examples and shown(after):
                    examples[behavior] = Example(behavior, before, after)
    return [examples[kind] for kind, _ in _KINDS if kind in examples]


def _recovered(record: TrajectoryRecord) -> bool:
    return recovers(record.trajectory, record.grade)


def _corrected(record: TrajectoryRecord) -> bool:
    """Whether code contradicted the answer stated before it, and the response is correct."""
    check = cross_check(record.trajectory) if record.grade.correct else None
    return check is not None and not same_value(*check)


def examples_html(examples: Sequence[Example]) -> str:
    """Return the examples as HTML, with the two responses of each side by side."""
    titles = dict(_KINDS)
    parts = []
    for example in examples:
        problem = example.before.trajectory.prompt.problem
        reference = shown_reference(problem.answer)
        parts.append(
            f'<article class="example"><h3>{escape(titles[example.kind].capitalize())}</h3>'
            f'<p class="question">{escape(problem.question)}</p>'
            f'<p class="reference">Reference answer: <code>{escape(reference)}</code> '
            f'<span class="dim">(problem {escape(problem.id)})</span></p>'
            f'<div class="pair">{_response_html("Before", example.before)}'
            f"{_response_html('After', example.after)}</div></article>"
        )
    return "\n".join(parts)


def _response_html(title: str, record: TrajectoryRecord) -> str:
    trajectory, grade = record.trajectory, record.grade
    verdict = "right" if grade.correct else "wrong"
    badges = [f'<span class="badge {verdict}">{verdict}</span>']
    if grade.failure:
        badges.append(f'<span class="badge wrong">grader {escape(grade.failure)}</span>')
    if trajectory.finish_reason is FinishReason.LENGTH:
        badges.append('<span class="badge">truncated at the token limit</span>')
    for call in trajectory.tool_calls:
        status = escape(call.outcome.status.value)
        badges.append(f'<span class="badge {"right" if call.outcome.ok else "wrong"}">run: {status}</span>')
    return (
        f'<section class="response"><h4>{title} <span class="dim">step {record.step}</span> {" ".join(badges)}</h4>'
        f"{''.join(map(_branch_html, trajectory.branches))}{_text_html(trajectory)}</section>"
    )


def _branch_html(branch: Trajectory) -> str:
    """Return an earlier token sequence of the same episode as HTML."""
    turns = "1 turn" if len(branch.turns) == 1 else f"{len(branch.turns)} turns"
    return f"<details><summary>another sequence of this episode, {turns}</summary>{_text_html(branch)}</details>"


def _text_html(trajectory: Trajectory) -> str:
    body = "".join(
        f'<span class="{kind}">{_INVENTED if kind == "invented" else ""}{escape(text)}</span>'
        for kind, text in response_segments(trajectory)
    )
    return f"<pre>{body}</pre>"


def response_segments(trajectory: Trajectory) -> list[tuple[str, str]]:
    """Split a response into ("sampled" | "code" | "answer" | "invented" | "observation", text) segments.

    "invented" is a result that the model has written itself (`torl.components.formats.results`). A long response is
    truncated, with a last segment ("note", number of missing characters).
    """
    segments: list[tuple[str, str]] = []
    position = 0
    text = trajectory.text
    observations = {call.start: call.observation for call in trajectory.tool_calls}  # one per turn
    observations |= {message.start: message.observation for message in trajectory.user_messages}
    for _, observation in sorted(observations.items()):
        # The record has the complete observation; at the response limit the text has only its beginning.
        start = text.find(observation, position)
        if start < 0 or not observation:
            continue
        segments += _turn_segments(text[position:start], trajectory.format, ends_with_call=True)
        segments.append(("observation", observation))
        position = start + len(observation)
    ends_with_call = bool(trajectory.turns) and trajectory.turns[-1].stop_reason is StopReason.CALL
    segments += _turn_segments(text[position:], trajectory.format, ends_with_call=ends_with_call)
    last_answer = max((i for i, (kind, _) in enumerate(segments) if kind == "answer"), default=-1)
    shown = [("sampled" if kind == "answer" and i != last_answer else kind, s) for i, (kind, s) in enumerate(segments)]
    return list(_cut(shown))


def _turn_segments(text: str, format_name: str, *, ends_with_call: bool) -> Iterator[tuple[str, str]]:
    tags, position = result_tags_of(format_name), 0
    for start, stop in invented_results(text, tags, ends_with_call=ends_with_call) if tags else ():
        yield from _sampled_segments(text[position:start])
        yield "invented", text[start:stop]
        position = stop
    yield from _sampled_segments(text[position:])


def _sampled_segments(text: str) -> Iterator[tuple[str, str]]:
    for piece in _CODE.split(text):
        if piece.startswith("```python"):
            yield "code", piece
            continue
        answer = find_answer(piece)
        if answer is not None:
            yield "sampled", piece[: answer.start]
            yield "answer", piece[answer.start : answer.stop]
            piece = piece[answer.stop :]
        if piece:
            yield "sampled", piece


def _cut(segments: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    remaining = _MAX_CHARACTERS
    for kind, text in segments:
        if len(text) > remaining:
            yield kind, text[:remaining]
            missing = sum(len(other) for _, other in segments) - _MAX_CHARACTERS
            yield "note", f"\n[{missing} more characters]"
            return
        yield kind, text
        remaining -= len(text)
