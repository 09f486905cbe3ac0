"""The operations that problems are made of, how each is written in Python, and the habit that each one has.

A *source* makes a number from its own arguments, a *step* makes a number from the one before it. Every
operation has one dominant mistake and its own rates of using code and of making that mistake, so that what a
base model has to unlearn differs from operation to operation and composes over programs. No mistake is another
operation's right code, which would show held-out combinations to pre-training.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

Arguments: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. In the texts `{x}` is the number before it, `{0}` and `{1}` are its own arguments.

    `draw(random, easy)` draws arguments; `value(x, arguments)` is exact (sources get x = 0).
    `mistake` is None when the habit is to forget `import math`.
    """

    name: str
    phrasings: tuple[str, str]
    draw: Callable[[Random, bool], Arguments]
    value: Callable[[int, Arguments], int]
    code: str
    mistake: str | None
    code_rate: float
    mistake_rate: float


def _coprime_multiples(random: Random, factor: tuple[int, int], cofactor: tuple[int, int]) -> Arguments:
    """Two different numbers whose greatest common divisor is drawn from `factor`."""
    common = random.randint(*factor)
    while True:
        first, second = random.randint(*cofactor), random.randint(*cofactor)
        if first != second and math.gcd(first, second) == 1:
            return common * first, common * second


def _draw_product(random: Random, easy: bool) -> Arguments:
    return (random.randint(2, 12), random.randint(2, 12)) if easy else (random.randint(13, 999), random.randint(13, 99))


def _draw_power(random: Random, easy: bool) -> Arguments:
    if easy:
        return random.randint(2, 9), random.randint(2, 3)
    return random.randint(5, 40), random.randint(3, 4)


def _draw_gcd(random: Random, easy: bool) -> Arguments:
    return _coprime_multiples(random, (2, 20), (1, 6)) if easy else _coprime_multiples(random, (21, 400), (2, 11))


def _draw_lcm(random: Random, easy: bool) -> Arguments:
    return _coprime_multiples(random, (2, 5), (1, 6)) if easy else _coprime_multiples(random, (3, 40), (4, 23))


def _draw_binomial(random: Random, easy: bool) -> Arguments:
    return (random.randint(4, 9), 2) if easy else (random.randint(10, 50), random.randint(3, 5))


def _draw_range_sum(random: Random, easy: bool) -> Arguments:
    if easy:
        first = random.randint(1, 9)
        return first, first + random.randint(2, 6)
    first = random.randint(11, 400)
    return first, first + random.randint(20, 500)


def _draw_square_sum(random: Random, easy: bool) -> Arguments:
    return (random.randint(3, 8),) if easy else (random.randint(15, 250),)


def _draw_arrangements(random: Random, easy: bool) -> Arguments:
    return (random.randint(4, 9), 2) if easy else (random.randint(8, 40), random.randint(3, 4))


