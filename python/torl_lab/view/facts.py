"""The facts of a trajectory that the index has: facets, problem, and the text whose words are found."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final
from zlib import crc32

import numpy as np

from torl.base.types import OutcomeStatus, StopReason
from torl_lab.view.facets import FACETS, FINISHES, NOT_EXECUTED, STATUSES, Flag


@dataclass(frozen=True, slots=True)
class Facts:
    """The facets of a line, and the texts that are stored or searched elsewhere.

    Attributes:
        facets: Facets by name. Missing ones are 0.
        problem: Id, question and reference answer of the problem. None for a damaged line.
        text: Text of the response.
    """

    facets: dict[str, int | float]
    problem: tuple[str, str, str] | None
    text: str


DAMAGED: Final = Facts({"flags": int(Flag.DAMAGED), "advantage": float("nan"), "oldest": -1, "newest": -1}, None, "")


def facts_of(row: Mapping[str, Any]) -> Facts:
    """Return the facts of a row.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: The row is not a trajectory.
    """
    calls, ran = row["tool_calls"], [call["status"] for call in row["tool_calls"] if call["tool"] is not None]
    failed = [status != OutcomeStatus.OK for status in ran]
    lengths = [(bool(value), int(length)) for value, length in row["loss_mask"]]
    versions = [int(version) for version, _ in row["policy_versions"] if version >= 0]
    advantage = row.get("advantage")
    correct = bool(row["correct"])
    recovered = correct and True in failed and False in failed[failed.index(True) :]
    flags = {
        Flag.CORRECT: correct,
        Flag.VALID_FORMAT: bool(row.get("valid_format", True)),
        Flag.ANSWERED: row.get("answer") is not None,
        Flag.GRADER_FAILURE: bool(row.get("grader_failure")),
        Flag.TRAINED: advantage is not None,
        Flag.INVENTED: any(True for turn in row["turns"] for _ in invented_in(turn, row.get("format", ""))),
        Flag.RECOVERED: recovered,
        Flag.BRANCHES: bool(row.get("branches")),
    }
    finish = row["finish_reason"]
    facets = {
        "step": int(row["step"]),
        "group": crc32(str(row["group"]).encode("utf-8", errors="replace")),
        "sample": int(row["sample"]),
        "flags": sum(flag for flag, is_set in flags.items() if is_set),
        "reward": float(row["reward"]) + sum(map(float, row.get("turn_rewards", ()))),
        "advantage": float("nan") if advantage is None else float(advantage),
        "calls": min(len(calls), 0xFFFF),
        "failed": min(sum(failed), 0xFFFF),
        "statuses": _status_bits(ran, len(calls) > len(ran)),
        "tokens": sum(length for _, length in lengths),
        "sampled": sum(length for value, length in lengths if value),
        "turns": min(len(row["turns"]), 0xFFFF),
        "finish": FINISHES.index(finish if finish in FINISHES else FINISHES[-1]),
        "oldest": min(versions, default=-1),
        "newest": max(versions, default=-1),
        "seconds": float(row.get("seconds", 0.0)),
    }
    _check_ranges(facets)
    return Facts(facets, problem_of(row), str(row["text"]))


def problem_of(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the id, the question and the reference answer of a row's problem."""
    return str(row["problem"]), str(row.get("question", "")), str(row.get("reference_answer", ""))


def invented_in(turn: Mapping[str, Any], format_name: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of a turn's text that are results which the model wrote itself."""
    results = _results()
    tags = results.result_tags_of(format_name)
    if tags is not None:
        yield from results.invented_results(turn["text"], tags, ends_with_call=turn["stop_reason"] == StopReason.CALL)


@cache
def _results() -> Any:
    """Import the formats when they are needed first: they take half of the viewer's start otherwise."""
    return import_module("torl.components.formats.results")


def _status_bits(statuses: Iterable[str], some_not_executed: bool) -> int:
    known: Sequence[str] = STATUSES
    bits = {known.index(status) for status in statuses if status in known}
    return sum(1 << bit for bit in bits) | some_not_executed << known.index(NOT_EXECUTED)


def _check_ranges(facets: Mapping[str, int | float]) -> None:
    for name, value in facets.items():
        kind = FACETS[name]
        if kind.kind != "f":
            limits = np.iinfo(kind)
            if not limits.min <= value <= limits.max:
                raise ValueError(f"{name} = {value} is out of range")
