"""The predicates of the table of causes: from a difference to whether it has that cause."""

import re
from collections import Counter

from comparison import Difference, without_addresses
from numbers_in_text import NUMBER, alike_but_numbers, within

WIDTH = re.compile(r",?\s*dtype=u?int(32|64)|\bu?int(32|64|c)\b|\bInt(32|64)\b")
SIZE = re.compile(
    "C ssize_t|index-sized integer|sys.maxsize|Too many decimal digits|repetition number is too large|too big for width"
)
MACHINE = re.compile(
    r"sys\.(maxsize|hash_info|getsizeof|platform|int_info|thread_info)|\bhash\(|longdouble|MAX_PREC|MAX_EMAX|calcsize"
    r"|itemsize|array\('[lLnN]'|np\.finfo|memory_usage|locale|platform\."
)


MAXIMUM = re.compile("MAX_PREC|MAX_EMAX|MIN_EMIN")


def same_end(difference: Difference) -> bool:
    """Whether both end with the same error, or with none."""
    one, other = without_addresses(difference.native), without_addresses(difference.guest)
    return (one.error_type, one.error_line) == (other.error_type, other.error_line)


def width_of_an_index(difference: Difference) -> bool:
    """Equal numbers, of a type with 32 bits in the guest."""
    one, other = difference.native.stdout, difference.guest.stdout
    return same_end(difference) and "int32" in other and WIDTH.sub("", one) == WIDTH.sub("", other)


def cast_to_32_unsigned_bits(difference: Difference) -> bool:
    """Only numbers differ, and natively they are 2**31, which a vector unit gives for all that does not fit."""
    if not re.search(r"astype\(('u4'|np\.uint32)\)", difference.code):
        return False
    texts = (WIDTH.sub("", one.stdout) for one in (difference.native, difference.guest))
    return same_end(difference) and alike_but_numbers(*texts, lambda native, _: native == str(2**31))


def floating_point_flags(difference: Difference) -> bool:
    """An error that only numpy's own checks of the flags raise."""
    kinds = ("FloatingPointError", "RuntimeWarning")
    printed = "".join(difference.guest.stdout.splitlines(True)[: difference.native.stdout.count("\n")])
    return difference.native.error_type in kinds and WIDTH.sub("", printed) == WIDTH.sub("", difference.native.stdout)


def size_beyond_32_bits(difference: Difference) -> bool:
    """An error about a size that does not occur natively, at its end or where the program printed it."""
    native, guest = difference.native, difference.guest
    if guest.error_type in ("OverflowError", "ValueError", "IndexError") and SIZE.search(guest.error_line or ""):
        return native.stdout.startswith(guest.stdout)
    return bool(SIZE.search(guest.stdout)) and not SIZE.search(native.stdout)


def property_of_the_machine(difference: Difference) -> bool:
    """The program names such a property."""
    return bool(MACHINE.search(difference.code))


def order_of_a_set(difference: Difference) -> bool:
    """The same pieces in another order."""
    texts = (difference.native.stdout, difference.guest.stdout)
    one, other = (Counter(re.split(r"[\s,{}()\[\]]+", text)) for text in texts)
    return (
        same_end(difference)
        and one == other
        and re.search(r"\{|set|symbols|sympy|networkx", difference.code) is not None
    )


def last_digit(difference: Difference) -> bool:
    """Floats that differ by a few units of the last place."""
    return same_end(difference) and alike_but_numbers(difference.native.stdout, difference.guest.stdout, within(1e-15))


def last_digits(difference: Difference) -> bool:
    """Floats that differ by 1e-12 of them or, near zero, by 1e-13 of the largest number that is printed or written."""
    if not re.search(r"numpy|scipy|pandas|networkx|cmath|statistics|math|\*\*", difference.code):
        return False
    native, guest = difference.native.stdout, difference.guest.stdout
    largest = max([1.0, *(abs(float(n)) for n in NUMBER.findall(native + difference.code) if len(n) < 25)])
    return same_end(difference) and alike_but_numbers(native, guest, within(1e-12, min(largest, 1e6) * 1e-13))


def decimal_in_python(difference: Difference) -> bool:
    """After the same output an error of decimal's on one side or both, or a format that only one of them knows."""
    native, guest = difference.native, difference.guest
    signals = ("InvalidOperation", "DivisionByZero", "Overflow", "FloatOperation")
    signalled = (native.error_type in signals and guest.error_type in signals) or MAXIMUM.search(difference.code)
    formatted = "invalid format string" in (native.error_line or "")
    return "Decimal" in difference.code and bool(signalled or formatted) and guest.stdout.startswith(native.stdout)


def early_years(difference: Difference) -> bool:
    """The century's zeros are all that differs."""
    one, other = (re.sub(r"\b0{1,3}(\d{1,3})\b", r"\1", text.stdout) for text in (difference.native, difference.guest))
    return "strftime" in difference.code and one == other


def stopped(difference: Difference) -> bool:
    """The output before it is the same as far as it goes."""
    ends = ("stopped", "timeout", "memory", "MemoryError", "RecursionError", "output_limit")
    return difference.native.error_type in ends or difference.guest.error_type in ends
