"""Checks of indices that programs pass to compiled code with the pointer's 32 bits: larger values, which it would
silently cut, are rejected.
"""

import functools
import gc
import math
import sys
import types
import warnings

import numpy
import numpy.char
import numpy.strings
import pandas
import scipy.linalg._decomp_schur
import scipy.special._basic

POINTER, DEFAULT = numpy.dtype("p"), numpy.dtype("q")
LARGEST = 2**31 - 1
MAX_NONCENTRALITY = 2**31 - 2**20  # 16 standard deviations below the overflow


def beyond(values):
    """Return an integer among them that exceeds 32 bits, or None."""
    given = numpy.asarray(values)
    if given.dtype.kind not in "iu" or numpy.can_cast(given.dtype, POINTER) or not given.size:
        return None
    for extreme in (int(given.max()), int(given.min())):
        if not -LARGEST - 1 <= extreme <= LARGEST:
            return extreme
    return None


def put_around(owner, name, around):
    """Replace a function with `around(original, *arguments)`."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def replaced(*arguments, **named):
        return around(original, *arguments, **named)

    setattr(owner, name, replaced)


def _unravel_index(original, indices, shape, order="C"):
    value = beyond(indices)
    size = math.prod(shape) if isinstance(shape, (tuple, list)) else shape
    if value is not None and size <= LARGEST:  # numpy itself rejects a larger shape
        raise ValueError(f"index {value} is out of bounds for array with size {size}")
    return original(indices, shape, order)


def _ravel_multi_index(original, multi_index, *arguments, **named):
    if any(beyond(indices) is not None for indices in multi_index):
        raise ValueError("invalid entry in coordinates array")
    return original(multi_index, *arguments, **named)


def _partition(original, a, kth, axis=-1, *arguments, **named):
    value = beyond(kth)
    if value is not None:
        size = numpy.size(a) if axis is None else numpy.shape(a)[axis]
        raise ValueError(f"kth(={value}) out of bounds ({size})")
    return original(a, kth, axis, *arguments, **named)


def _take(original, self, indices, *arguments, **named):
    if not isinstance(indices, slice) and beyond(indices) is not None:
        raise IndexError("indices are out-of-bounds")
    return original(self, indices, *arguments, **named)


def _ensure_platform_int(original, indices):
    if beyond(indices) is not None:
        raise IndexError("indices are out-of-bounds")
    return original(indices)


def _hypergeometric(original, self, ngood, nbad, nsample, size=None):
    """Reject large sums: the C code adds both numbers, and 2, in 32 bits, and loops forever if the sum wraps."""
    good, bad = (numpy.asarray(number).astype(DEFAULT) for number in (ngood, nbad))
    value = beyond(good + bad + 2)
    if value is not None:
        raise ValueError(f"ngood + nbad is at most 2**31 - 3 here, not {value - 2}")
    return original(self, ngood, nbad, nsample, size)


def _noncentral_chisquare(original, self, df, nonc, size=None):
    _refuse_noncentrality(df, nonc)
    return original(self, df, nonc, size)


def _noncentral_f(original, self, dfnum, dfden, nonc, size=None):
    _refuse_noncentrality(dfnum, nonc)
    return original(self, dfnum, dfden, nonc, size)


def _refuse_noncentrality(df, nonc):
    """Reject large values: with few degrees of freedom the C code doubles a Poisson number of half the noncentrality,
    in 32 bits.
    """
    if ((numpy.asarray(df) <= 1) & (numpy.asarray(nonc) > MAX_NONCENTRALITY)).any():
        raise ValueError("nonc is at most 2**31 - 2**20 here where the degrees of freedom are at most 1")


def _expandtabs(original, a, tabsize=8):
    if beyond(tabsize) is None:
        return original(a, tabsize)
    texts, sizes = numpy.asanyarray(a), numpy.asarray(tabsize).astype(DEFAULT)
    tabs = numpy.strings.count(texts, b"\t" if texts.dtype.kind == "S" else "\t")
    if ((sizes > LARGEST) & (tabs > 0)).any():
        raise OverflowError("new string is too long")
    return original(texts, sizes.clip(-1, LARGEST))


def _filled(original, a, width, *arguments, **named):
    """Reject long results: texts of variable length are extended by a 32-bit number; other texts are checked by numpy.
    """
    value = beyond(width)
    if value is None or numpy.asanyarray(a).dtype.char != "T":
        return original(a, width, *arguments, **named)
    if value > LARGEST:
        raise MemoryError(f"a text of {value} characters does not fit into memory")
    return original(a, numpy.asarray(width).astype(DEFAULT).clip(-1), *arguments, **named)


def _multiply(original, a, i):
    numbers = numpy.asarray(i)
    if beyond(numbers) is None or numpy.asanyarray(a).dtype.char != "T":
        return original(a, i)
    if ((numbers > LARGEST) & (numpy.strings.str_len(a) > 0)).any():
        raise MemoryError(f"a text {numbers.max()} times does not fit into memory")
    return original(a, numbers.clip(0, LARGEST))


def _put_around_compiled(owner, name, around):
    """Replace a method of a compiled class: its attributes cannot be set, but its dictionary can be written to."""
    attributes = gc.get_referents(owner.__dict__)[0]
    holder = types.SimpleNamespace(**{name: attributes[name]})
    put_around(holder, name, around)
    attributes[name] = getattr(holder, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        sys._clear_type_cache()


def _widen_long(module):
    """Wrap a module that makes arrays of integers by the name "long". Compiled modules, which store C's `long` in such
    arrays, keep its width.
    """
    wide = types.ModuleType("numpy")
    wide.__dict__.update(numpy.__dict__, dtype=lambda kind: DEFAULT if kind == "long" else numpy.dtype(kind))
    module.np = wide


def install():
    # `numpy.lib` and others have their own reference to it.
    put_around(numpy, "unravel_index", _unravel_index)
    put_around(numpy, "ravel_multi_index", _ravel_multi_index)
    put_around(numpy, "partition", _partition)
    put_around(numpy, "argpartition", _partition)
    for owner in (pandas.core.generic.NDFrame, pandas.core.indexes.datetimelike.DatetimeTimedeltaMixin):
        put_around(owner, "take", _take)
    put_around(pandas.core.dtypes.common, "ensure_platform_int", _ensure_platform_int)
    for name, module in list(sys.modules.items()):
        if name.startswith("pandas.core.") and hasattr(module, "ensure_platform_int"):
            module.ensure_platform_int = pandas.core.dtypes.common.ensure_platform_int
    for module in (scipy.linalg._decomp_schur, scipy.special._basic):
        _widen_long(module)
    for around in (_hypergeometric, _noncentral_chisquare, _noncentral_f):
        name = around.__name__[1:]
        _put_around_compiled(numpy.random.RandomState, name, around)
        for module in (numpy.random, numpy.random.mtrand):
            setattr(module, name, getattr(numpy.random.mtrand._rand, name))
    for module in (numpy.strings, numpy.char, numpy._core.defchararray):
        for name in ("center", "ljust", "rjust", "zfill"):
            put_around(module, name, _filled)
        put_around(module, "expandtabs", _expandtabs)
        put_around(module, "multiply", _multiply)
