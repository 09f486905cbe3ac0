"""The part of pytest that tests of public sets use: the guest has no pytest."""

import importlib
import itertools
import math
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

_REL, _ABS = 1e-6, 1e-12


class ExceptionInfo:
    """The exception that `raises` expected."""

    value: BaseException
    type: type[BaseException]

    def match(self, pattern: str) -> bool:
        assert re.search(pattern, str(self.value)), f"{pattern!r} does not match {str(self.value)!r}"
        return True


class _Raises:
    def __init__(self, expected: Any, match: str | None) -> None:
        self._expected = expected
        self._match = match
        self._info = ExceptionInfo()

    def __enter__(self) -> ExceptionInfo:
        return self._info

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if kind is None or error is None:
            raise AssertionError(f"DID NOT RAISE {self._expected}")
        if not issubclass(kind, self._expected):
            return False
        self._info.value, self._info.type = error, kind
        if self._match is not None:
            self._info.match(self._match)
        return True


def raises(expected: Any, *call: Any, match: str | None = None, **named: Any) -> Any:
    """Return a context in which an exception must be raised, or call a function that must raise it."""
    context = _Raises(expected, match)
    if not call:
        return context
    with context as info:
        call[0](*call[1:], **named)
    return info


class approx:  # noqa: N801
    """A number, or numbers in a container, that equal others within a tolerance."""

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None, nan_ok: bool = False) -> None:
        self.expected = expected
        self._nan_ok = nan_ok
        self._rel = rel if rel is not None else (0.0 if abs is not None else _REL)
        self._abs = _ABS if abs is None else abs

    def __eq__(self, other: object) -> bool:
        return self._equal(other, self.expected)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        return f"approx({self.expected!r})"

    def _equal(self, one: Any, two: Any) -> bool:
        if isinstance(two, Mapping):
            return (
                isinstance(one, Mapping) and one.keys() == two.keys() and all(self._equal(one[k], two[k]) for k in two)
            )
        if hasattr(two, "shape") or (isinstance(two, Sequence) and not isinstance(two, str | bytes)):
            return len(one) == len(two) and all(itertools.starmap(self._equal, zip(one, two, strict=True)))
        if isinstance(two, int | float | complex) and not isinstance(two, bool):
            if two != two:
                return self._nan_ok and bool(one != one)
            close = abs(one - two) <= max(self._rel * abs(two), self._abs)
            return bool(one == two or (close and not math.isinf(abs(two))))
        return bool(one == two)


class _Mark:
    """A mark, as a decorator of a function or a class: `fixtures` reads parameters and skips, and no others."""

    def __init__(self, name: str, given: tuple[Any, ...] = (), named: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.given = given
        self._named = dict(named or {})
        if self._named.get("indirect"):
            raise _obstruct("the test gives parameters to fixtures")

    def __call__(self, *given: Any, **named: Any) -> Any:
        if len(given) == 1 and not named and isinstance(given[0], type | types.FunctionType):
            marked: Any = given[0]
            marked.pytestmark = [self, *getattr(marked, "pytestmark", [])]
            return marked
        return _Mark(self.name, given, named)

    def rows(self) -> list[dict[str, Any]]:
        """Return the parameters of each run, by name."""
        names = self._named.get("argnames", self.given[0] if self.given else ())
        values = self._named.get("argvalues", self.given[1] if len(self.given) > 1 else ())
        keys = [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)
        rows = []
        for value in values:
            single = isinstance(names, str) and len(keys) == 1 and not isinstance(value, _Parameters)
            plain = value.values if isinstance(value, _Parameters) else value
            rows.append(dict(zip(keys, [plain] if single else plain, strict=True)))
        return rows


class _Marks:
    def __getattr__(self, name: str) -> Any:
        return _Mark(name)


class _Parameters:
    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values


def param(*values: Any, marks: Any = (), **_: Any) -> Any:
    """Return the parameters of a run."""
    for each in marks if isinstance(marks, list | tuple) else [marks]:
        if each.name in ("skip", "skipif", "xfail"):
            raise _obstruct(f"parameters of the test are marked {each.name}")
    return _Parameters(values)


mark = _Marks()


def fixture(
    function: Any = None, *, params: Sequence[Any] = (), autouse: bool = False, name: str | None = None, **_: Any
) -> Any:
    """Make a fixture of a function."""
    if function is None:
        return lambda each: fixture(each, params=params, autouse=autouse, name=name)
    values = [each.values[0] if isinstance(each, _Parameters) else each for each in params or ()]
    function.parameters, function.is_autouse, function.fixture_name = values, autouse, name
    return function


def fail(reason: str = "", **_: Any) -> NoReturn:
    raise AssertionError(reason)


def skip(reason: str = "", **_: Any) -> NoReturn:
    raise _obstruct(f"the test skips itself: {reason}")


def xfail(reason: str = "", **_: Any) -> NoReturn:
    raise _obstruct(f"the test expects to fail: {reason}")


def importorskip(module: str, *_: Any, **__: Any) -> Any:
    """Return a module."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise _obstruct(f"the test needs the module {module}") from None


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise _obstruct(f"the test uses pytest.{name}, which the judge does not have")


def _obstruct(reason: str) -> BaseException:
    """Return what to raise where a test cannot be judged: `test_side` replaces this."""
    return RuntimeError(reason)
