"""Find problems that cannot be verified, by their text and by the grader, and normalize answers.

The grader judges once for all answers that differ in digits and names of variables alone.
"""

import asyncio
import os
import re
from pathlib import Path

from torl.base.types import ALTERNATIVE, Problem
from torl.base.types.problems import TESTS
from torl.components.grading import Grader
from torl.components.grading.notation import split_choice
from torl.components.grading.verdict import MAX_ANSWER_CHARACTERS, compare_exactly, read_rational
from torl.run.display.console import Console
from torl.run.records.files import append_atomically
from torl_lab.curation.candidates import CandidateFile
from torl_lab.curation.problem_files import encode_rows, read_appended

MAX_QUESTION_CHARACTERS = 20_000
"""Limit on the characters of a question. No template's prompt limit admits a longer one."""

# "Prove that ..." requests a proof; "Find x and prove that it is the only one" has an answer.
_ENGLISH, _RUSSIAN, _CHINESE = "prove|show|demonstrate|verify|justify", "докажите|доказать", "证明|證明|求证|求證"
_PROOF_WORDS = "|".join([_ENGLISH, _RUSSIAN, _CHINESE]).split("|")
_PROOF = re.compile(rf"\b(?:{_ENGLISH})\b(?:\s+that\b|\s*:)|\b(?:{_RUSSIAN})\b|{_CHINESE}", re.IGNORECASE)
_ASKS = re.compile(
    r"\?|\b(?:find|determine|compute|calculate|evaluate|what|how many|how much|which|solve|express|simplify|give)\b|"
    r"\b(?:найдите|найти|определите|вычислите|сколько)\b|\uff1f|求(?![证證])",
    re.IGNORECASE,
)
_NO_ANSWER = frozenset({"", "proof", "notfound", "not found", "none", "n/a", "nan", "null", "see solution", "omitted"})
# The second part of a question, a search for which is fast, and both parts.
_PARTS = {
    hint: re.compile("|".join(rf"(?:^|[.;:?\n]){first}.*?[.;:?,\n]\s*{second}" for first, second in parts), re.DOTALL)
    for hint, parts in {
        "b)": [(r"\s*\(?a\)", r"\(?b\)")],
        "(ii)": [(r"\s*\(i\)", r"\(ii\)")],
        "(2)": [(r"\s*\(1\)", r"\(2\)"), (r"[^.;:?\n]*,\s*\(1\)\s*[A-Za-z]", r"\(2\)\s*[A-Za-z]")],
        "part 2": [(r"\s*(?i:part 1\b)", r"(?i:part 2\b)")],
    }.items()
}
_CHOICES = re.compile(
    r"(?:^|[\s($])A[).:]\s*\S.*(?:^|[\s($])B[).:]\s*\S|\\(?:text(?:bf)?|mathrm)\{\s*\(?A\)?", re.DOTALL
)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{(.*)\}", re.DOTALL)
_DOLLARS = re.compile(r"\$+(.*?)\$+|\\\((.*?)\\\)|\\\[(.*?)\\\]", re.DOTALL)
_SEVERAL = re.compile(
    r"(?:^|[;,\n])\s*(?:\(?[a-d]\)|\(i+\))\s*\S.*(?:[\s;,](?:\([b-e]\)|\(i+\))|[;,\n]\s*[b-e]\))\s*\S", re.DOTALL
)
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_PLAIN_WORD = re.compile(r"[A-Za-z]{3,}")
_MAX_ANSWER_WORDS = 5  # answers with more words are sentences
_MAX_OTHER_LETTERS = 0.25  # of all letters of a question in Latin or Greek script


def normalize_answer(answer: str) -> str:
    r"""Remove the box, dollar signs, the final period, `\left` and `\right`, and write fractions as `\frac`."""
    return ALTERNATIVE.join(map(_normalize_one, answer.split(ALTERNATIVE)))


def _normalize_one(answer: str) -> str:
    text = _without_period(answer.strip())
    while True:
        inner = _BOX.fullmatch(text) or _DOLLARS.fullmatch(text)
        if inner is None or "$" in (taken := next(group for group in inner.groups() if group is not None)):
            break
        text = _without_period(taken.strip())
    text = re.sub(r"\\left(?![a-zA-Z])|\\right(?![a-zA-Z])", "", text)
    return re.sub(r"\\[dt]frac(?![a-zA-Z])", r"\\frac", text).replace("\\!", "").strip()


