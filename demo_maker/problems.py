"""Procedural problems: one to three operations in a row, with exact answers. `generate` writes the demo's files.

Of the 64 pairs of a source and a step only `PAIRS` are in pre-training and in the training problems; the others
are held out, and so are most three-step programs. No problem of an evaluation file is in either, in any
words.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from random import Random

from demo_maker.operations import OPERATIONS, SOURCES, STEPS, Arguments

SEED = 20_250
EASY_SHARE = 1 / 3
TRAIN_SIZE, EVALUATION_SIZE = 3_072, 256

MAX_VALUE, MAX_SQUARED = 10**7, 10**5
MAX_EASY_VALUE, MAX_EASY_SQUARED = 200, 15
SMALLEST_HARD_VALUE = 20
# A step on a smaller number would leave it as it is, or nearly always give the same.
SMALLEST_INPUT = {"digit_sum": 10, "reversal": 10, "ones": 5, "integer_root": 5}
# The results of the other steps are too few for a third operation to give varied answers, and so are all easy ones.
MIDDLE_STEPS = ("remainder", "reversal", "square", "plus", "quotient", "integer_root")

Pattern = tuple[str, ...]


def _pairs(residues: set[int]) -> tuple[Pattern, ...]:
    return tuple(
        (source.name, step.name)
        for i, source in enumerate(SOURCES)
        for j, step in enumerate(STEPS)
        if (i + j) % 8 in residues
    )


def _triples(trained: bool) -> tuple[Pattern, ...]:
    return tuple(
        (source.name, middle.name, last.name)
        for i, source in enumerate(SOURCES)
        for j, middle in enumerate(STEPS)
        for k, last in enumerate(STEPS)
        if middle.name in MIDDLE_STEPS
        and middle is not last
        and {middle.name, last.name} != {"square", "integer_root"}
        and (middle.name != "remainder" or last.name in ("reversal", "square", "plus"))
        and (middle.name != "integer_root" or last.name not in ("quotient", "ones"))
        and trained == ((i + j) % 8 in {0, 1, 2, 4} and (j + k) % 8 in {1, 2, 4, 7})
    )


SOURCE_SINGLES: tuple[Pattern, ...] = tuple((source.name,) for source in SOURCES)
STEP_SINGLES: tuple[Pattern, ...] = tuple((step.name,) for step in STEPS)
PAIRS: tuple[Pattern, ...] = _pairs({0, 1, 2, 4})
HELD_OUT_PAIRS: tuple[Pattern, ...] = _pairs({3, 5, 6, 7})
TRIPLES: tuple[Pattern, ...] = _triples(trained=True)
HELD_OUT_TRIPLES: tuple[Pattern, ...] = _triples(trained=False)


class Collection(StrEnum):
    """A family of problems to draw from."""

    TRAINED = "trained"  # a third singles, two thirds pairs that pre-training sees
    HELD_OUT = "held_out"  # pairs that pre-training never sees
    TRAINED_TRIPLES = "trained_triples"
    HELD_OUT_TRIPLES = "held_out_triples"


@dataclass(frozen=True, slots=True)
class Program:
    """Operations in a row; `start` is the number the first one works on when it is a step, else 0."""

    start: int
    names: Pattern
    arguments: tuple[Arguments, ...]
    easy: bool

    @property
    def key(self) -> tuple[int, Pattern, tuple[Arguments, ...]]:
        """The identity of a problem, independent of its words."""
        return self.start, self.names, self.arguments

    @property
    def values(self) -> tuple[int, ...]:
        """The result of every operation; the last is the answer."""
        return self._values_from(0, self.start)

    def _values_from(self, position: int, number: int) -> tuple[int, ...]:
        values = []
        for name, arguments in list(zip(self.names, self.arguments, strict=True))[position:]:
            number = OPERATIONS[name].value(number, arguments)
            values.append(number)
        return tuple(values)

    def inputs(self) -> tuple[int, ...]:
        """The number that each operation works on."""
        return (self.start, *self.values[:-1])

    def question(self, random: Random) -> str:
        """The problem in words, with a phrasing drawn for each operation."""
        has_start = self.start != 0
        nouns = []
        for position, (name, arguments) in enumerate(zip(self.names, self.arguments, strict=True)):
            before = str(self.start) if has_start else "xy"[position - 1]
            nouns.append(random.choice(OPERATIONS[name].phrasings).format(*arguments, x=before))
        lets = "".join(f"Let {variable} be {noun}. " for variable, noun in zip("xy", nouns[:-1], strict=False))
        return f"{lets}{random.choice(('Find', 'Compute'))} {nouns[-1]}."

    def expressions(self, mistaken: frozenset[int] = frozenset()) -> tuple[str, ...]:
        """Each operation in Python; `x` is the number before it in every one of them.

        At the positions in `mistaken` it is the operation's dominant mistake (a forgotten import changes nothing here).
        """
        texts = []
        for position, (name, arguments) in enumerate(zip(self.names, self.arguments, strict=True)):
            operation = OPERATIONS[name]
            code = operation.mistake if position in mistaken and operation.mistake else operation.code
            texts.append(code.format(*arguments, x="x"))
        return tuple(texts)

    def mistakes_cost(self) -> bool:
        """Whether the dominant mistake of any one operation makes the answer wrong."""
        for position, name in enumerate(self.names):
            if OPERATIONS[name].mistake is None:
                continue
            number: object = self.start
            try:
                for expression in self.expressions(frozenset({position})):
                    number = eval(expression, {"math": math, "x": number})
            except (TypeError, ValueError):
                continue
            if number == self.values[-1] or str(number) == str(self.values[-1]):
                return False
        return True


def _is_sound(program: Program) -> bool:
    """Whether the answer depends on every operation and every number has a sensible size."""
    values, inputs = program.values, program.inputs()
    if len({program.start, *values}) <= len(values) or min(values) < 1:
        return False
    for position, (name, number) in enumerate(zip(program.names, inputs, strict=True)):
        if position == 0 and program.start == 0:
            continue
        largest = MAX_EASY_VALUE if program.easy else MAX_VALUE
        if name == "square":
            largest = MAX_EASY_SQUARED if program.easy else MAX_SQUARED
        smallest = max(SMALLEST_INPUT.get(name, 3), 3 if program.easy else SMALLEST_HARD_VALUE)
        if not smallest <= number <= largest:
            return False
        if name == "reversal" and number % 10 == 0:
            return False
        if name in ("remainder", "quotient") and number <= program.arguments[position][0]:
            return False
    if values[-1] > (999 if program.easy else MAX_SQUARED**2):
        return False
    return program.mistakes_cost()


def draw_program(random: Random, pattern: Pattern, easy: bool, tries: int = 200) -> Program | None:
    """A sound program with these operations, or None when none was found."""
    is_source = any(pattern[0] == source.name for source in SOURCES)
    for _ in range(tries):
        start = 0
        if not is_source:
            start = random.randint(5, 99) if easy else random.randint(10**2, 10 ** random.randint(3, 6))
        arguments = tuple(OPERATIONS[name].draw(random, easy) for name in pattern)
        program = Program(start, pattern, arguments, easy)
        if _is_sound(program):
            return program
    return None


def _draw_pattern(random: Random, collection: Collection) -> Pattern:
    if collection is Collection.HELD_OUT:
        return random.choice(HELD_OUT_PAIRS)
    if collection is Collection.TRAINED_TRIPLES:
        return random.choice(TRIPLES)
    if collection is Collection.HELD_OUT_TRIPLES:
        return random.choice(HELD_OUT_TRIPLES)
    if random.random() < 2 / 3:
        return random.choice(PAIRS)
    return random.choice(SOURCE_SINGLES if random.random() < 0.5 else STEP_SINGLES)


def programs(random: Random, collection: Collection, exclude: Callable[[Program], bool]) -> Iterator[Program]:
    """An endless stream of sound programs that `exclude` does not reject."""
    while True:
        pattern = _draw_pattern(random, collection)
        easy = len(pattern) < 3 and random.random() < EASY_SHARE
        program = draw_program(random, pattern, easy)
        if program is not None and not exclude(program):
            yield program


@dataclass(frozen=True, slots=True)
class ProblemSet:
    """The demo's four lists of distinct programs."""

    train: tuple[Program, ...]
    heldout: tuple[Program, ...]
    seen: tuple[Program, ...]
    three_step: tuple[Program, ...]

    def is_evaluated(self) -> Callable[[Program], bool]:
        """A test for membership in any of the evaluation lists."""
        keys = {program.key for program in (*self.heldout, *self.seen, *self.three_step)}
        return lambda program: program.key in keys


