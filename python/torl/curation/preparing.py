"""Raw problem files in; problems out that can be verified, that differ, and that no evaluation set has."""

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torl.data.cleaning import normalized_answer, why_not_verifiable
from torl.data.contamination import EvaluationSets
from torl.data.shingles import SimilarTexts
from torl.data.writing import encode_problems, encode_rows
from torl.errors import DataError
from torl.records.files import append_whole, explained, replacing
from torl.report.console import Console
from torl.reward import Grader
from torl.types import Problem

_AT_ONCE = 200  # answers that are read before the memory is written


@dataclass(frozen=True, slots=True)
class PrepareOptions:
    """What is left out, beside what cannot be verified."""

    ngram_words: int = 13  # as GPT-3's decontamination
    similarity: float = 0.8  # of pairs of words, to an evaluation set or to an earlier problem


async def prepare(
    raw: Mapping[str, Iterable[Problem]],
    evaluation_sets: Mapping[str, Sequence[Problem]],
    output: Path,
    options: PrepareOptions,
    console: Console,
) -> dict[str, Any]:
    """Write problems.jsonl, dropped.jsonl (with reasons), hits.jsonl (of evaluation sets) and counts.json; the counts.

    A killed command continues: which answers a grader can read is remembered in answers.jsonl.

    Args:
        raw: problems by the name of their source, which becomes their `source` where they have none.
        evaluation_sets: what may not be trained on, by name.
        output: directory.
        options: see there.
        console: says how far it is.

    Raises:
        DataError: nothing is left, or ids are used twice.
        RewardError: the grader is broken.
    """
    problems = _gathered(raw)
    dropped: list[dict[str, str]] = []

    def drop(problem: Problem, reason: str, why: str = "") -> None:
        dropped.append({"id": problem.id, "reason": reason} | ({"because_of": why} if why else {}))

    verifiable = []
    for problem in problems:
        reason = why_not_verifiable(problem)
        if reason is None:
            verifiable.append(replace(problem, answer=normalized_answer(problem.answer)))
        else:
            drop(problem, reason)
    with explained(output):
        await asyncio.to_thread(output.mkdir, parents=True, exist_ok=True)
    readable = await readable_answers({problem.answer for problem in verifiable}, output / "answers.jsonl", console)
    questions = [problem.question for problem in verifiable]
    evaluated = EvaluationSets(evaluation_sets, options.ngram_words, options.similarity, questions)
    kept, hits = SimilarTexts(options.similarity, questions), []
    chosen: list[Problem] = []
    with console.wait("comparing questions", len(verifiable)) as wait:
        for problem in verifiable:
            wait.advance()
            if not readable[problem.answer]:
                drop(problem, "unreadable_answer")
            elif (hit := evaluated.hit(problem)) is not None:
                hits.append(asdict(hit))
                drop(problem, "in_evaluation_set", f"{hit.set_name}/{hit.evaluated}")
            elif (near := kept.nearest(problem.question)) is not None:
                drop(problem, "near_duplicate", near[0])
            else:
                kept.add(problem.id, problem.question)
                chosen.append(problem)
    if not chosen:
        raise DataError("no problem is left: see the reasons in dropped.jsonl")
    counts = {
        "read": len(problems),
        "kept": len(chosen),
        "dropped": dict(Counter(row["reason"] for row in dropped).most_common()),
        "sources": dict(Counter(str(problem.metadata["source"]) for problem in chosen).most_common()),
    }
    contents = {
        "dropped.jsonl": encode_rows(dropped),
        "hits.jsonl": encode_rows(hits),
        "counts.json": (json.dumps(counts, indent=1) + "\n").encode(),
        "problems.jsonl": encode_problems(chosen),
    }
    for name, data in contents.items():
        with replacing(output / name) as file:
            file.write(data)
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
        with console.wait("reading answers", len(unknown)) as wait:
            for start in range(0, len(unknown), _AT_ONCE):
                piece = unknown[start : start + _AT_ONCE]
                verdicts = await asyncio.gather(
                    *(grader.grade_async(answer, answer, shortcuts=False) for answer in piece)
                )
                new = {answer: verdict.correct for answer, verdict in zip(piece, verdicts, strict=True)}
                append_whole(memory, encode_rows({"answer": answer, "readable": can} for answer, can in new.items()))
                known |= new
                wait.advance(len(piece))
    return known


def _remembered(memory: Path) -> dict[str, bool]:
    """What an earlier command read; a last line that a kill cut is none."""
    if not memory.exists():
        return {}
    whole = memory.read_bytes().rpartition(b"\n")[0].splitlines()
    with replacing(memory) as file:
        file.write(b"".join(line + b"\n" for line in whole))
    return {row["answer"]: row["readable"] for row in map(json.loads, whole)}


def _gathered(raw: Mapping[str, Iterable[Problem]]) -> list[Problem]:
    """All problems, each with its source; an id that several sources have gets the source's name in front."""
    problems = [
        replace(problem, metadata={"source": name, **problem.metadata}) if "source" not in problem.metadata else problem
        for name, members in raw.items()
        for problem in members
    ]
    counts = Counter(problem.id for problem in problems)
    named = [
        replace(problem, id=f"{problem.metadata['source']}/{problem.id}") if counts[problem.id] > 1 else problem
        for problem in problems
    ]
    twice = [name for name, count in Counter(problem.id for problem in named).items() if count > 1]
    if twice:
        raise DataError(f"the id {twice[0]!r} is used twice in one source; {len(twice)} ids are")
    return named
