"""The demo's problems: exact answers, repeatable, and nothing of an evaluation file elsewhere."""

import json
import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest
import sympy

from demo_maker.operations import OPERATIONS
from demo_maker.problems import (
    HELD_OUT_PAIRS,
    HELD_OUT_TRIPLES,
    PAIRS,
    SOURCE_SINGLES,
    STEP_SINGLES,
    TRIPLES,
    Collection,
    Program,
    draw_program,
    generate,
    problem_set,
    programs,
)
from torl.base.paths import resolve_path

NAMES = ("train", "heldout", "seen", "three_step")
SHIPPED = resolve_path("torl:demo/problems")


def rows(directory: Path, name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (directory / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def digits(number: int) -> list[int]:
    return sympy.ntheory.digits(number, 10)[1:]


# Written from the words of the problems alone: none of the package's code or formulas.
READERS = {
    r"(?:the product of (\d+) and|(\d+) times) (\d+)": lambda a, b: sympy.prod([a, b]),
    r"(?:(\d+) to the power|the power of (\d+) with exponent) (\d+)": lambda a, b: sympy.prod([a] * b),
    r"the (?:greatest common divisor of|largest number dividing both) (\d+) and (\d+)": lambda a, b: max(
        set(sympy.divisors(a)) & set(sympy.divisors(b))
    ),
    r"the (?:least|smallest) common multiple of (\d+) and (\d+)": lambda a, b: sympy.ilcm(a, b),
    r"the number of ways to choose (?P<k>\d+) of (?P<n>\d+) objects": lambda k, n: sympy.binomial(n, k),
    r"the binomial coefficient (\d+) over (\d+)": lambda n, k: sympy.binomial(n, k),
    r"the (?:sum of all integers|total of the integers) from (\d+) to (\d+)": lambda a, b: (a + b) * (b - a + 1) // 2,
    r"the (?:sum of the squares from 1 to|total of the first) (\d+)(?: square numbers)?": lambda n: (
        n * (n + 1) * (2 * n + 1) // 6
    ),
    r"the number of (?:ways to arrange|ordered choices of) (\d+) (?:out )?of (\d+)(?: objects)?": lambda k, n: (
        sympy.factorial(n) / sympy.factorial(n - k)
    ),
    r"the (?:sum of the digits|digit sum) of (\d+)": lambda x: sum(digits(x)),
    r"the remainder when (\d+) is divided by (\d+)": lambda x, m: sympy.Mod(x, m),
    r"(\d+) modulo (\d+)": lambda x, m: sympy.Mod(x, m),
    r"the (?:number made by reversing the digits|reversal) of (\d+)": lambda x: sum(
        digit * 10**place for place, digit in enumerate(digits(x))
    ),
    r"the square of (\d+)": lambda x: sympy.prod([x, x]),
    r"(\d+) squared": lambda x: sympy.prod([x, x]),
    r"(\d+) plus (\d+)": lambda x, c: sympy.Integer(x) + c,
    r"the sum of (\d+) and (\d+)": lambda x, c: sympy.Integer(x) + c,
    r"the integer (?:quotient of (\d+) and|part of (\d+) divided by) (\d+)": lambda x, d: sympy.floor(
        sympy.Rational(x, d)
    ),
    r"the (?:number of ones in the binary form|count of binary ones) of (\d+)": lambda x: sum(
        sympy.ntheory.digits(x, 2)[1:]
    ),
    r"the integer (?:square root|part of the square root) of (\d+)": lambda x: sympy.floor(sympy.sqrt(x)),
}


def read(noun: str) -> int:
    """The value of one phrase."""
    for pattern, value in READERS.items():
        match = re.fullmatch(pattern, noun)
        if match:
            return int(value(*(int(group) for group in match.groups() if group is not None)))
    raise AssertionError(f"no reading for {noun!r}")


def solve(question: str) -> int:
    """Read a problem and compute its answer with sympy, without the package's own arithmetic."""
    variables: dict[str, int] = {}

    def filled(text: str) -> str:
        return re.sub(r"\b([xy])\b", lambda match: str(variables[match[1]]), text)

    for name, noun in re.findall(r"Let ([xy]) be (.*?)\. ", question):
        variables[name] = read(filled(noun))
    last = re.search(r"(?:Find|Compute) (.*)\.$", question)
    assert last is not None
    return read(filled(last[1]))


@pytest.mark.parametrize("name", NAMES)
def test_shipped_answers_agree_with_sympy(name: str) -> None:
    for row in rows(SHIPPED, name):
        assert str(solve(row["problem"])) == row["answer"], row


def test_shipped_files_equal_output_of_the_script(tmp_path: Path) -> None:
    generate(tmp_path)
    for name in NAMES:
        assert (tmp_path / f"{name}.jsonl").read_bytes() == (SHIPPED / f"{name}.jsonl").read_bytes()


def test_the_seed_decides() -> None:
    first, second = (problem_set(seed, train_size=8, evaluation_size=8) for seed in (5, 6))
    assert first.heldout != second.heldout
    assert first.train != second.train


def test_patterns_are_disjoint_and_complete() -> None:
    assert len(PAIRS) == len(HELD_OUT_PAIRS) == 32
    assert len({*PAIRS, *HELD_OUT_PAIRS}) == 64
    assert not {*TRIPLES} & {*HELD_OUT_TRIPLES}
    assert {triple[:2] for triple in TRIPLES} <= {*PAIRS}, "a triple would show a held-out pair to pre-training"


def test_each_file_holds_its_own_patterns() -> None:
    patterns = {name: {tuple(row["source"].split("+")) for row in rows(SHIPPED, name)} for name in NAMES}
    assert patterns["heldout"] == {*HELD_OUT_PAIRS}
    assert patterns["three_step"] <= {*HELD_OUT_TRIPLES}
    assert patterns["train"] == {*SOURCE_SINGLES, *STEP_SINGLES, *PAIRS}
    assert patterns["seen"] <= patterns["train"]


def test_no_problem_is_in_two_files_in_any_words() -> None:
    kept = {name: {program.key for program in getattr(problem_set(), name)} for name in NAMES}
    for index, name in enumerate(NAMES):
        for other in NAMES[index + 1 :]:
            assert not kept[name] & kept[other]
    evaluated = {row["problem"] for name in NAMES[1:] for row in rows(SHIPPED, name)}
    assert not evaluated & {row["problem"] for row in rows(SHIPPED, "train")}


def test_pre_training_draws_no_evaluation_problem() -> None:
    problems = problem_set()
    evaluated = {program.key for program in (*problems.heldout, *problems.seen, *problems.three_step)}
    unfiltered = programs(Random(3), Collection.TRAINED, lambda program: False)
    assert any(next(unfiltered).key in evaluated for _ in range(4_000)), "the filter would have nothing to do"
    stream = programs(Random(3), Collection.TRAINED, problems.is_evaluated())
    assert not any(next(stream).key in evaluated for _ in range(4_000))


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_varied_and_need_every_operation(name: str) -> None:
    problems: tuple[Program, ...] = getattr(problem_set(), name)
    most_common, count = Counter(program.values[-1] for program in problems).most_common(1)[0]
    assert count / len(problems) < 0.1, f"the answer is {most_common} too often"
    for program in problems:
        assert len({program.start, *program.values}) == 1 + len(program.values), "an operation changed nothing"
        assert min(program.values) >= 1


@pytest.mark.parametrize("pattern", [*SOURCE_SINGLES, *STEP_SINGLES, *PAIRS, *HELD_OUT_PAIRS])
def test_no_pattern_has_a_usual_answer(pattern: tuple[str, ...]) -> None:
    drawn = [draw_program(Random(seed), pattern, easy=False) for seed in range(60)]
    answers = Counter(program.values[-1] for program in drawn if program is not None)
    assert answers.total() >= 55
    assert answers.most_common(1)[0][1] <= 0.4 * answers.total()


def test_problem_text_has_no_ordinal_or_leftover_field() -> None:
    for name in NAMES:
        for row in rows(SHIPPED, name):
            assert not re.search(r"\d(st|nd|rd|th)\b|[{}]", row["problem"])


def test_every_operation_has_one_mistake_that_costs() -> None:
    for operation in OPERATIONS.values():
        assert 0.3 <= operation.mistake_rate <= 0.55
        assert 0.3 <= operation.code_rate <= 0.5
        assert operation.mistake != operation.code
