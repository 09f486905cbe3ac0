"""Numbers as in a 64-bit interpreter with the C library's decimals: seeds that are floats, and decimals of many digits.
"""

import _pydecimal
import _pylong
import builtins
import math
import random

_MODULUS = (1 << 61) - 1  # of hashes of numbers, on 64 bits
_SEED = random.Random.seed

# Decimals with more digits may have products that exceed the interpreter's limit on the conversion of integers, which
# has no effect on the C library's decimals.
_DIGITS = 1000


def float_hash(value):
    """Return the hash of a finite or infinite float on 64 bits, as an unsigned integer."""
    if math.isinf(value):
        magnitude = 314159
    else:
        numerator, denominator = abs(value).as_integer_ratio()
        magnitude = numerator * pow(denominator, -1, _MODULUS) % _MODULUS
    signed = magnitude if value >= 0 else -magnitude
    return (-2 if signed == -1 else signed) % (1 << 64)


def seed(self, a=None, version=2):
    if isinstance(a, float) and a == a:
        a = float_hash(a)
    _SEED(self, a, version)


class _Conversion(type):
    """The type of stand-ins for `str` and `int`, which convert integers of any size."""

    def __instancecheck__(cls, value):
        return isinstance(value, cls.kind)

    def __call__(cls, *arguments):
        try:
            return cls.kind(*arguments)
        except ValueError:
            if not cls.is_long(*arguments):
                raise
            return cls.convert(*arguments)


class _Str(metaclass=_Conversion):
    kind = str

    @staticmethod
    def is_long(value):
        return isinstance(value, int)

    @staticmethod
    def convert(value):
        return "-" * (value < 0) + _pylong.int_to_decimal_string(abs(value))


class _Int(metaclass=_Conversion):
    kind = int

    @staticmethod
    def is_long(value, *base):
        return not base and isinstance(value, str) and value.isdigit()

    convert = staticmethod(_pylong.int_from_string)


def _lift_limit():
    """Let decimals have any number of digits. Not before it is needed: it makes each operation slower."""
    _pydecimal.str, _pydecimal.int = _Str, _Int


_raise_error = _pydecimal.Context._raise_error


def _raise_condition(self, condition, explanation=None, *arguments):
    """Raise or handle a signal. The C library's errors show the condition."""
    return _raise_error(self, condition, [condition], *arguments)


_parse = _pydecimal._parser
_check_integer = _pydecimal.Context._set_integer_check


def _parser(text):
    if len(text) > _DIGITS:
        _lift_limit()
    return _parse(text)


def _abs(value):
    if isinstance(value, int) and value.bit_length() > 3 * _DIGITS:
        _lift_limit()
    return builtins.abs(value)


def _set_integer_check(self, name, value, lower, upper):
    if name == "prec" and isinstance(value, int) and value > _DIGITS:
        _lift_limit()
    return _check_integer(self, name, value, lower, upper)


def install():
    random.Random.seed = seed
    random.seed = random._inst.seed
    _pydecimal._parser, _pydecimal.abs = _parser, _abs
    _pydecimal.Context._set_integer_check = _set_integer_check
    _pydecimal.Context._raise_error = _raise_condition
