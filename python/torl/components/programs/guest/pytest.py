"""The part of pytest that tests of public sets use: the guest has no pytest."""

import inspect
import itertools
import math
import re
import sys
import tempfile
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

_REL, _ABS = 1e-6, 1e-12


class SkippedError(Exception):
    """The test skips itself."""


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
    """Marks: parameters are used, and others say nothing about a result."""

    def __getattr__(self, name: str) -> Any:
        return self._parametrize if name == "parametrize" else self._other

    def _parametrize(self, names: Any, values: Any, ids: Any = None, **_: Any) -> Callable[[Any], Any]:
        keys = [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)

        def mark(function: Any) -> Any:
            rows = []
            for value in values:
                plain = value.values if isinstance(value, _Parameters) else value
                single = len(keys) == 1 and not isinstance(value, _Parameters)
                rows.append(dict(zip(keys, [plain] if single else plain, strict=True)))
            function.parameters = [*getattr(function, "parameters", []), rows]
            return function

        return mark

    def _other(self, *given: Any, **_: Any) -> Any:
        return (
            given[0] if len(given) == 1 and callable(given[0]) and not isinstance(given[0], type) else lambda each: each
        )


class _Parameters:
    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values


def param(*values: Any, **_: Any) -> Any:
    return _Parameters(values)


mark = _Mark()


def fixture(function: Any = None, **_: Any) -> Any:
    if function is None:
        return lambda each: fixture(each)
    function.is_fixture = True
    return function


def fail(reason: str = "", **_: Any) -> NoReturn:
    raise AssertionError(reason)


def skip(reason: str = "", **_: Any) -> NoReturn:
    raise SkippedError(reason)


class _Captured:
    """The fixture `capsys`."""

    def __init__(self) -> None:
        self._stream: Any = sys.stdout
        self._read = 0

    def readouterr(self) -> Any:
        text = self._stream.getvalue()[self._read :]
        self._read += len(text)
        return types.SimpleNamespace(out=text, err="")


def run_function(function: Any, space: Mapping[str, Any]) -> None:
    """Run a test function once for each combination of its parameters, with its fixtures."""
    for rows in itertools.product(*getattr(function, "parameters", [])):
        given = {name: value for row in rows for name, value in row.items()}
        ends: list[Any] = []
        try:
            function(**_arguments(function, given, space, ends))
        finally:
            for generator in reversed(ends):
                next(generator, None)


def _arguments(function: Any, given: Mapping[str, Any], space: Mapping[str, Any], ends: list[Any]) -> dict[str, Any]:
    return {
        name: given[name] if name in given else _fixture(name, given, space, ends)
        for name in inspect.signature(function).parameters
    }


def _fixture(name: str, given: Mapping[str, Any], space: Mapping[str, Any], ends: list[Any]) -> Any:
    if name == "capsys":
        return _Captured()
    if name == "tmp_path":
        return Path(tempfile.mkdtemp())
    function = space[name]
    value = function(**_arguments(function, given, space, ends))
    if inspect.isgenerator(value):
        ends.append(value)
        return next(value)
    return value
