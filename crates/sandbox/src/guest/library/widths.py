"""Widen the 32-bit indices and counts of compiled code, so that arithmetic on them does not wrap.
"""

import numpy
import numpy.char
import numpy.strings
import pandas
import scipy.ndimage
import scipy.optimize
import scipy.sparse
import scipy.spatial
from pandas.api.extensions import ExtensionArray
from pandas.core.arrays.masked import BaseMaskedArray
from pandas.core.base import IndexOpsMixin
from pandas.core.groupby.groupby import BaseGroupBy
from scipy.spatial import KDTree

import _torl_imports
from _torl_indices import DEFAULT, LARGEST, POINTER, beyond, put_around


def widened(value):
    """Return an array, a series or a scalar of indices as default integers; anything else unchanged."""
    return value.astype(DEFAULT) if getattr(value, "dtype", None) == POINTER else value


def _first_widened(original, *arguments, **named):
    first, *others = original(*arguments, **named)
    return (widened(first), *others)


def _last_widened(original, *arguments, **named):
    *others, last = original(*arguments, **named)
    return (*others, widened(last))


def _all_widened(original, *arguments, **named):
    found = original(*arguments, **named)
    return tuple(map(widened, found)) if isinstance(found, tuple) else widened(found)


def _arrays_widened(original, *arguments, **named):
    """Widen bare arrays only: an index contains the program's own numbers."""
    found = original(*arguments, **named)
    if isinstance(found, tuple):
        return tuple(widened(one) if isinstance(one, numpy.ndarray) else one for one in found)
    return widened(found) if isinstance(found, numpy.ndarray) else found


def _values_widened(original, *arguments, **named):
    return {
        key: tuple(map(widened, value)) if isinstance(value, tuple) else widened(value)
        for key, value in original(*arguments, **named).items()
    }


def _execute_peak_finding(module, execute):
    execute()
    put_around(module, "find_peaks", _peaks_widened)
    put_around(module, "peak_prominences", _all_widened)
    # Peaks that a program found, or made, are passed back to compiled code.
    put_around(module, "_arg_peaks_as_expected", lambda original, peaks: original(_narrowed(peaks)))


def _peaks_widened(original, *arguments, **named):
    peaks, properties = original(*arguments, **named)
    return widened(peaks), {name: widened(value) for name, value in properties.items()}


def _narrowed(peaks):
    peaks = numpy.asarray(peaks)
    return peaks.astype(POINTER) if peaks.dtype.kind in "iu" and beyond(peaks) is None else peaks


def _count_neighbors(original, self, other, r, p=2.0, weights=None, cumulative=True):
    """Count in floats: pairs of points may exceed 32 bits. Weights of 1 are summed as floats, which represent them
    exactly.
    """
    if weights is not None or self.n * other.n <= LARGEST:
        return widened(original(self, other, r, p, weights, cumulative))
    ones = (numpy.ones(self.n), numpy.ones(other.n))
    counts = original(self, other, r, p, ones, cumulative)
    return int(counts) if numpy.ndim(counts) == 0 else counts.astype(DEFAULT)


def _sparse_distance_matrix(original, self, *arguments, **named):
    found = original(self, *arguments, **named)
    if getattr(found, "dtype", None) is None or found.dtype.names is None:
        return found
    return found.astype([(name, DEFAULT if name != "v" else float) for name in found.dtype.names])


def _blocks_widened(original, *arguments, **named):
    found = original(*arguments, **named)
    found.blocks = widened(found.blocks)
    return found


def _regions_widened(original, self, *arguments, **named):
    original(self, *arguments, **named)
    self.point_region = widened(self.point_region)


def _spherical_regions_widened(original, self):
    original(self)
    self.regions = [list(widened(numpy.array(region))) for region in self.regions]


def _groups_widened(read, self):
    groups = read(self).copy()  # of the same class
    groups.update({key: widened(rows) for key, rows in groups.items()})
    return groups


def _widen_property(owner, name, widen, read):
    setattr(owner, name, property(lambda self: widen(read, self)))


def install():
    # The same tree, as a Python wrapper of the compiled one, whose methods cannot be changed.
    scipy.spatial.cKDTree = KDTree
    for module in (numpy.strings, numpy.char, numpy._core.defchararray):
        for name in ("str_len", "find", "rfind", "index", "rindex", "count"):
            put_around(module, name, _all_widened)
    for name in ("query", "query_ball_point", "query_pairs"):
        put_around(KDTree, name, _last_widened if name == "query" else _all_widened)
    put_around(KDTree, "count_neighbors", _count_neighbors)
    put_around(KDTree, "sparse_distance_matrix", _sparse_distance_matrix)
    put_around(scipy.ndimage, "value_indices", _values_widened)
    put_around(pandas, "factorize", _first_widened)
    for owner, name in ((pandas, "cut"), (pandas, "qcut"), (pandas.Series, "argsort")):
        put_around(owner, name, _all_widened)
    put_around(pandas.RangeIndex, "searchsorted", _all_widened)
    put_around(pandas.api.indexers, "check_array_indexer", _all_widened)
    put_around(scipy.optimize, "isotonic_regression", _blocks_widened)
    put_around(pandas.DataFrame, "memory_usage", _all_widened)
    for name in ("_getnnz", "count_nonzero"):
        put_around(scipy.sparse._lil._lil_base, name, _all_widened)
    for owner, names in INDEXERS.items():
        for name in names.split():
            put_around(owner, name, _arrays_widened)
    _widen_property(BaseGroupBy, "indices", _groups_widened, BaseGroupBy.indices.fget)
    _widen_property(KDTree, "indices", lambda read, self: widened(read(self)), KDTree.indices.__get__)
    _widen_property(KDTree.leafnode, "idx", lambda read, self: widened(read(self)), KDTree.leafnode.idx.__get__)
    put_around(scipy.spatial.Voronoi, "_update", _regions_widened)
    put_around(scipy.spatial.SphericalVoronoi, "_calc_vertices_regions", _spherical_regions_widened)
    _torl_imports.Finder.modules["scipy.signal._peak_finding"] = _execute_peak_finding


# pandas functions that return positions in an index.
INDEXERS = {
    pandas.Index: "get_indexer get_indexer_for get_indexer_non_unique join reindex sort_values asof_locs sortlevel",
    pandas.RangeIndex: "factorize sort_values argsort",
    pandas.MultiIndex: "sortlevel",
    pandas.CategoricalIndex: "reindex",
    pandas.IntervalIndex: "get_indexer_non_unique",
    pandas.PeriodIndex: "asof_locs",
    pandas.Categorical: "argsort",
    IndexOpsMixin: "factorize",
    ExtensionArray: "factorize argsort",
    BaseMaskedArray: "factorize",
    pandas.arrays.SparseArray: "factorize",
}
