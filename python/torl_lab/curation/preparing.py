"""Prepare raw problems: keep verifiable problems, without near duplicates and evaluation problems.

The problems are read once. Problems that pass the checks of their text are in a temporary file, and their word pairs in
memory, until they are compared with each other and with the evaluation sets.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

from torl.base.errors import DataError
from torl.base.types import Problem
from torl.base.types.problems import SOLUTIONS, TESTS
from torl.components.data.rows import InvalidRowError, SkippedRowError, row_id
from torl.components.text.sources import UnreadFields
from torl.run.display.console import Console
from torl.run.records.files import atomic_write, record_errors
from torl_lab.curation.candidates import CandidateFile, DroppedRows
from torl_lab.curation.contamination import EvaluationIndex
from torl_lab.curation.problem_files import encode_rows
from torl_lab.curation.similarity import Shingles, SimilarTexts, without_letters, words_of
from torl_lab.curation.solutions import keep_solved
from torl_lab.curation.verifiability import (
    AnswerShapes,
    conflicting_problems,
    normalize_answer,
    readable_shapes,
    rejection_reason,
)

_YIELD_EVERY = 500  # rows between two looks at an interrupt
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class PrepareOptions:
    """Options of the checks, of deduplication and of decontamination."""

    ngram_size: int = 13
    """Number of words of a shared n-gram, as in GPT-3's decontamination."""
    similarity_threshold: float = 0.8
    """Minimum Jaccard similarity of word pairs of near duplicates."""
    any_script: bool = False
    """Whether questions in all scripts are kept, not only in Latin."""
    strict: bool = False
    """Whether an invalid row is an error."""
    check_solutions: bool = False
    """Whether problems with tests that their own solutions fail are dropped."""


@dataclass(frozen=True, slots=True)
class RawSource:
    """A source of raw problems."""

    read: Callable[[], Iterator[Problem | InvalidRowError]]
    """Function that reads the rows."""
    text_answers: bool = False
    """Whether answers are plain text instead of mathematics."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Origin of the problems, for counts.json."""


async def prepare(
    raw: Mapping[str, RawSource],
    evaluation_sets: Mapping[str, Sequence[Problem]],
    output: Path,
    options: PrepareOptions,
    console: Console,
) -> dict[str, Any]:
    """Write problems.jsonl, dropped.jsonl (with reasons), matches.jsonl (with evaluation sets) and counts.json.

    The name of a source becomes the `source` of problems without one and, if there are several sources, the beginning
    of their ids. An interrupted command resumes: answers.jsonl caches which answers the grader can read, and
    solutions.jsonl which problems with tests their own solutions solve. The content of counts.json is returned.

    Raises:
        DataError: No problem is left, a source cannot be read, or a row is invalid and `options.strict` is set.
        RewardError: The grader failed.
        SandboxError: The sandbox that runs solutions failed.
    """
    with record_errors(output):
        await asyncio.to_thread(output.mkdir, parents=True, exist_ok=True)
    with ExitStack() as stack:
        dropped = DroppedRows(stack.enter_context(atomic_write(output / "dropped.jsonl")))
        candidates = stack.enter_context(CandidateFile(output / "candidates.partial"))
        matches = stack.enter_context(atomic_write(output / "matches.jsonl"))
        selected = stack.enter_context(atomic_write(output / "problems.jsonl"))
        reading = _Reading(candidates, dropped, options)
        for problem in chain.from_iterable(evaluation_sets.values()):
            reading.shingles.add(without_letters(words_of(problem.question)))
        with console.progress("reading problems") as wait:
            for name, source in raw.items():
                prefix = f"{name}/" if len(raw) > 1 else ""
                async for item in _interruptible(source.read()):
                    wait.advance()
                    reading.rows[name] += 1
                    reading.add(item, name, prefix, text_answers=source.text_answers)
        if reading.fields:
            console.line(f"{reading.fields} (kept as metadata)")
        candidates.flush()
        rejected = dict.fromkeys(await conflicting_problems(candidates, console), "conflicting_answers")
        readable = await readable_shapes(reading.shapes, output / "answers.jsonl", console)
        for index, shape in enumerate(candidates.shapes):
            if shape >= 0 and not readable[shape]:
                rejected[index] = "unreadable_answer"
        with console.progress("indexing questions"):
            similar = SimilarTexts(options.similarity_threshold, reading.shingles)
            evaluated = EvaluationIndex(evaluation_sets, options.ngram_size, similar)
        kept, solved = Counter[str](), Counter[str]()
        chosen = stack.enter_context(TemporaryFile(dir=output)) if options.check_solutions else selected
        async for index in _accepted(candidates, rejected, similar, evaluated, dropped, matches, console):
            kept[candidates.sources[index]] += 1
            chosen.write(candidates.line(index))
        if options.check_solutions:
            cache = output / "solutions.jsonl"
            kept, solved = await keep_solved(chosen, kept.total(), selected, dropped, cache, console)
    counts = {
        "read": reading.rows.total(),
        "kept": kept.total(),
        "dropped": dict(dropped.counts.most_common()),
        "sources": dict(kept.most_common()),
        "rows": dict(reading.rows),
        "examples": dropped.examples,
        "metadata": dict(reading.fields.counts),
        "files": {name: {**source.origin, "rows": reading.rows[name]} for name, source in raw.items()},
        "solutions": dict(solved.most_common()),
    }
    with atomic_write(output / "counts.json") as counted:
        counted.write((json.dumps(counts, indent=1, ensure_ascii=False) + "\n").encode())
    if not kept:
        see = output / "dropped.jsonl"
        raise DataError(f"no problem is left of {counts['read']}; see {see}\n{format_examples(counts)}")
    return counts


