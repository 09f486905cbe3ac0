"""The predicates of causes that are differences of version: from a difference to whether it has that cause."""

import re
from itertools import zip_longest

from comparison import Difference
from numbers_in_text import alike_but_numbers, within
from predicates import same_end

GUEST_VERSION = (3, 15)
FLOAT = re.compile(r"\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+")


def words_of_an_error(difference: Difference) -> bool:
    """The same type of error after the same output; or lines of output that begin with the same error's name."""
    one, other = difference.native, difference.guest
    if difference.native_version >= GUEST_VERSION or one.error_type != other.error_type:
        return False
    lines = list(zip_longest(one.stdout.splitlines(), other.stdout.splitlines(), fillvalue=""))
    return all(a == b or _error_name(a) == _error_name(b) != "" for a, b in lines)


def _error_name(line: str) -> str:
    found = re.match(r"\w+(Error|Exception)\b", line)
    return found[0] if found else ""


def normal_tails(difference: Difference) -> bool:
    """`NormalDist.cdf` where it is small."""
    return difference.native_version < (3, 14) and "NormalDist" in difference.code and same_end(difference)


def before_3_12(difference: Difference) -> bool:
    """Quotes within f-strings, the sum of floats, how weekdays and ordered dictionaries are printed.

    And `where` of numpy, whose version 2.5 needs 3.12.
    """
    if difference.native_version >= (3, 12):
        return False
    native, guest = difference.native, difference.guest
    if native.error_type == "SyntaxError" and re.search("f'.*{'|f'.*{.*'", difference.code):
        return guest.error_type != "SyntaxError"
    if re.search(r"\b(sum|fmean|mean|fsum)\(", difference.code) and same_end(difference):
        largest = max((abs(float(number)) for number in FLOAT.findall(difference.code)), default=0.0)
        return alike_but_numbers(native.stdout, guest.stdout, within(1e-9, max(1e-9, largest * 1e-15)))
    if "np.where(" in difference.code and guest.error_type == "OverflowError":
        return native.stdout.startswith(guest.stdout)
    return re.search(r"OrderedDict\(|monthrange\(", difference.code) is not None


def renamed_error(difference: Difference) -> bool:
    """`re.error` is `re.PatternError` since 3.13, and an error of the codec "idna" knows its text."""
    one, other = difference.native, difference.guest
    renamed = {("error", "PatternError"), ("UnicodeError", "UnicodeEncodeError")}
    return one.stdout == other.stdout and (one.error_type, other.error_type) in renamed


def quotes_of_bytearrays(difference: Difference) -> bool:
    """The same but for backslashes before quotes."""
    one, other = (text.stdout.replace("\\'", "'") for text in (difference.native, difference.guest))
    return "bytearray" in difference.code and difference.native_version < GUEST_VERSION and one == other
