"""Prepare raw problems: keep verifiable problems, without near duplicates and evaluation problems."""

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torl.apps.curation.problem_files import (
    Questions,
    RawProblems,
    RawSource,
    Rejection,
    encode_problems,
    encode_rows,
)
from torl.apps.curation.selecting import count_reasons
from torl.apps.curation.similarity import EvaluationSets, SimilarTexts
from torl.errors import DataError
from torl.records.files import append_atomically, atomic_write, record_errors
from torl.report.console import Console
from torl.rewards import Grader
from torl.types import Problem

_BATCH_SIZE = 200  # answers graded between writes of the cache


@dataclass(frozen=True, slots=True)
class PrepareOptions:
    """Options of deduplication and decontamination."""

    ngram_size: int = 13
    """Number of words of a shared n-gram, as in GPT-3's decontamination."""
    similarity_threshold: float = 0.8
    """Minimum Jaccard similarity of word pairs of near duplicates."""


async def prepare(
    raw: Mapping[str, RawSource],
    evaluation_sets: Mapping[str, Sequence[Problem]],
    output: Path,
    options: PrepareOptions,
    console: Console,
) -> dict[str, Any]:
    """Write problems.jsonl, dropped.jsonl (with reasons), matches.jsonl (with evaluation sets) and counts.json.

    An interrupted command resumes: answers.jsonl caches which answers the grader can read.

    Args:
        raw: Problem sources by name. The name becomes the `source` of problems without one. Sources are read several
            times and not kept in memory.
        evaluation_sets: Evaluation problems by set name.
        output: Output directory.
        options: Options of deduplication and decontamination.
        console: Console for progress.

    Returns:
        The content of counts.json.

    Raises:
        DataError: No problem is left, or all rows of a source are invalid.
        RewardError: The grader failed.
    """
    problems = RawProblems(raw)
    with record_errors(output):
        await asyncio.to_thread(output.mkdir, parents=True, exist_ok=True)
    with console.progress("reading problems"):
        survey = await asyncio.to_thread(problems.survey)
    problems.conflicting = await contradictions(survey.ambiguous)
    readable = await readable_answers(survey.answers, output / "answers.jsonl", console)
    questions = Questions(problems)
    with console.progress("counting word pairs"):
        evaluated = EvaluationSets(evaluation_sets, options.ngram_size, options.similarity_threshold, questions)
        kept = SimilarTexts(options.similarity_threshold, questions)
    reasons, sources = Counter[str](), Counter[str]()
    with (
        console.progress("comparing questions", survey.rows) as wait,
        atomic_write(output / "dropped.jsonl") as dropped,
        atomic_write(output / "matches.jsonl") as matches,
        atomic_write(output / "problems.jsonl") as selected,
        atomic_write(output / "counts.json") as counted,
    ):

        def drop(rejection: Rejection) -> None:
            reasons[rejection.reason] += 1
            dropped.write(encode_rows([{name: value for name, value in asdict(rejection).items() if value}]))

        for problem in problems.checked():
            wait.advance()
            if isinstance(problem, Rejection):
                drop(problem)
            elif not readable[problem.answer]:
                drop(Rejection(problem.id, "unreadable_answer"))
            elif (match := evaluated.find_match(problem)) is not None:
                matches.write(encode_rows([asdict(match)]))
                drop(Rejection(problem.id, "in_evaluation_set", f"{match.set_name}/{match.evaluation_problem}"))
            elif (near := kept.nearest(problem.question)) is not None:
                drop(Rejection(problem.id, "near_duplicate", near[0]))
            else:
                kept.add(problem.id, problem.question)
                sources[str(problem.metadata["source"])] += 1
                selected.write(encode_problems([problem]))
        counts = {
            "read": survey.rows,
            "kept": sources.total(),
            "dropped": dict(reasons.most_common()),
            "sources": dict(sources.most_common()),
        }
        counted.write((json.dumps(counts, indent=1) + "\n").encode())
    if not sources:
        found = count_reasons(dict(reasons.most_common()))
        raise DataError(f"no problem is left of {survey.rows} ({found}); see {output / 'dropped.jsonl'}")
    return counts


async def contradictions(ambiguous: Mapping[int, Sequence[str]]) -> set[int]:
    """Return the keys of answers that are not all equal to their first one.

    Raises:
        RewardError: The grader failed.
    """
    pairs = [(key, first, other) for key, (first, *others) in ambiguous.items() for other in others]
    if not pairs:
        return set()
    async with Grader() as grader:
        verdicts = await grader.grade_all((first, other) for _, first, other in pairs)
    return {key for (key, _, _), verdict in zip(pairs, verdicts, strict=True) if not verdict.correct}


async def readable_answers(answers: Collection[str], cache: Path, console: Console) -> dict[str, bool]:
    """Return which answers the grader can read: those that it finds equal to themselves within its timeout.

    Raises:
        RewardError: The grader failed. Verdicts so far are cached.
    """
    known = _read_cache(cache) | {answer: True for answer in answers if answer.isdecimal()}
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
                    cache, encode_rows({"answer": answer, "readable": can} for answer, can in new.items())
                )
                known |= new
                wait.advance(len(piece))
    return known


def _read_cache(cache: Path) -> dict[str, bool]:
    """Read the verdicts of an earlier command and drop an incomplete last line."""
    if not cache.exists():
        return {}
    lines = cache.read_bytes().rpartition(b"\n")[0].splitlines()
    with atomic_write(cache) as file:
        file.write(b"".join(line + b"\n" for line in lines))
    return {row["answer"]: row["readable"] for row in map(json.loads, lines)}