class _Reading:
    """The problems that were read, and the checks of their text."""

    def __init__(self, candidates: CandidateFile, dropped: DroppedRows, options: PrepareOptions) -> None:
        self.rows, self.fields = Counter[str](), UnreadFields()
        self.shapes, self.shingles = AnswerShapes(), Shingles()
        self._candidates, self._dropped, self._options = candidates, dropped, options

    def add(self, item: Problem | InvalidRowError, source: str, prefix: str, *, text_answers: bool) -> None:
        """Check a row, and add it to the candidates or to the dropped rows.

        Raises:
            InvalidRowError: The row is invalid and the options are strict.
        """
        if isinstance(item, InvalidRowError):
            if self._options.strict and not isinstance(item, SkippedRowError):
                raise item
            message = str(item).removeprefix(f"{item.location}: ")
            self._dropped.add(f"{prefix}{row_id(item.location)}", item.reason, because_of=message)
            return
        known = (TESTS, SOLUTIONS)
        self.fields.add([name for name, value in item.metadata.items() if value is not None and name not in known])
        problem = replace(item, id=f"{prefix}{item.id}", metadata={"source": source, **item.metadata})
        reason = rejection_reason(problem, text_answers=text_answers, any_script=self._options.any_script)
        if reason is not None:
            self._dropped.add(problem.id, reason, f"{problem.question[:100]} / {problem.answer[:60]}")
            return
        text_answers = text_answers or TESTS in problem.metadata
        if not text_answers:
            problem = replace(problem, answer=normalize_answer(problem.answer))
        words = words_of(problem.question)
        self.shingles.add(without_letters(words))
        if text_answers:
            self._candidates.add(problem, -1, ())
        else:
            self._candidates.add(problem, self.shapes.add(problem.answer), words)


async def _accepted(
    candidates: CandidateFile,
    rejected: Mapping[int, str],
    similar: SimilarTexts,
    evaluated: EvaluationIndex,
    dropped: DroppedRows,
    matches: Any,
    console: Console,
) -> AsyncIterator[int]:
    """Yield the problems that are left: not rejected, not in an evaluation set, and not similar to an earlier one."""
    first, indices = len(evaluated), range(len(candidates))
    with console.progress("counting phrases", len(candidates)) as wait:
        async for index in _interruptible(indices):
            wait.advance()
            if evaluated.may_share(first + index):
                evaluated.count_phrases(words_of(candidates.read(index)["problem"]))
        evaluated.drop_phrases()
    with console.progress("comparing questions", len(candidates)) as wait:
        async for index in _interruptible(indices):
            wait.advance()
            if index in rejected:
                problem = candidates.read(index)
                dropped.add(problem["id"], rejected[index], f"{problem['problem'][:80]} / {problem['answer'][:40]}")
                continue
            match = None
            if evaluated.may_share(first + index):
                problem = candidates.read(index)
                match = evaluated.find_ngram(problem["id"], words_of(problem["problem"]))
            neighbors = [] if match else similar.neighbors(first + index)
            if neighbors:
                match = evaluated.near_match(candidates.read(index)["id"], neighbors)
            if match is not None:
                matches.write(encode_rows([asdict(match)]))
                cause = f"{match.set_name}/{match.evaluation_problem}"
                dropped.add(match.problem, "in_evaluation_set", because_of=cause)
            elif neighbors:
                near = candidates.read(neighbors[0][1] - first)["id"]
                dropped.add(candidates.read(index)["id"], "near_duplicate", because_of=near)
            else:
                similar.add(first + index)
                yield index


async def _interruptible(items: Iterable[_Item]) -> AsyncIterator[_Item]:
    """Yield items, and let the event loop handle an interrupt from time to time."""
    for number, item in enumerate(items):
        if number % _YIELD_EVERY == 0:
            await asyncio.sleep(0)
        yield item


def format_examples(counts: Mapping[str, Any]) -> str:
    """Return the counts of dropped rows, a line for each reason, with three examples."""
    lines = []
    for reason, count in counts["dropped"].items():
        lines.append(f"{count:>11,}  {reason}")
        lines += [f"{'':>13}{example}" for example in counts["examples"][reason]]
    return "\n".join(lines)
