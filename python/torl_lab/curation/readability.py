"""Answers that the grader can read, judged once for all answers that differ in digits and names of variables alone."""

import asyncio
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from torl.components.grading import Grader
from torl.components.grading.verdict import read_rational
from torl.run.display.console import Console
from torl.run.records.files import append_atomically, atomic_write
from torl_lab.curation.problem_files import encode_rows

_BATCH_SIZE = 200  # answers graded between writes of the cache
_MAX_GRADERS = 64
_NUMBER = re.compile(r"(\^\s*\{?\s*-?)?(\d+)")
_VARIABLE = re.compile(r"(?<![A-Za-z\\])[abckmnpqrstuvxyz](?![A-Za-z])")  # e, i and d mean more than a variable


class AnswerShapes:
    """The shapes of answers, each with an answer that has it. Rational numbers have no shape: every one is readable."""

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}
        self.examples: list[str] = []
        """An answer of each shape."""

    def add(self, answer: str) -> int:
        """Return the index of an answer's shape, or -1 for a rational number."""
        if read_rational(answer) is not None:
            return -1
        shape = shape_of(answer)
        if shape not in self._indices:
            self._indices[shape] = len(self.examples)
            self.examples.append(answer)
        return self._indices[shape]


def shape_of(answer: str) -> str:
    """Return an answer with the same digits in its numbers, and the same letter for its variables.

    Exponents and zero remain: an exponent decides how long a comparison takes, and a zero whether a fraction is a
    number. Numbers keep their length up to three digits, as in the fraction of 12.
    """

    def digits(found: re.Match[str]) -> str:
        return found[0] if found[1] or not found[2].strip("0") else "1" * min(3, len(found[2]))

    return _VARIABLE.sub("x", _NUMBER.sub(digits, " ".join(answer.split())))


async def readable_shapes(shapes: AnswerShapes, cache: Path, console: Console) -> list[bool]:
    """Return for each shape whether the grader reads it: whether it finds an answer equal to itself within its timeout.

    The verdicts are cached in a file, so that a killed command resumes.

    Raises:
        RewardError: The grader failed. Verdicts so far are cached.
    """
    known = _read_cache(cache)
    unknown = [answer for answer in shapes.examples if answer not in known]
    if unknown:
        known |= await _grade(unknown, cache, console)
    return [known[answer] for answer in shapes.examples]


def usable_graders() -> int:
    """Return the number of grader processes for this machine: one for each core, at most 64."""
    return min(_MAX_GRADERS, len(os.sched_getaffinity(0)))


async def _grade(answers: list[str], cache: Path, console: Console) -> Mapping[str, bool]:
    readable: dict[str, bool] = {}
    workers = usable_graders()
    async with Grader(workers) as grader:
        with console.progress(f"reading answers with {workers} graders", len(answers)) as wait:
            for start in range(0, len(answers), _BATCH_SIZE):
                piece = answers[start : start + _BATCH_SIZE]
                verdicts = await asyncio.gather(
                    *(grader.grade_async(answer, answer, shortcuts=False) for answer in piece)
                )
                new = {answer: verdict.correct for answer, verdict in zip(piece, verdicts, strict=True)}
                append_atomically(
                    cache, encode_rows({"answer": answer, "readable": can} for answer, can in new.items())
                )
                readable |= new
                wait.advance(len(piece))
    return readable


def _read_cache(cache: Path) -> dict[str, bool]:
    """Read the verdicts of an earlier command and drop an incomplete last line."""
    if not cache.exists():
        return {}
    lines = cache.read_bytes().rpartition(b"\n")[0].splitlines()
    with atomic_write(cache) as file:
        file.write(b"".join(line + b"\n" for line in lines))
    return {row["answer"]: row["readable"] for row in map(json.loads, lines)}
