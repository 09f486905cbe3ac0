"""Orders of scipy's special functions, which were compiled for C's `long`: 32 bits here.

An integer of 64 bits is passed to a polynomial's function as one of 32 bits. Otherwise numpy would choose the function
for real orders, whose series loses all digits at an order of some hundred. Larger orders are rejected.
"""

import sys

import numpy
import scipy.special

from _torl_indices import POINTER, beyond, put_around


class OfOrder:
    """A universal function whose first argument is an order."""

    def __init__(self, function):
        self._function = function
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def __call__(self, n, *arguments, **named):
        return self._function(_narrowed(n), *arguments, **named)

    def __getattr__(self, name):
        return getattr(self._function, name)

    def __repr__(self):
        return repr(self._function)


def _narrowed(n):
    given = numpy.asarray(n)
    if given.dtype.kind not in "iu":
        return n
    _refuse(n)
    return given.astype(POINTER)[()]


def _refuse(n):
    value = beyond(n)
    if value is not None:
        raise ValueError(f"an order is at most 2**31 - 1 here, not {value}")


def _of_order(original, n, *arguments, **named):
    _refuse(n)
    return original(n, *arguments, **named)


def _lambertw(original, z, k=0, *arguments, **named):
    value = beyond(k)
    if value is not None:
        raise ValueError(f"the number of a branch is at most 2**31 - 1 here, not {value}")
    return original(z, k, *arguments, **named)


def install():
    polynomials = sys.modules["scipy.special._ufuncs"]
    for name in dir(scipy.special):
        if name.startswith("eval_"):
            narrowing = OfOrder(getattr(scipy.special, name))
            setattr(scipy.special, name, narrowing)
            setattr(polynomials, name, narrowing)
    for name in ("spherical_jn", "spherical_yn", "spherical_in", "spherical_kn"):
        put_around(scipy.special, name, _of_order)
    put_around(scipy.special, "lambertw", _lambertw)
