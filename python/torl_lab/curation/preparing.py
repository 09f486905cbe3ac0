"""Prepare raw problems: keep verifiable problems, without near duplicates and evaluation problems.

The problems are read once. Problems that pass the checks of their text are in a temporary file, and their word pairs in
memory, until they are compared with each other and with the evaluation sets.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from torl.base.errors import DataError
from torl.base.types import Problem
from torl.components.data.files import InvalidRowError, SkippedRowError
from torl.components.data.values import row_id
from torl.components.grading import Grader
from torl.components.grading.verdict import compare_exactly
from torl.components.text.unread_fields import UnreadFields
from torl.run.display.console import Console
from torl.run.records.files import atomic_write, record_errors
from torl_lab.curation.candidates import CandidateFile, DroppedRows
from torl_lab.curation.contamination import EvaluationSets
from torl_lab.curation.problem_files import encode_rows
from torl_lab.curation.similarity import Shingles, SimilarTexts, without_letters, words_of
from torl_lab.curation.verifiability import (
    AnswerShapes,
    normalize_answer,
    readable_shapes,
    rejection_reason,
    usable_graders,
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


@dataclass(frozen=True, slots=True)
class RawSource:
    """A source of raw problems."""

    read: Callable[[], Iterator[Problem | InvalidRowError]]
    """Function that reads the rows."""
    text_answers: bool = False
    """Whether answers are plain text instead of mathematics."""


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
        raw: Sources by name. The name becomes the `source` of problems without one and, if there are several sources,
            the beginning of their ids.
        evaluation_sets: Evaluation problems by set name.
        output: Output directory.
        options: Options of the checks.
        console: Console for progress.

    Returns:
        The content of counts.json.

    Raises:
        DataError: No problem is left, a source cannot be read, or a row is invalid and `options.strict` is set.
        RewardError: The grader failed.
    """
    with record_errors(output):
        await asyncio.to_thread(output.mkdir, parents=True, exist_ok=True)
    with ExitStack() as stack:
        dropped = DroppedRows(stack.enter_context(atomic_write(output / "dropped.jsonl")))
        candidates = stack.enter_context(CandidateFile(output / "candidates.partial"))
        matches = stack.enter_context(atomic_write(output / "matches.jsonl"))
        selected = stack.enter_context(atomic_write(output / "problems.jsonl"))
        reading = _Reading(candidates, dropped, options)
        for problems in evaluation_sets.values():
            for problem in problems:
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
        conflicting = await conflicting_problems(candidates, console)
        readable = await readable_shapes(reading.shapes, output / "answers.jsonl", console)
        with console.progress("indexing questions"):
            similar = SimilarTexts(options.similarity_threshold, reading.shingles)
            evaluated = EvaluationSets(evaluation_sets, options.ngram_size, similar)
        verdicts = _Verdicts(readable, conflicting, similar, evaluated)
        kept = await _compare(candidates, verdicts, dropped, (matches, selected), console)
    counts = {
        "read": reading.rows.total(),
        "kept": kept.total(),
        "dropped": dict(dropped.counts.most_common()),
        "sources": dict(kept.most_common()),
        "rows": dict(reading.rows),
        "examples": dropped.examples,
        "metadata": dict(reading.fields.counts),
    }
    with atomic_write(output / "counts.json") as counted:
        counted.write((json.dumps(counts, indent=1, ensure_ascii=False) + "\n").encode())
    if not kept:
        raise DataError(
            f"no problem is left of {counts['read']}; see {output / 'dropped.jsonl'}\n{format_examples(counts)}"
        )
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
        self.fields.add([name for name, value in item.metadata.items() if value is not None])
        problem = replace(item, id=f"{prefix}{item.id}", metadata={"source": source, **item.metadata})
        reason = rejection_reason(problem, text_answers=text_answers, any_script=self._options.any_script)
        if reason is not None:
            self._dropped.add(problem.id, reason, f"{problem.question[:100]} / {problem.answer[:60]}")
            return
        if not text_answers:
            problem = replace(problem, answer=normalize_answer(problem.answer))
        words = words_of(problem.question)
        self.shingles.add(without_letters(words))
        if text_answers:
            self._candidates.add(problem, -1, ())
        else:
            self._candidates.add(problem, self.shapes.add(problem.answer), words)


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """Results of the checks of all candidates, and the indices for their comparison."""

    readable: Sequence[bool]
    """Whether the grader reads the answers of each shape."""
    conflicting: Collection[int]
    """Candidates whose answers contradict each other."""
    similar: SimilarTexts
    evaluated: EvaluationSets


async def _compare(
    candidates: CandidateFile,
    verdicts: _Verdicts,
    dropped: DroppedRows,
    outputs: tuple[Any, Any],
    console: Console,
) -> Counter[str]:
    """Write the problems that are left, and return their numbers by source."""
    matches, selected = outputs
    evaluated, similar = verdicts.evaluated, verdicts.similar
    first, kept = len(evaluated), Counter[str]()
    with console.progress("counting phrases", len(candidates)) as wait:
        async for index, line in _interruptible(enumerate(candidates.lines())):
            wait.advance()
            if evaluated.may_share(first + index):
                evaluated.count_phrases(words_of(json.loads(line)["problem"]))
        evaluated.drop_phrases()
    with console.progress("comparing questions", len(candidates)) as wait:
        async for index, line in _interruptible(enumerate(candidates.lines())):
            wait.advance()
            shape, text = candidates.shape(index), first + index
            unreadable = shape >= 0 and not verdicts.readable[shape]
            if unreadable or index in verdicts.conflicting:
                problem = json.loads(line)
                reason = "unreadable_answer" if unreadable else "conflicting_answers"
                dropped.add(problem["id"], reason, f"{problem['problem'][:80]} / {problem['answer'][:40]}")
                continue
            match = None
            if evaluated.may_share(text):
                problem = json.loads(line)
                match = evaluated.find_ngram(problem["id"], words_of(problem["problem"]))
            neighbors = [] if match else similar.neighbors(text)
            if neighbors:
                match = evaluated.near_match(candidates.read(index)["id"], neighbors)
            if match is not None:
                matches.write(encode_rows([asdict(match)]))
                dropped.add(
                    match.problem, "in_evaluation_set", because_of=f"{match.set_name}/{match.evaluation_problem}"
                )
            elif neighbors:
                near = candidates.read(neighbors[0][1] - first)["id"]
                dropped.add(candidates.read(index)["id"], "near_duplicate", because_of=near)
            else:
                similar.add(text)
                kept[candidates.source(index)] += 1
                selected.write(line)
    return kept


async def conflicting_problems(candidates: CandidateFile, console: Console) -> set[int]:
    """Return the problems of the same question whose answers are not all equal.

    Raises:
        RewardError: The grader failed.
    """
    groups = list(candidates.answers_by_question())
    answers = [[str(candidates.read(index)["answer"]) for index in group] for group in groups]
    pairs = list(dict.fromkeys((first, other) for first, *others in answers for other in others))
    exact = [compare_exactly(*pair) for pair in pairs]
    verdicts = [verdict for verdict in exact if verdict is not None]
    if len(verdicts) < len(pairs):
        with console.progress(f"comparing {len(pairs):,} answers to repeated questions"):
            async with Grader(usable_graders()) as grader:
                verdicts = await grader.grade_all(pairs)
    equal = {pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict.correct}
    return {
        index
        for group, (first, *others) in zip(groups, answers, strict=True)
        if not all((first, other) in equal for other in others)
        for index in group
    }


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
