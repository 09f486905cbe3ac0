"""The facets of a trajectory, by which the viewer filters, counts and sorts, and its other facts in the index."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntFlag
from importlib import import_module
from typing import Any, Final
from zlib import crc32

import numpy as np
from msgspec import Struct

from torl.base.types import FinishReason, OutcomeStatus, StopReason
from torl.run.records.row_types import has_recovery

FACETS: Final = np.dtype(
    [
        ("file", "<u4"),  # number of the file in the index
        ("line", "<u4"),  # from 0
        ("offset", "<u8"),  # in bytes
        ("length", "<u4"),  # in bytes, without the end of the line
        ("step", "<i4"),
        ("set", "<u2"),  # number of the set in the index
        ("problem", "<u4"),  # number of the problem in the index
        ("group", "<u4"),  # hash of the name
        ("sample", "<u4"),
        ("flags", "<u2"),
        ("reward", "<f4"),  # with turn rewards
        ("advantage", "<f4"),  # NaN outside the batch
        ("calls", "<u2"),
        ("failed", "<u2"),  # calls that ran and failed
        ("statuses", "<u1"),  # one bit for each of STATUSES
        ("tokens", "<u4"),  # of the response
        ("sampled", "<u4"),  # tokens
        ("turns", "<u2"),
        ("finish", "<u1"),  # index in FINISHES
        ("oldest", "<i4"),  # policy version, -1 without sampled tokens
        ("newest", "<i4"),
        ("seconds", "<f4"),
    ]
)
"""The columns of the index, one record for each line of a trajectory file."""

NOT_EXECUTED: Final = "not_executed"
STATUSES: Final = (*(status.value for status in OutcomeStatus), NOT_EXECUTED)
"""Names of call outcomes, in the order of their bits: the statuses, and calls without a run."""
FINISHES: Final = (*(reason.value for reason in FinishReason), "unknown")


class Flag(IntFlag):
    """Properties of a trajectory that are true or false.

    Attributes:
        CORRECT: The answer is correct.
        VALID_FORMAT: The response has the format that the reward requires.
        ANSWERED: The response has an answer.
        GRADER_FAILURE: The grader failed.
        TRAINED: The trajectory has an advantage.
        INVENTED: The model wrote the result of a tool itself.
        RECOVERED: The response is correct, and a failed run is followed by a successful one.
        BRANCHES: The episode has several token sequences.
        DAMAGED: The line is not a trajectory.
    """

    CORRECT = 1
    VALID_FORMAT = 2
    ANSWERED = 4
    GRADER_FAILURE = 8
    TRAINED = 16
    INVENTED = 32
    RECOVERED = 64
    BRANCHES = 128
    DAMAGED = 256


FLAGS: Final[Mapping[str, Flag]] = {str(flag.name).lower(): flag for flag in Flag}
"""The flags by their names in links."""


def status_names(bits: int) -> list[str]:
    """Return the outcomes of a trajectory's calls by name."""
    return [name for index, name in enumerate(STATUSES) if bits & 1 << index]


@dataclass(frozen=True, slots=True)
class Facts:
    """The facets of a line, and the texts that are stored or searched elsewhere.

    Attributes:
        facets: Record of the facets, without those that the index knows.
        problem: Id, question and reference answer of the problem. None for a damaged line.
        text: Text of the response.
    """

    facets: np.void
    problem: tuple[str, str, str] | None
    text: str


def _record(**facets: float) -> np.void:
    """Return a record. Raises OverflowError if a number does not fit."""
    record = np.zeros(1, FACETS)
    for name, value in facets.items():
        record[name] = value
    found: np.void = record[0]
    return found


DAMAGED: Final = Facts(_record(flags=Flag.DAMAGED, advantage=np.nan, oldest=-1, newest=-1), None, "")


class _Call(Struct):
    tool: str | None
    status: str


class _IndexedTurn(Struct):
    text: str
    stop_reason: str


class _Branch(Struct):
    pass


class IndexedRow(Struct, kw_only=True):
    """The fields of a row that the index needs. The others, most of which are arrays of tokens, are skipped."""

    step: int
    group: str
    sample: int
    problem: str
    question: str = ""
    reference_answer: str = ""
    answer: Any = None
    correct: bool
    grader_failure: str | None = None
    valid_format: bool = True
    reward: float
    turn_rewards: list[float] = []
    advantage: float | None = None
    text: str
    finish_reason: str
    format: str = ""
    tool_calls: list[_Call]
    turns: list[_IndexedTurn]
    seconds: float = 0.0
    loss_mask: list[tuple[bool, int]]
    policy_versions: list[tuple[int, int]]
    branches: list[_Branch] = []


def facts_of(row: IndexedRow) -> Facts:
    """Return the facts of a row.

    Raises:
        OverflowError: A number is out of range.
    """
    outcomes = [NOT_EXECUTED if call.tool is None else call.status for call in row.tool_calls]
    succeeded = [outcome == OutcomeStatus.OK for outcome in outcomes if outcome != NOT_EXECUTED]
    versions = [version for version, _ in row.policy_versions if version >= 0]
    spans = (span for turn in row.turns for span in invented_in(turn.text, turn.stop_reason, row.format))
    flags = {
        Flag.CORRECT: row.correct,
        Flag.VALID_FORMAT: row.valid_format,
        Flag.ANSWERED: row.answer is not None,
        Flag.GRADER_FAILURE: bool(row.grader_failure),
        Flag.TRAINED: row.advantage is not None,
        Flag.INVENTED: next(spans, None) is not None,
        Flag.RECOVERED: row.correct and has_recovery(succeeded),
        Flag.BRANCHES: bool(row.branches),
    }
    facets = _record(
        step=row.step,
        group=crc32(row.group.encode("utf-8", errors="replace")),
        sample=row.sample,
        flags=sum(flag for flag, is_set in flags.items() if is_set),
        reward=row.reward + sum(row.turn_rewards),
        advantage=np.nan if row.advantage is None else row.advantage,
        calls=min(len(row.tool_calls), 0xFFFF),
        failed=min(succeeded.count(False), 0xFFFF),
        statuses=sum(1 << bit for bit, status in enumerate(STATUSES) if status in outcomes),
        tokens=sum(length for _, length in row.loss_mask),
        sampled=sum(length for is_sampled, length in row.loss_mask if is_sampled),
        turns=min(len(row.turns), 0xFFFF),
        finish=FINISHES.index(row.finish_reason if row.finish_reason in FINISHES else FINISHES[-1]),
        oldest=min(versions, default=-1),
        newest=max(versions, default=-1),
        seconds=row.seconds,
    )
    return Facts(facets, (row.problem, row.question, row.reference_answer), row.text)


def invented_in(text: str, stop_reason: str, format_name: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of a turn's text that are results which the model wrote itself."""
    # Imported here: it takes half of the viewer's start otherwise.
    results: Any = import_module("torl.components.formats.results")
    tags = results.result_tags_of(format_name)
    if tags is not None:
        yield from results.invented_results(text, tags, ends_with_call=stop_reason == StopReason.CALL)
