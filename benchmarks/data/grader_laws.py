"""Laws of grading over the references of problem sets: torl and math-verify, and where torl breaks them.

    python -m benchmarks.data.grader_laws PROBLEMS... [--limit REFERENCES] [--workers 2] [--timeout-seconds 2]

The pairs are made by `tests/helpers/answer_laws.py`. A reference equals itself and what SymPy prints for it (as read by
math-verify's parser of a single formula). It differs from itself without a letter, and from near misses. Another letter
changes no verdict on these pairs. Last, how many references end with a lone letter, and how many name units.
"""

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.helpers.answer_laws import near_misses, printings, renamed, variables, without_a_letter
from torl.components.data import load_problems
from torl.components.grading import Grader

Pairs = dict[str, list[tuple[str, str, bool]]]
"""Pairs of a reference and an answer with the right verdict, by law."""

_ALONE = """
import json, logging, sys
from math_verify import parse, verify
logging.disable(logging.CRITICAL)
def read(text):
    return parse(chr(92) + "boxed{" + text + "}", parsing_timeout=2)
print(json.dumps([verify(read(gold), read(answer), timeout_seconds=2) for gold, answer in json.load(sys.stdin)]))
"""
_LONE_LETTER = re.compile(r"(?:[\d})]|[A-Za-z])\s+[a-zA-Z]$")
_LETTER_BEHIND_DIGIT = re.compile(r"\d[a-zA-Z]$")
_UNIT = re.compile(r"\\(?:text|mathrm|mbox)\s*\{\s*[a-z. ]+\}(?:\^\d)?$")


def references_of(path: Path, limit: int | None) -> list[str]:
    """The different references of a file, each alternative alone; at most `limit` random ones, the same each time."""
    found = list(dict.fromkeys(answer for problem in load_problems(path) for answer in problem.answers))
    return found if limit is None or limit >= len(found) else random.Random(0).sample(found, limit)


def expression_of(reference: str) -> Any:
    """A reference as an expression, or None."""
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy

    try:
        return latex2sympy(
            reference.strip("$"), is_real=True, conversion_config=ConversionConfig(lowercase_symbols=False)
        )
    except Exception:  # the parser has no error class
        return None


def pairs_of(references: list[str]) -> Pairs:
    """The pairs of all laws."""
    found: Pairs = defaultdict(list)
    for reference in references:
        found["itself"].append((reference, reference, True))
        found["a letter removed"] += [(reference, other, False) for other in without_a_letter(reference)]
        for kind, other in near_misses(reference):
            found[f"near miss: {kind}"].append((reference, other, False))
        if (letters := variables(reference)) and (expression := expression_of(reference)) is not None:
            found["SymPy's printings"] += [(reference, text, True) for text in set(printings(expression).values())]
            for new in _other_letters(reference):
                old = letters[0][0][0]
                texts = [reference, *set(printings(expression).values())][:3]
                found["printings with another letter"] += [
                    (renamed(reference, old, new), renamed(text, old, new), True) for text in texts
                ]
    return found


def _other_letters(reference: str) -> Iterator[str]:
    used = set("".join(token[0] for token in variables(reference)))
    yield from (letter for letter in ("t", "h", "d", "m", "S", "\\gamma") if letter not in used)


def verdicts_alone(pairs: str) -> list[bool]:
    """The verdicts of math-verify on a JSON list of pairs."""
    alone = subprocess.run([sys.executable, "-c", _ALONE], input=pairs, stdout=subprocess.PIPE, text=True, check=True)
    verdicts: list[bool] = json.loads(alone.stdout)
    return verdicts


async def main() -> None:
    """Print a table of the laws, the pairs that break them, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+", type=Path)
    parser.add_argument("--limit", type=int, help="largest number of references of a file, chosen at random")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout-seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    by_file = {path: references_of(path, arguments.limit) for path in arguments.problems}
    laws = pairs_of(list(dict.fromkeys(text for references in by_file.values() for text in references)))
    print("| law | pairs | broken by torl | by math-verify |\n|---|---:|---:|---:|")
    broken = []
    async with Grader(arguments.workers, arguments.timeout_seconds) as grader:
        for law, pairs in laws.items():
            ours = await asyncio.gather(*(grader.grade_async(gold, text, shortcuts=False) for gold, text, _ in pairs))
            texts = json.dumps([pair[:2] for pair in pairs])
            theirs = await asyncio.to_thread(verdicts_alone, texts)
            wrong = [pair for pair, verdict in zip(pairs, ours, strict=True) if verdict.correct is not pair[2]]
            others = sum(verdict is not pair[2] for pair, verdict in zip(pairs, theirs, strict=True))
            print(f"| {law} | {len(pairs)} | {len(wrong)} | {others} |", flush=True)
            broken += [f"{law}: {gold} / {text}" for gold, text, _ in wrong]
    for path, references in by_file.items():
        counts = [
            sum(bool(kind.search(text)) for text in references) for kind in (_LONE_LETTER, _LETTER_BEHIND_DIGIT, _UNIT)
        ]
        print(
            f"{path.name}: {len(references)} different references, {counts[0]} end with a letter behind a blank, "
            f"{counts[1]} with a letter behind a digit, {counts[2]} with words in \\text"
        )
    print("\n".join(broken))


if __name__ == "__main__":
    asyncio.run(main())
