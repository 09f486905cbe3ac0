"""As much of pytest as the test files of numpy, sympy, scipy and networkx use, for an interpreter without it.

Given to a program as text, as the module `pytest`. `run_tests` calls the test functions of a namespace and prints one
line for each: its name, and how it ended. Tests with fixtures are left out.
"""

import contextlib
import inspect
import itertools
import re
import types
import warnings


class Skipped(Exception):  # noqa: N818 - the name that pytest gives it
    """Raised by a test that does not apply."""


class Param:
    """Arguments of a test with marks, of which none is heeded here."""

    def __init__(self, *values, marks=(), id=None):
        self.values = values


class Marks:
    """`pytest.mark`: heeds parametrize, skip, skipif and xfail."""

    def parametrize(self, names, values, **ignored):
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

        def mark(test):
            rows = []
            for value in values:
                row = value.values if isinstance(value, Param) else value if len(names) > 1 else (value,)
                rows.append(dict(zip(names, row, strict=True)))
            _marks(test).append(rows)
            return test

        return mark

    def skipif(self, condition=True, *ignored, **reason):
        return _skipping if condition else lambda test: test

    def skip(self, *test, **reason):
        return _skipping(test[0]) if test and callable(test[0]) else _skipping

    xfail = skip

    def __getattr__(self, name):
        return lambda *arguments, **options: arguments[0] if arguments and callable(arguments[0]) else lambda test: test


def _marks(test):
    if "rows" not in vars(test):
        test.rows = list(getattr(test, "rows", []))
    return test.rows


def _skipping(test):
    test.skipped = True
    return test


@contextlib.contextmanager
def raises(kinds, match=None, **ignored):
    """Fails unless the block raises one of `kinds`, with a message that `match` finds."""
    caught = types.SimpleNamespace(value=None, type=None)
    try:
        yield caught
    except kinds as error:
        caught.value, caught.type = error, type(error)
        message = str(error)
    else:
        raise AssertionError(f"did not raise {kinds}")
    assert match is None or re.search(match, message), f"{message} does not match {match}"


@contextlib.contextmanager
def warns(kinds=Warning, match=None, **ignored):
    """Fails unless the block warns."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield seen
    assert any(issubclass(one.category, kinds) for one in seen), f"did not warn {kinds}"


def skip(reason="", **ignored):
    """Ends a test that does not apply."""
    raise Skipped(reason)


def importorskip(name, *ignored, **options):
    """The module `name`; ends the test if there is none."""
    try:
        return __import__(name, fromlist=["x"])
    except ImportError:
        skip(name)


def approx(value, rel=1e-6, abs=1e-12, **ignored):
    """Equal to values within a tolerance of `value`."""
    import numpy

    return type("Near", (), {"__eq__": lambda self, other: numpy.allclose(other, value, rel, abs), "__hash__": None})()


def fixture(*arguments, **options):
    """A function that tests ask for by name: here they go without, and are left out."""
    return arguments[0] if arguments and callable(arguments[0]) else lambda function: function


mark, param, fail = Marks(), Param, skip


def _calls(namespace):
    for name, found in list(namespace.items()):
        if name.startswith("test") and inspect.isfunction(found):
            yield name, found, lambda found=found: found
        elif name.startswith("Test") and inspect.isclass(found) and not getattr(found, "skipped", False):
            for method, function in inspect.getmembers(found, inspect.isfunction):
                if method.startswith("test"):
                    yield f"{name}.{method}", function, lambda found=found, method=method: _bound(found, method)


def _bound(kind, method):
    instance = kind()
    for prepare in ("setup_method", "setUp", "setup"):
        if hasattr(instance, prepare):
            getattr(instance, prepare)()
            break
    return getattr(instance, method)


def run_tests(namespace):
    """Calls all tests and prints how each ended."""
    for name, function, bind in _calls(namespace):
        rows = [
            dict(itertools.chain(*(row.items() for row in some)))
            for some in itertools.product(*getattr(function, "rows", []))
        ]
        wanted = set(inspect.signature(function).parameters) - {"self"}
        for number, row in enumerate(rows):
            if getattr(function, "skipped", False) or wanted - set(row):
                continue
            try:
                with warnings.catch_warnings():
                    bind()(**row)
                end = "passed"
            except BaseException as error:
                kind = type(error).__name__
                end = "skipped" if kind in ("Skipped", "XFail", "SkipTest") else f"{kind}: {str(error)[:200]!a}"
            print(f"{name}[{number}]\t{end}")