@cache
def problem_set(seed: int = SEED, train_size: int = TRAIN_SIZE, evaluation_size: int = EVALUATION_SIZE) -> ProblemSet:
    """The demo's programs; the same arguments give the same ones."""
    random = Random(seed)
    taken: set[object] = set()

    def take(collection: Collection, count: int) -> tuple[Program, ...]:
        chosen: list[Program] = []
        for program in programs(random, collection, lambda candidate: candidate.key in taken):
            taken.add(program.key)
            chosen.append(program)
            if len(chosen) == count:
                break
        return tuple(chosen)

    heldout = take(Collection.HELD_OUT, evaluation_size)
    seen = take(Collection.TRAINED, evaluation_size)
    three_step = take(Collection.HELD_OUT_TRIPLES, evaluation_size)
    return ProblemSet(take(Collection.TRAINED, train_size), heldout, seen, three_step)


def generate(directory: Path, seed: int = SEED) -> None:
    """Write `train.jsonl`, `heldout.jsonl`, `seen.jsonl` and `three_step.jsonl` into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    problems = problem_set(seed)
    random = Random(seed + 1)
    for name in ("train", "heldout", "seen", "three_step"):
        with (directory / f"{name}.jsonl").open("w", encoding="utf-8", newline="\n") as file:
            for index, program in enumerate(getattr(problems, name)):
                row = {
                    "id": f"{name}-{index:04d}",
                    "problem": program.question(random),
                    "answer": str(program.values[-1]),
                    "source": "+".join(program.names),
                }
                file.write(json.dumps(row) + "\n")


def main() -> None:
    """Command line: write the demo's problem files."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--output", type=Path, default=Path("python/torl/demo/problems"), help="folder for the files")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    generate(options.output, options.seed)


if __name__ == "__main__":
    main()
