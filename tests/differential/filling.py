"""Fills a template such as `print($int + $small)`: each `$kind` becomes a new literal or expression of that kind."""

import re
from collections.abc import Callable
from random import Random

import literals
from literals import FLOAT_OPERATORS, INTEGER_OPERATORS, expression, sequence

ALIGNMENTS = ["", "<", ">", "^", "=", "*^", "0>"]
CODECS = [
    "utf-8",
    "utf-16",
    "utf-32-le",
    "latin-1",
    "ascii",
    "cp1252",
    "utf-7",
    "idna",
    "shift_jis",
    "gb18030",
    "rot13",
]


def small(random: Random) -> int:
    return random.randrange(10)


def specification(random: Random) -> str:
    """A format specification for a number."""
    parts = [
        random.choice(ALIGNMENTS), random.choice(["", "+", "-", " "]), random.choice(["", "#"]),
        random.choice(["", "0"]), random.choice(["", "8", "20"]), random.choice(["", ",", "_"]),
        random.choice(["", ".0", ".1", ".3", ".17"]), random.choice("eEfFgGn%bdoxXcs") + "",
    ]  # fmt: skip
    return "".join(parts)


KINDS: dict[str, Callable[[Random], object]] = {
    "int": literals.integer,
    "small": small,
    "positive": lambda random: random.randrange(1, 40),
    "hundred": lambda random: random.randrange(1, 400),
    "power": lambda random: random.choice([15, 31, 32, 53, 62, 63, 64, 100]),
    "float": literals.floating,
    "finite": literals.finite,
    "moderate": literals.moderate,
    "unit": lambda random: repr(random.randrange(1, 1000) / 1000),
    "complex": lambda random: f"complex({literals.moderate(random)}, {literals.moderate(random)})",
    "str": literals.text,
    "word": literals.word,
    "value": literals.value,
    "bytes": lambda random: repr(random.randbytes(random.randrange(12))),
    "ints": sequence(literals.integer),
    "smalls": sequence(small, 1),
    "floats": sequence(literals.floating),
    "finites": sequence(literals.finite, 2),
    "moderates": sequence(literals.moderate, 3),
    "strs": sequence(literals.text),
    "words": sequence(literals.word, 1),
    "values": sequence(literals.value),
    "bool": lambda random: random.choice(["True", "False"]),
    "intexpr": lambda random: expression(random, literals.integer, INTEGER_OPERATORS),
    "floatexpr": lambda random: expression(random, literals.finite, FLOAT_OPERATORS),
    "nexpr": lambda random: expression(
        random, lambda r: r.choice(["n", "n", str(small(r))]), INTEGER_OPERATORS[:13], depth=2
    ),
    "xexpr": lambda random: expression(
        random, lambda r: r.choice(["x", "x", str(small(r))]), ["({a} + {b})", "({a} - {b})", "({a} * {b})"], depth=2
    ),
    "op": lambda random: random.choice(["+", "-", "*", "//", "%", "&", "|", "^"]),
    "cmp": lambda random: random.choice(["<", "<=", "==", "!=", ">", ">="]),
    "spec": specification,
    "codec": lambda random: random.choice(CODECS),
    "date": lambda random: f"{random.randrange(1, 9999)}, {random.randrange(1, 13)}, {random.randrange(1, 29)}",
    "rounding": lambda random: random.choice(
        ["ROUND_HALF_EVEN", "ROUND_HALF_UP", "ROUND_DOWN", "ROUND_CEILING", "ROUND_FLOOR", "ROUND_05UP"]
    ),
    "dtype": lambda random: random.choice(
        ["int", "float", "bool", "complex", "'i1'", "'u1'", "'i2'", "'i4'", "'u4'", "'i8'", "'u8'", "'f4'", "'f8'"]
    ),
    "reaction": lambda random: random.choice(["'raise'", "'ignore'", "'warn'"]),
    "axis": lambda random: random.choice(["0", "1", "None"]),
    "perm": lambda random: repr(random.sample(range(6), 6)),
}
PLACE = re.compile(r"\$\{(\w+)\}|\$(\w+)")


def fill(template: str, random: Random) -> str:
    """`template` with something drawn for each place.

    Raises:
        KeyError: A place of no known kind.
    """
    return PLACE.sub(lambda match: str(KINDS[match[1] or match[2]](random)), template)
