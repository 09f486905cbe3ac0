"""Literals for generated programs: numbers of every size and sign, texts, containers, and expressions of them.

All draw from a `random.Random`: one with a seed makes a program repeatable, one of hypothesis' makes it shrink.
"""

import math
from collections.abc import Callable
from random import Random

EDGES = [0, 1, 2, 3, 7, 10, 12, 100, 255, 1000] + [
    2**bits + offset for bits in (15, 16, 30, 31, 32, 53, 60, 61, 62, 63, 64, 100, 1000) for offset in (-1, 0, 1)
]
FLOATS = [
    0.0, 0.1, 0.5, 1.0, 1.5, 2.5, 3.5, 2.675, 1 / 3, 1e-5, 1e16, 1e22, 1e23, 1e100, 123456.789, 9007199254740993.0,
    2.0**31, 2.0**32, 2.0**63, 1.7976931348623157e308, 2.2250738585072014e-308, 5e-324, 1e-310, math.pi, math.e,
]  # fmt: skip
TEXTS = [
    "", "a", "abc", "Hello, World", " spaced ", "tab\tnew\nline", "quo'te\"", "back\\slash", "\0", "é", "ß", "İ", "ǆ",
    "naïve café", "日本語", "\U0001f600", "e\u0301", "\u202eabc", "½", "٣", "x" * 40, "a,b;c", "123",
    "-7", "3.5e2", "0x1F", "%s {} {0}", "Straße", "ﬁ", "\ud800",
]  # fmt: skip
LETTERS = "abcdeXYZ 019_-.,éßλ日\n"


def integer(random: Random) -> int:
    kind = random.randrange(4)
    if kind == 0:
        value = random.choice(EDGES)
    elif kind == 1:
        value = random.getrandbits(random.randrange(1, 200))
    else:
        value = random.randrange(1000)
    return -value if random.randrange(4) == 0 else value


def floating(random: Random) -> str:
    kind = random.randrange(6)
    if kind == 0:
        return random.choice(["float('inf')", "float('-inf')", "float('nan')", "-0.0"])
    return finite(random)


def finite(random: Random) -> str:
    kind = random.randrange(4)
    if kind == 0:
        value = random.choice(FLOATS)
    elif kind == 1:
        value = random.randrange(1, 10**6) / 10 ** random.randrange(8)
    elif kind == 2:
        value = random.random() * 10.0 ** random.randrange(-30, 30)
    else:
        value = float(random.randrange(100))
    return repr(-value if random.randrange(4) == 0 else value)


def moderate(random: Random) -> str:
    """A float between -100 and 100 that functions of mathematics can be given."""
    return repr(random.randrange(-(10**6), 10**6) / 10 ** random.randrange(4, 7))


def text(random: Random) -> str:
    if random.randrange(2):
        return ascii(random.choice(TEXTS))
    return repr("".join(random.choice(LETTERS) for _ in range(random.randrange(12))))


def word(random: Random) -> str:
    return repr("".join(random.choice("abcdexyz") for _ in range(random.randrange(1, 8))))


def sequence(element: Callable[[Random], object], min_length: int = 0) -> Callable[[Random], str]:
    def drawn(random: Random) -> str:
        return "[" + ", ".join(str(element(random)) for _ in range(random.randrange(min_length, 8))) + "]"

    return drawn


def value(random: Random) -> str:
    """Any literal, containers within containers among them."""
    kind = random.randrange(12)
    if kind < 6:
        return str(random.choice([integer, finite, text])(random))
    if kind < 8:
        return random.choice(["None", "True", "False", "...", "b'\\x00\\xff'", "1j", "()", "set()", "{}", "range(3)"])
    inner = ", ".join(value(random) for _ in range(random.randrange(1, 4)))
    if kind < 10:
        return f"[{inner}]"
    return f"({inner},)" if kind == 10 else f"{{{text(random)}: {value(random)}}}"


def expression(random: Random, leaf: Callable[[Random], object], operators: list[str], depth: int = 3) -> str:
    """An expression of operators between leaves, as deep as `depth`."""
    if depth == 0 or random.randrange(4) == 0:
        return f"({leaf(random)})"
    left, right = (expression(random, leaf, operators, depth - 1) for _ in range(2))
    return random.choice(operators).format(a=left, b=right)


INTEGER_OPERATORS = [
    "({a} + {b})", "({a} - {b})", "({a} * {b})", "({a} // {b})", "({a} % {b})", "({a} & {b})", "({a} | {b})",
    "({a} ^ {b})", "({a} << ({b} % 70))", "({a} >> ({b} % 70))", "({a} ** ({b} % 5))", "(-{a})", "(~{a})", "abs({a})",
    "divmod({a}, {b})[1]", "max({a}, {b})", "pow({a}, abs({b}), 1000003)", "({a} if {b} else -1)", "int({a} < {b})",
]  # fmt: skip
FLOAT_OPERATORS = [
    "({a} + {b})", "({a} - {b})", "({a} * {b})", "({a} / {b})", "({a} // {b})", "({a} % {b})", "(-{a})", "abs({a})",
    "round({a}, 3)", "min({a}, {b})", "({a} if {a} < {b} else {b})",
]  # fmt: skip
