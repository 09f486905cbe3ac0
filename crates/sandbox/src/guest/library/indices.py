"""Indices between programs and compiled code, which keeps them in the pointer's 32 bits.

What a program is given is widened, as far as Python code stands between, so that arithmetic on it does not wrap; what
compiled code would cut to 32 bits without a word is refused.
"""

import functools
import math

import numpy
import pandas
import scipy.spatial

import _torl_imports

POINTER, DEFAULT = numpy.dtype("p"), numpy.dtype("q")
LARGEST = 2**31 - 1


def widened(value):
    """An array, a series or a scalar of indices as default integers; anything else as it is."""
    return value.astype(DEFAULT) if getattr(value, "dtype", None) == POINTER else value


def beyond(values):
    """An integer among them that 32 bits do not hold; None if there is none."""
    given = numpy.asarray(values)
    if given.dtype.kind not in "iu" or given.dtype.itemsize < 8 or not given.size:
        return None
    for extreme in (int(given.max()), int(given.min())):
        if not -LARGEST - 1 <= extreme <= LARGEST:
            return extreme
    return None


def _around(owner, name, around):
    """Puts `around(original, *arguments)` in the place of a function."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def replaced(*arguments, **named):
        return around(original, *arguments, **named)

    setattr(owner, name, replaced)


def _unravel_index(original, indices, shape, order="C"):
    value = beyond(indices)
    size = math.prod(shape) if isinstance(shape, (tuple, list)) else shape
    if value is not None and size <= LARGEST:  # numpy itself refuses a larger shape
        raise ValueError(f"index {value} is out of bounds for array with size {size}")
    return original(indices, shape, order)


def _partition(original, a, kth, axis=-1, *arguments, **named):
    value = beyond(kth)
    if value is not None:
        size = numpy.size(a) if axis is None else numpy.shape(a)[axis]
        raise ValueError(f"kth(={value}) out of bounds ({size})")
    return original(a, kth, axis, *arguments, **named)


def _geometric(original, *arguments, **named):
    drawn = original(*arguments, **named)
    if numpy.any(numpy.asarray(drawn) >= LARGEST):  # where the generator's C code ends
        raise ValueError("a number beyond 2**31 - 1 was drawn: take numpy.random.default_rng().geometric")
    return drawn


def _first_widened(original, *arguments, **named):
    first, *others = original(*arguments, **named)
    return (widened(first), *others)


def _last_widened(original, *arguments, **named):
    *others, last = original(*arguments, **named)
    return (*others, widened(last))


def _all_widened(original, *arguments, **named):
    found = original(*arguments, **named)
    return tuple(map(widened, found)) if isinstance(found, tuple) else widened(found)


def _execute_peak_finding(module, execute):
    execute()
    _around(module, "find_peaks", _first_widened)
    # What a program found, or made, goes back to compiled code.
    _around(module, "_arg_peaks_as_expected", lambda original, peaks: original(_narrowed(peaks)))


def _narrowed(peaks):
    peaks = numpy.asarray(peaks)
    return peaks.astype(POINTER) if peaks.dtype.kind in "iu" and beyond(peaks) is None else peaks


def install():
    # `numpy.lib` and others have their own name for it.
    _around(numpy, "unravel_index", _unravel_index)
    _around(numpy, "partition", _partition)
    _around(numpy, "argpartition", _partition)
    _around(numpy.random, "geometric", _geometric)
    _around(scipy.spatial.KDTree, "query", _last_widened)
    _around(pandas, "factorize", _first_widened)
    for owner, name in ((pandas, "cut"), (pandas, "qcut"), (pandas.Series, "argsort")):
        _around(owner, name, _all_widened)
    _torl_imports.Finder.modules["scipy.signal._peak_finding"] = _execute_peak_finding