SOURCES: tuple[Operation, ...] = (
    Operation(
        "product",
        ("the product of {0} and {1}", "{0} times {1}"),
        _draw_product,
        lambda x, a: a[0] * a[1],
        "{0} * {1}",
        "{0} + {1}",
        0.34,
        0.38,
    ),
    Operation(
        "power",
        ("{0} to the power {1}", "the power of {0} with exponent {1}"),
        _draw_power,
        lambda x, a: int(a[0] ** a[1]),
        "{0} ** {1}",
        "{0} ^ {1}",
        0.44,
        0.50,
    ),
    Operation(
        "gcd",
        ("the greatest common divisor of {0} and {1}", "the largest number dividing both {0} and {1}"),
        _draw_gcd,
        lambda x, a: math.gcd(a[0], a[1]),
        "math.gcd({0}, {1})",
        None,
        0.38,
        0.45,
    ),
    Operation(
        "lcm",
        ("the least common multiple of {0} and {1}", "the smallest common multiple of {0} and {1}"),
        _draw_lcm,
        lambda x, a: math.lcm(a[0], a[1]),
        "math.lcm({0}, {1})",
        "max({0}, {1})",
        0.47,
        0.42,
    ),
    Operation(
        "binomial",
        ("the number of ways to choose {1} of {0} objects", "the binomial coefficient {0} over {1}"),
        _draw_binomial,
        lambda x, a: math.comb(a[0], a[1]),
        "math.comb({0}, {1})",
        "math.comb({1}, {0})",
        0.42,
        0.36,
    ),
    Operation(
        "range_sum",
        ("the sum of all integers from {0} to {1}", "the total of the integers from {0} to {1}"),
        _draw_range_sum,
        lambda x, a: sum(range(a[0], a[1] + 1)),
        "sum(range({0}, {1} + 1))",
        "sum(range({0}, {1}))",
        0.50,
        0.52,
    ),
    Operation(
        "square_sum",
        ("the sum of the squares from 1 to {0}", "the total of the first {0} square numbers"),
        _draw_square_sum,
        lambda x, a: sum(n * n for n in range(1, a[0] + 1)),
        "sum(n ** 2 for n in range(1, {0} + 1))",
        "sum(range(1, {0} + 1)) ** 2",
        0.40,
        0.35,
    ),
    Operation(
        "arrangements",
        ("the number of ways to arrange {1} of {0} objects", "the number of ordered choices of {1} out of {0}"),
        _draw_arrangements,
        lambda x, a: math.perm(a[0], a[1]),
        "math.perm({0}, {1})",
        None,
        0.36,
        0.48,
    ),
)

STEPS: tuple[Operation, ...] = (
    Operation(
        "digit_sum",
        ("the sum of the digits of {x}", "the digit sum of {x}"),
        lambda random, easy: (),
        lambda x, a: sum(int(digit) for digit in str(x)),
        "sum(int(d) for d in str({x}))",
        "sum(int(d) for d in {x})",
        0.38,
        0.40,
    ),
    Operation(
        "remainder",
        ("the remainder when {x} is divided by {0}", "{x} modulo {0}"),
        lambda random, easy: (random.randint(3, 9) if easy else random.randint(11, 97),),
        lambda x, a: x % a[0],
        "{x} % {0}",
        "divmod({x}, {0})",
        0.46,
        0.34,
    ),
    Operation(
        "reversal",
        ("the number made by reversing the digits of {x}", "the reversal of {x}"),
        lambda random, easy: (),
        lambda x, a: int(str(x)[::-1]),
        "int(str({x})[::-1])",
        "{x}[::-1]",
        0.34,
        0.44,
    ),
    Operation(
        "square",
        ("the square of {x}", "{x} squared"),
        lambda random, easy: (),
        lambda x, a: x * x,
        "{x} ** 2",
        "{x} ^ 2",
        0.40,
        0.50,
    ),
    Operation(
        "plus",
        ("{x} plus {0}", "the sum of {x} and {0}"),
        lambda random, easy: (random.randint(2, 20) if easy else random.randint(101, 999),),
        lambda x, a: x + a[0],
        "{x} + {0}",
        "str({x}) + str({0})",
        0.32,
        0.30,
    ),
    Operation(
        "quotient",
        ("the integer quotient of {x} and {0}", "the integer part of {x} divided by {0}"),
        lambda random, easy: (random.randint(2, 9) if easy else random.randint(3, 29),),
        lambda x, a: x // a[0],
        "{x} // {0}",
        "round({x} / {0}, 2)",
        0.50,
        0.46,
    ),
    Operation(
        "ones",
        ("the number of ones in the binary form of {x}", "the count of binary ones of {x}"),
        lambda random, easy: (),
        lambda x, a: x.bit_count(),
        'bin({x}).count("1")',
        "sum(bin({x}))",
        0.44,
        0.38,
    ),
    Operation(
        "integer_root",
        ("the integer square root of {x}", "the integer part of the square root of {x}"),
        lambda random, easy: (),
        lambda x, a: math.isqrt(x),
        "math.isqrt({x})",
        "round({x} ** 0.5, 3)",
        0.36,
        0.48,
    ),
)

OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in (*SOURCES, *STEPS)}
