"""Pairs of operations in words that no problem file of the demo uses: for a model that must not know the templates."""

from collections.abc import Mapping
from random import Random
from types import MappingProxyType

from demo_maker.problems import Program

FRAMES = (
    "Work out {first}. Call it n. What is {second}?",
    "If n equals {first}, then what is {second}?",
    "Suppose that n stands for {first}. Give {second}.",
)

# As in the phrasings of `operations`, {0} and {1} are the operation's own arguments, and {x} is the number before it.
WORDINGS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "product": ("{0} multiplied by {1}", "the number of seats in {0} rows with {1} seats each"),
        "power": ("{0} raised to the exponent {1}", "{1} copies of {0} multiplied together"),
        "gcd": ("the highest factor that {0} and {1} share", "the biggest integer that goes evenly into {0} and {1}"),
        "lcm": (
            "the lowest number that {0} and {1} go into evenly",
            "the first integer that {0} divides and {1} divides too",
        ),
        "binomial": (
            "the number of different teams of {1} from {0} players",
            "the count of {1}-element subsets of a set with {0} elements",
        ),
        "range_sum": (
            "the result of adding every whole number from {0} up to {1}",
            "{0} + ... + {1} with every integer in between",
        ),
        "square_sum": (
            "1*1 + 2*2 + ... + {0}*{0}",
            "the result of squaring every whole number from 1 up to {0} and adding them all",
        ),
        "arrangements": (
            "the number of possible outcomes for the first {1} places in a race with {0} runners",
            "the count of {1}-item lists without repetition from {0} different items",
        ),
        "digit_sum": ("the total of all digits in {x}", "the result of adding up every digit of {x}"),
        "remainder": ("the amount left over after dividing {x} by {0}", "the residue of {x} on division by {0}"),
        "reversal": ("{x} written backwards", "{x} read from right to left"),
        "square": ("{x} multiplied by itself", "{x} * {x}"),
        "plus": ("{x} increased by {0}", "the result of adding {0} to {x}"),
        "quotient": ("floor({x} / {0})", "the largest integer k such that {0} * k is at most {x}"),
        "ones": ("the number of 1 bits in {x}", "the count of 1s after writing {x} in base two"),
        "integer_root": ("the largest integer whose square is at most {x}", "sqrt({x}) rounded down"),
    }
)


def reword(program: Program, random: Random) -> str:
    """Return the question of a source and a step, with a frame and a wording drawn for each operation.

    Raises:
        ValueError: The program is not a source and a step.
    """
    if program.start or len(program.names) != 2:
        raise ValueError(f"a program of a source and a step is required, got {program.names}")
    first, second = (
        random.choice(WORDINGS[name]).format(*arguments, x="n")
        for name, arguments in zip(program.names, program.arguments, strict=True)
    )
    return random.choice(FRAMES).format(first=first, second=second)
