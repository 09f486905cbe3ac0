"""Widen the 32-bit indices and counts in results of scikit-learn's compiled classes, once its modules are imported.
"""

import importlib

import numpy
import scipy.sparse

import _torl_imports
import _torl_sampling
from _torl_indices import DEFAULT, LARGEST, POINTER, put_around
from _torl_widths import _all_widened, widened

# Functions that return indices, by their module.
RESULTS = {
    "sklearn.cluster._agglomerative": "ward_tree linkage_tree",
    "sklearn.cluster._hdbscan.hdbscan": "tree_to_labels labelling_at_cut",
    "sklearn.datasets._samples_generator": "make_circles make_moons",
    "sklearn.metrics.pairwise": "pairwise_distances_argmin pairwise_distances_argmin_min",
    "sklearn.svm._classes": "OneClassSVM.predict",
    "sklearn.utils.sparsefuncs": "count_nonzero",
}
# Functions that store indices in an estimator, and the names of the attributes.
ATTRIBUTES = {
    "sklearn.cluster._agglomerative": ("AgglomerativeClustering._fit", "labels_ children_"),
    "sklearn.cluster._dbscan": ("DBSCAN.fit", "labels_"),
    "sklearn.tree._classes": ("BaseDecisionTree._fit", "n_classes_"),
}


def _owner(module, path):
    *classes, name = path.split(".")
    return (getattr(module, classes[0]) if classes else module), name


def _attributes_widened(names):
    def around(original, self, *arguments, **named):
        fitted = original(self, *arguments, **named)
        for name in names:
            if hasattr(self, name):
                setattr(self, name, widened(getattr(self, name)))
        return fitted

    return around


def _fields_widened(records):
    kinds = [(name, DEFAULT if kind == POINTER else kind) for name, (kind, _) in records.dtype.fields.items()]
    return records.astype(kinds)


def _constant(values):
    """Return a widened copy of an array of a tree. Writing to it, in order to change the tree, is an error."""
    copy = widened(values) if values.dtype.names is None else _fields_widened(values)
    copy.flags.writeable = False
    return copy


def _neighborhoods_widened(original, *arguments, **named):
    """Widen an array of arrays, or several; or numbers of neighbors."""
    found = original(*arguments, **named)
    return tuple(map(_each_widened, found)) if isinstance(found, tuple) else _each_widened(found)


def _each_widened(arrays):
    if arrays.dtype != object:
        return widened(arrays)
    wide = numpy.empty_like(arrays)
    for place, array in numpy.ndenumerate(arrays):
        wide[place] = widened(array)
    return wide


def _two_point_correlation(original, self, X, r, dualtree=False):
    """Count pairs in chunks: pairs of points may exceed 32 bits, but not those of fewer points at a time."""
    points = numpy.asarray(X)
    together = max(1, LARGEST // len(self.data))
    if points.ndim != 2 or len(points) <= together:
        return widened(original(self, X, r, dualtree))
    parts = (points[start : start + together] for start in range(0, len(points), together))
    return sum(widened(original(self, part, r, dualtree)) for part in parts)


def _arrays_of_tree(original, self):
    data, places, nodes, bounds = original(self)
    return data, _constant(places), _constant(nodes), bounds


def _constant_view(read):
    return property(lambda self: memoryview(_constant(numpy.asarray(read(self)))))


def _kneighbors(original, self, *arguments, **named):
    found = original(self, *arguments, **named)
    # A graph passed by the program is sparse, and the indices of sparse matrices have 32 bits elsewhere, too.
    is_graph = self.metric == "precomputed" and scipy.sparse.issparse(self._fit_X)
    return found if is_graph else tuple(map(widened, found)) if isinstance(found, tuple) else widened(found)


def _widen_neighbors(module):
    for tree in (module.KDTree, module.BallTree):
        put_around(tree, "query", _all_widened)
        put_around(tree, "query_radius", _neighborhoods_widened)
        put_around(tree, "two_point_correlation", _two_point_correlation)
        put_around(tree, "get_arrays", _arrays_of_tree)
        for name in ("idx_array", "node_data"):
            setattr(tree, name, _constant_view(getattr(tree, name).__get__))
    put_around(module.KNeighborsMixin, "kneighbors", _kneighbors)
    put_around(module.RadiusNeighborsMixin, "radius_neighbors", _neighborhoods_widened)


def _wide_tree(narrow):
    """Return the class of the trees that scikit-learn grows, with indices of 64 bits."""

    def constant(name):
        read = getattr(narrow, name).__get__
        return property(lambda self: _constant(read(self)))

    class Tree(narrow):
        __slots__ = ()
        __doc__, __module__, __qualname__ = narrow.__doc__, narrow.__module__, narrow.__qualname__

        def __reduce__(self):
            return new_tree, (self.n_features, self.n_classes, self.n_outputs), self.__getstate__()

        def __getstate__(self):
            state = narrow.__getstate__(self)
            state["nodes"] = _fields_widened(state["nodes"])
            return state

        def apply(self, X):
            return widened(narrow.apply(self, X))

        def decision_path(self, X):
            found = narrow.decision_path(self, X)
            found.data, found.indices, found.indptr = map(widened, (found.data, found.indices, found.indptr))
            return found

    for name in ("children_left", "children_right", "feature", "n_classes", "n_node_samples"):
        setattr(Tree, name, constant(name))
    return Tree


def new_tree(*arguments):
    """Unpickle a tree: its class has the name of the narrow one, which other compiled modules look up."""
    return importlib.import_module("sklearn.tree._classes").Tree(*arguments)


def _widen_trees(module):
    module.Tree = _wide_tree(module.Tree)


def _narrow_parents(module):
    put_around(
        module._hierarchical,
        "hc_get_heads",
        lambda original, parents, copy=True: original(numpy.asarray(parents).astype(POINTER), copy),
    )


def _narrow_neighborhoods(module):
    """Copy the arguments: `dbscan_inner` writes to `labels`, and requests neighbors as if it wrote to them."""

    def inner(original, is_core, neighborhoods, labels):
        narrow = numpy.empty_like(neighborhoods)
        narrow[:] = [neighbors.astype(POINTER) for neighbors in neighborhoods]
        original(is_core, narrow, labels)

    put_around(module, "dbscan_inner", inner)


def _sample_in_python(module):
    module.sample_without_replacement = _torl_sampling.sample_without_replacement


BY_HAND = {
    "sklearn.cluster._agglomerative": _narrow_parents,
    "sklearn.cluster._dbscan": _narrow_neighborhoods,
    "sklearn.neighbors._base": _widen_neighbors,
    "sklearn.tree._classes": _widen_trees,
    "sklearn.utils.random": _sample_in_python,
}


def _execute(module, execute):
    execute()
    for path in RESULTS.get(module.__name__, "").split():
        put_around(*_owner(module, path), _all_widened)
    if module.__name__ in ATTRIBUTES:
        path, names = ATTRIBUTES[module.__name__]
        put_around(*_owner(module, path), _attributes_widened(names.split()))
    if module.__name__ in BY_HAND:
        BY_HAND[module.__name__](module)


def install():
    for name in {*RESULTS, *ATTRIBUTES, *BY_HAND}:
        _torl_imports.Finder.modules[name] = _execute
