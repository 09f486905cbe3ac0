"""Raw problem files in; problems out that can be verified, that differ, and that no evaluation set has."""

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torl.apps.curation.raw import Questions, RawProblems
from torl.data import ProblemSource
from torl.data.contamination import EvaluationSets
from torl.data.shingles import SimilarTexts
from torl.data.writing import encode_problems, encode_rows
from torl.errors import DataError
from torl.records.files import append_atomically, atomic_write, record_errors
from torl.report.console import Console
from torl.rewards import Grader
from torl.types import Problem

_BATCH_SIZE = 200  # answers that are read before the memory is written


@dataclass(frozen=True, slots=True)
class PrepareOptions:
    """What is left out, beside what cannot be verified."""

    ngram_size: int = 13  # as GPT-3's decontamination
    similarity: float = 0.8  # of pairs of words, to an evaluation set or to an earlier problem


async def prepare(
    raw: Mapping[str, ProblemSource],
    evaluation_sets: Mapping[str, Sequence[Problem]],
    output: Path,
    options: PrepareOptions,
    console: Console,
) -> dict[str, Any]:
    """Write problems.jsonl, dropped.jsonl (with reasons), hits.jsonl (of evaluation sets) and counts.json; the counts.

    A killed command continues: which answers a grader can read is remembered in answers.jsonl.

    Args:
        raw: what gives the problems, by the name of their source, which becomes their `source` where they have none.
            They are read several times, one after the other, and none is kept in memory.
        evaluation_sets: what may not be trained on, by name.
        output: directory.
        options: see there.
        console: says how far it is.

    Raises:
        DataError: nothing is left, or ids are used twice.
        RewardError: the grader is broken.
    """
    problems = RawProblems(raw)
    with record_errors(output):
        await asyncio.to_thread(output.mkdir, parents=True, exist_ok=True)
    with console.progress("reading problems"):
        read, answers = await asyncio.to_thread(problems.survey)
    readable = await readable_answers(answers, output / "answers.jsonl", console)
    questions = Questions(problems)
    with console.progress("counting pairs of words"):
        evaluated = EvaluationSets(evaluation_sets, options.ngram_size, options.similarity, questions)
        kept = SimilarTexts(options.similarity, questions)
    reasons, sources = Counter[str](), Counter[str]()
    with (
        console.progress("comparing questions", read) as wait,
        atomic_write(output / "dropped.jsonl") as dropped,
        atomic_write(output / "hits.jsonl") as hits,
        atomic_write(output / "problems.jsonl") as chosen,
        atomic_write(output / "counts.json") as counted,
    ):

        def drop(problem: Problem, reason: str, why: str = "") -> None:
            reasons[reason] += 1
            row = {"id": problem.id, "reason": reason} | ({"because_of": why} if why else {})
            dropped.write(encode_rows([row]))

        for problem, reason in problems.with_rejection_reasons():
            wait.advance()
            if reason is not None:
                drop(problem, reason)
            elif not readable[problem.answer]:
                drop(problem, "unreadable_answer")
            elif (hit := evaluated.find_match(problem)) is not None:
                hits.write(encode_rows([asdict(hit)]))
                drop(problem, "in_evaluation_set", f"{hit.set_name}/{hit.evaluation_problem}")
            elif (near := kept.nearest(problem.question)) is not None:
                drop(problem, "near_duplicate", near[0])
            else:
                kept.add(problem.id, problem.question)
                sources[str(problem.metadata["source"])] += 1
                chosen.write(encode_problems([problem]))
        if not sources:
            raise DataError(f"no problem is left: {dict(reasons.most_common())}")
        counts = {
            "read": read,
            "kept": sources.total(),
            "dropped": dict(reasons.most_common()),
            "sources": dict(sources.most_common()),
        }
        counted.write((json.dumps(counts, indent=1) + "\n").encode())
    return counts


async def readable_answers(answers: Collection[str], memory: Path, console: Console) -> dict[str, bool]:
    """Which answers the grader can read: those that it finds equal to themselves in its time.

    Raises:
        RewardError: the grader is broken. What was read is remembered.
    """
    known = _remembered(memory) | {answer: True for answer in answers if answer.isdecimal()}
    unknown = sorted(set(answers) - known.keys())
    if not unknown:
        return known
    async with Grader() as grader:
        with console.progress("reading answers", len(unknown)) as wait:
            for start in range(0, len(unknown), _BATCH_SIZE):
                piece = unknown[start : start + _BATCH_SIZE]
                verdicts = await asyncio.gather(
                    *(grader.grade_async(answer, answer, shortcuts=False) for answer in piece)
                )
                new = {answer: verdict.correct for answer, verdict in zip(piece, verdicts, strict=True)}
                append_atomically(
                    memory, encode_rows({"answer": answer, "readable": can} for answer, can in new.items())
                )
                known |= new
                wait.advance(len(piece))
    return known


def _remembered(memory: Path) -> dict[str, bool]:
    """What an earlier command read; a last line that a kill cut is none."""
    if not memory.exists():
        return {}
    whole = memory.read_bytes().rpartition(b"\n")[0].splitlines()
    with atomic_write(memory) as file:
        file.write(b"".join(line + b"\n" for line in whole))
    return {row["answer"]: row["readable"] for row in map(json.loads, whole)}