def _without_period(text: str) -> str:
    return text if text.endswith("..") else text.removesuffix(".").rstrip()


def rejection_reason(problem: Problem, *, text_answers: bool = False, any_script: bool = False) -> str | None:
    """Return the reason to reject a problem, judged by its text alone, or None.

    - "long_question", "long_answer": the text exceeds its limit
    - "no_answer": the answer is empty or a placeholder
    - "proof": the question only requests a proof
    - "other_script": a quarter of the question's letters are neither Latin nor Greek
    - "multiple_choice": the answer is a letter, or a letter and its text
    - "multiple_parts": the question or the answer has several parts
    - "unreadable_answer": braces or dollar signs do not match, or the answer ends within a command
    - "prose": the answer is a sentence

    Args:
        problem: The problem. Of a problem with tests, only the length of the question is checked.
        text_answers: Whether answers are plain text, of which only the first two reasons are checked.
        any_script: Whether questions in all scripts are accepted.
    """
    question = problem.question
    if len(question) > MAX_QUESTION_CHARACTERS or len(problem.answer) > MAX_ANSWER_CHARACTERS:
        return "long_question" if len(question) > MAX_QUESTION_CHARACTERS else "long_answer"
    if TESTS in problem.metadata:
        return None
    answer = normalize_answer(problem.answer)
    if answer.lower() in _NO_ANSWER:
        return "proof" if answer.lower() == "proof" else "no_answer"
    if text_answers:
        return None
    lower = question.lower()
    if (
        any(word in lower for word in _PROOF_WORDS)
        and _PROOF.search(question)
        and not _ASKS.search(_PROOF.sub("", question))
    ):
        return "proof"
    if not any_script and _in_other_script(question):
        return "other_script"
    choice = split_choice(answer)
    if choice is not None and choice[0] in "ABCDE" and (_CHOICES.search(question) or (choice[1] and "{" in answer)):
        return "multiple_choice"
    if any(hint in lower and parts.search(question) for hint, parts in _PARTS.items()) or _SEVERAL.search(answer):
        return "multiple_parts"
    if _unmatched(answer):
        return "unreadable_answer"
    return "prose" if len(_PLAIN_WORD.findall(_COMMAND.sub(" ", answer))) > _MAX_ANSWER_WORDS else None


def _in_other_script(question: str) -> bool:
    if question.isascii():
        return False
    letters = [ord(character) for character in _COMMAND.sub("", question) if character.isalpha()]
    other = sum(0x400 <= code < 0x1E00 or 0x2C00 <= code < 0x1D400 or code > 0x1D7FF for code in letters)
    return other > _MAX_OTHER_LETTERS * len(letters)


def _unmatched(answer: str) -> bool:
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", answer):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return True
    return depth > 0 or len(re.findall(r"(?<!\\)\$", answer)) % 2 == 1 or answer.endswith("\\")


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
        index = self._indices.setdefault(shape_of(answer), len(self.examples))
        if index == len(self.examples):
            self.examples.append(answer)
        return index


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
    known = {row["answer"]: row["readable"] for row in read_appended(cache)}
    unknown = [answer for answer in shapes.examples if answer not in known]
    workers = _graders()
    if unknown:
        async with Grader(workers) as grader:
            with console.progress(f"reading answers with {workers} graders", len(unknown)) as wait:
                for start in range(0, len(unknown), _BATCH_SIZE):
                    piece = unknown[start : start + _BATCH_SIZE]
                    grading = (grader.grade_async(answer, answer, shortcuts=False) for answer in piece)
                    verdicts = zip(piece, await asyncio.gather(*grading), strict=True)
                    rows = [{"answer": answer, "readable": verdict.correct} for answer, verdict in verdicts]
                    append_atomically(cache, encode_rows(rows))
                    known |= {row["answer"]: row["readable"] for row in rows}
                    wait.advance(len(piece))
    return [known[answer] for answer in shapes.examples]


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
            async with Grader(_graders()) as grader:
                verdicts = await grader.grade_all(pairs)
    equal = {pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict.correct}
    return {
        index
        for group, (first, *others) in zip(groups, answers, strict=True)
        if not all((first, other) in equal for other in others)
        for index in group
    }


def _graders() -> int:
    """Return the number of grader processes for this machine: one for each core, at most 64."""
    return min(_MAX_GRADERS, len(os.sched_getaffinity(0)))
