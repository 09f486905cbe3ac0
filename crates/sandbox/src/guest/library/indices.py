"""Indices that programs give to compiled code, which keeps them in the pointer's 32 bits: what it would cut to these without a
word is refused."""

import functools
import math
import sys
import types

import numpy
import pandas
import scipy.linalg._decomp_schur

POINTER, DEFAULT = numpy.dtype("p"), numpy.dtype("q")
LARGEST = 2**31 - 1


def beyond(values):
    """An integer among them that 32 bits do not hold; None if there is none."""
    given = numpy.asarray(values)
    if given.dtype.kind not in "iu" or numpy.can_cast(given.dtype, POINTER) or not given.size:
        return None
    for extreme in (int(given.max()), int(given.min())):
        if not -LARGEST - 1 <= extreme <= LARGEST:
            return extreme
    return None


def put_around(owner, name, around):
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


def _widen_long(module):
    """For a module that makes arrays of integers by the name "long", and floats of them then."""
    wide = types.ModuleType("numpy")
    wide.__dict__.update(numpy.__dict__, dtype=lambda kind: DEFAULT if kind == "long" else numpy.dtype(kind))
    module.np = wide


def install():
    # `numpy.lib` and others have their own name for it.
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
    _widen_long(scipy.linalg._decomp_schur)
