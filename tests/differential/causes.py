"""Causes of differences between the sandbox and a 64-bit CPython: one table, each entry with a predicate."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import predicates as p
import version_predicates as v
from comparison import Difference
from generation import Program
from native import NativePython

VERSION = "version"  # a newer CPython does the same
LOUD = "says so"  # it raises where it would compute natively
MACHINE = "machine"  # the program asked for a property of the machine
ROUNDING = "last digit"  # as between any two C libraries, of 64 bits or not
QUIET = "no warning"  # the numbers are equal
LIMIT = "limit"  # of time, memory or depth
WRONG = "wrong"  # numbers differ, and no error shows it

NUMPY = "import numpy as np\n"


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason for differences.

    `matches` is as narrow as it can be: what it accepts is not looked at any more. `example` is a short program that
    shows it, `since` the version of CPython from which on it does not show any more.
    """

    name: str
    kind: str
    reason: str
    matches: Callable[[Difference], bool]
    example: str
    since: tuple[int, int] = (99, 0)
    packages: tuple[str, ...] = ()

    def shows_on(self, native: NativePython) -> bool:
        """Whether that interpreter can show it."""
        return native.version < self.since and all(name in native.packages for name in self.packages)


CAUSES: list[Cause] = [
    Cause(
        "cast to 32 unsigned bits", MACHINE,
        "of a NaN or a float that does not fit: numpy's own answer is one of two, by the element's place in the array",
        p.cast_to_32_unsigned_bits, NUMPY + "print(np.full(33, np.nan).astype('u4'))", packages=("numpy",),
    ),
    Cause(
        "width of an index", QUIET,
        "arrays of `np.intp`, and the indices of compiled classes, are right, and have the pointer's 32 bits",
        p.width_of_an_index, NUMPY + "print(repr(np.zeros(2, np.intp)))", packages=("numpy",),
    ),
    Cause(
        "no floating-point flags", QUIET,
        "WebAssembly has none, so numpy neither warns of a division by zero, an overflow or a NaN nor raises under `errstate`",
        p.floating_point_flags, NUMPY + "with np.errstate(all='raise'): print(np.array([1.0]) / 0)", packages=("numpy",),
    ),
    Cause(
        "size beyond 32 bits", LOUD, "lengths, indices and repetitions beyond 2**31 - 1 raise",
        p.size_beyond_32_bits, "print(len(range(10 ** 10)))",
    ),
    Cause(
        "decimal in Python", LOUD, "the guest has no `_decimal`: `_pydecimal` signals some errors otherwise, knows more formats, and is slower",
        p.decimal_in_python, "from decimal import Decimal\nprint(divmod(Decimal(1), Decimal(0)))",
    ),
    Cause(
        "properties of the machine", MACHINE, "sys.maxsize, hashes, sizes of C types, decimal's limits, longdouble, the platform's name",
        p.property_of_the_machine, "import sys\nprint(sys.maxsize)",
    ),
    Cause(
        "order of a set", MACHINE, "hashes have 32 bits, so large numbers, texts and what is made of them come in another order",
        p.order_of_a_set, "print({2 ** 31, 5, 2 ** 33, -7})",
    ),
    Cause(
        "words of an error", VERSION, "CPython 3.15 says the same with other words",
        v.words_of_an_error, "[].index(1)", since=(3, 14),
    ),
    Cause(
        "tails of the normal distribution", VERSION, "`NormalDist.cdf` uses erfc since 3.14 and is right in the tails",
        v.normal_tails, "import statistics\nprint(statistics.NormalDist(42, 19).cdf(-88))", since=(3, 14),
    ),
    Cause(
        "Python before 3.12", VERSION,
        "quotes within f-strings, `sum` of floats, how weekdays and ordered dictionaries are printed; numpy before 2.5 wraps in `where`",
        v.before_3_12, "print(sum([0.1] * 10))", since=(3, 12),
    ),
    Cause(
        "name of an error", VERSION, "`re.error` is `re.PatternError` since 3.13, and idna's `UnicodeError` a `UnicodeEncodeError`",
        v.renamed_error, "import re\nre.compile('(')", since=(3, 13),
    ),
    Cause(
        "quotes of a bytearray", VERSION, "its repr needs no backslash before an apostrophe since 3.15",
        v.quotes_of_bytearrays, "print(bytearray(b'\\x27'))", since=(3, 15),
    ),
    Cause(
        "years before 1000", MACHINE, "`strftime` prints them with three digits or four, as the C library does",
        p.early_years, "import datetime\nprint(datetime.datetime(339, 9, 16).strftime('%c'))",
    ),
    Cause(
        "last digit of a function", ROUNDING, "the guest's C library rounds some functions up where glibc rounds down",
        p.last_digit, "import cmath\nprint(cmath.sqrt(complex(6.51957, 96.7177)))",
    ),
    Cause(
        "last digits of many operations", ROUNDING,
        "vector units, fused multiplications and other orders of addition, within 1e-12 of the result, or 1e-13 of the largest operand",
        p.last_digits, NUMPY + "from scipy import integrate\nprint(integrate.solve_ivp(lambda t, y: -y, (0, 1), [0.671]).y[0][-1])",
        packages=("scipy",),
    ),
    Cause(
        "time or memory", LIMIT, "one of the two stopped the program",
        p.stopped, "",
    ),
]  # fmt: skip


def cause_of(difference: Difference) -> Cause | None:
    """The first cause in the table that explains the difference."""
    return next((cause for cause in CAUSES if cause.matches(difference)), None)


def causes_of(
    difference: Difference, compared: Callable[[Sequence[Program]], Iterable[Difference]]
) -> list[Cause | None]:
    """The cause of a difference; where none explains the whole of it, those of the program's parts.

    Args:
        difference: Difference to explain.
        compared: Function that runs programs in both places and returns those that differ.
    """
    cause = cause_of(difference)
    parts = [Program(difference.program.area, part) for part in difference.program.parts]
    if cause is not None or len(parts) < 2:
        return [cause]
    return [cause_of(one) for one in compared(parts)] or [None]
