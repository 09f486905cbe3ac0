"""Filter problems that cannot be verified, and normalize answers."""

import re

from torl.text.answers import find_answer
from torl.types import Problem

# "Prove that ..." requests a proof; "Find x and prove that it is the only one" has an answer.
_PROOF = re.compile(r"\b(?:prove|show|demonstrate|verify|justify)\b(?:\s+that\b|\s*:)", re.IGNORECASE)
_ASKS = re.compile(
    r"\?|\b(?:find|determine|compute|calculate|evaluate|what|how many|how much|which|solve|express|simplify|give)\b",
    re.IGNORECASE,
)
_NO_ANSWER = frozenset({"", "proof", "notfound", "not found", "none", "null", "nan", "n/a", "see solution", "omitted"})
_PARTS = tuple(
    re.compile(rf"(?:^|[.;:?\n])\s*{first}.*?(?:[.;:?,\n])\s*{second}", re.DOTALL)
    for first, second in (
        (r"\(?a\)", r"\(?b\)"),
        (r"\(i\)", r"\(ii\)"),
        (r"\(1\)", r"\(2\)"),
        (r"(?i:part 1\b)", r"(?i:part 2\b)"),
    )
)
_CHOICES = re.compile(r"\(?A[).].*\(?B[).]|\\text(?:bf)?\{\s*\(?A\)?", re.DOTALL)
_COMMAND_LETTER = r"\\(?:text|textbf|mathrm|mathbf)\s*\{\s*\(?[A-E]\)?\s*\}"
_LETTER = re.compile(rf"\(?[A-E]\)?\.?|\([A-E]\).*|[A-E][).]\s.*|{_COMMAND_LETTER}", re.DOTALL)
_LETTER_AND_TEXT = re.compile(rf"{_COMMAND_LETTER}\W*\w.*", re.DOTALL)
_SOLUTION_MARK = "####"  # of the final answer in GSM8K
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{(.*)\}", re.DOTALL)
_DOLLARS = re.compile(r"\$+(.*?)\$+|\\\((.*?)\\\)|\\\[(.*?)\\\]", re.DOTALL)
_SEVERAL = re.compile(r"(?:^|[\s;,])(?:\(?[a-d]\)|\(i+\))\s*\S.*(?:\s|;)(?:\(?[b-e]\)|\(i+\))\s*\S", re.DOTALL)
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_PLAIN_WORD = re.compile(r"[A-Za-z]{3,}")
_MAX_ANSWER_WORDS = 5  # answers with more words are sentences


def normalize_answer(answer: str) -> str:
    r"""Return the final answer of a solution in a normal form.

    The final answer is in the last box, or after the last `####` (GSM8K). Dollar signs, the final period, `\left` and
    `\right` are removed, and fractions are written as `\frac`.
    """
    text = _final_answer(answer).strip()
    while True:
        inner = _BOX.fullmatch(text) or _DOLLARS.fullmatch(text)
        if inner is None or "$" in (taken := next(group for group in inner.groups() if group is not None)):
            break
        text = taken.strip()
    text = text.removesuffix(".").rstrip() if not text.endswith("..") else text
    text = re.sub(r"\\left(?![a-zA-Z])|\\right(?![a-zA-Z])", "", text)
    return re.sub(r"\\[dt]frac(?![a-zA-Z])", r"\\frac", text).replace("\\!", "").strip()


def rejection_reason(problem: Problem) -> str | None:
    """Return the reason to reject a problem, judged by its text alone, or None.

    - "no_answer": the answer is empty or a placeholder
    - "proof": the question only requests a proof
    - "multiple_parts": the question or the answer has several parts
    - "multiple_choice": the answer is a letter, or a letter and its text
    - "unreadable_answer": braces or dollar signs do not match, or the answer ends within a command
    - "prose": the answer is a sentence
    """
    question, answer = problem.question, normalize_answer(problem.answer)
    if answer.lower() in _NO_ANSWER:
        return "proof" if answer.lower() == "proof" else "no_answer"
    if _has_several_boxes(problem.answer):
        return "multiple_parts"
    if _PROOF.search(question) and not _ASKS.search(_PROOF.sub("", question)):
        return "proof"
    if (_LETTER.fullmatch(answer) and _CHOICES.search(question)) or _LETTER_AND_TEXT.fullmatch(answer):
        return "multiple_choice"
    if any(parts.search(question) for parts in _PARTS) or _SEVERAL.search(answer):
        return "multiple_parts"
    if _unmatched(answer):
        return "unreadable_answer"
    return "prose" if len(_PLAIN_WORD.findall(_COMMAND.sub(" ", answer))) > _MAX_ANSWER_WORDS else None


def _final_answer(answer: str) -> str:
    _, mark, marked = answer.rpartition(_SOLUTION_MARK)
    box = find_answer(marked)
    return box.text if box is not None else marked if mark else answer


def _has_several_boxes(answer: str) -> bool:
    last = find_answer(answer)
    other = None if last is None else find_answer(answer[: last.start])
    return last is not None and other is not None and normalize_answer(other.text) != normalize_answer(last.text)


def _unmatched(answer: str) -> bool:
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", answer):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return True
    return depth > 0 or len(re.findall(r"(?<!\\)\$", answer)) % 2 == 1 or answer.endswith("\\")
