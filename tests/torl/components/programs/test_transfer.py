"""Values that cross between a program and its tests arrive as they were."""

import decimal
import fractions
import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torl.components.programs.guest.transfer import MAX_DEPTH, TransferError, decode, dumps, encode, plain_part
from torl.components.programs.output import equal_values
from torl.components.programs.reports import Opaque, ReportError, read_value

_TIMES = (st.times() | st.datetimes()).map(lambda time: time.replace(fold=0))
_HASHABLE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(10**700), 10**700), st.floats(), st.text(), st.binary(),
    st.fractions(), st.decimals(allow_nan=False), st.complex_numbers(), st.dates(), st.timedeltas(), _TIMES,
    st.just(Ellipsis), st.sampled_from([int, str, list, ValueError]), st.just(range(1, 9, 2)),
)  # fmt: skip
_KEYS = st.recursive(_HASHABLE, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)
_VALUES = st.recursive(
    _KEYS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=4).map(deque),
        st.dictionaries(_KEYS, inner, max_size=4),
        st.dictionaries(_KEYS, inner, max_size=4).map(OrderedDict),
        st.sets(_KEYS, max_size=4),
    ),
    max_leaves=8,
)
_JSON = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def _refuse(value: object) -> Any:
    raise AssertionError(f"{value!r} is data")


def _crossed(value: Any) -> Any:
    return decode(json.loads(dumps(encode(value, _refuse))), _refuse)


def _shown(value: Any) -> Any:
    """Return types and texts of a value: equality would overlook NaN, and 1 for True."""
    if isinstance(value, dict):
        return type(value), [(_shown(key), _shown(each)) for key, each in value.items()]
    if isinstance(value, list | tuple | deque):
        return type(value), [_shown(each) for each in value]
    if isinstance(value, frozenset | set):
        return type(value), sorted(str(_shown(each)) for each in value)
    return type(value), repr(value)


@given(_VALUES)
def test_values_cross_unchanged(value: Any) -> None:
    assert _shown(_crossed(value)) == _shown(value)


@pytest.mark.parametrize(
    "value", [Counter("aab"), bytearray(b"ab"), slice(1, None, 2), defaultdict(list, {1: [2]}), -(16**600)]
)
def test_other_data_cross_unchanged(value: Any) -> None:
    assert _crossed(value) == value
    assert type(_crossed(value)) is type(value)


@pytest.mark.parametrize("kind", ["int64", "uint8", "float32", "float64", "complex128", "bool", "U3", "S3"])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (0, 4)])
def test_arrays_cross_unchanged(kind: str, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(kind)
    crossed = _crossed(array)
    assert crossed.dtype == array.dtype
    np.testing.assert_array_equal(crossed, array)
    for scalar in array.flat[:2]:
        assert type(_crossed(scalar)) is type(scalar)
        assert _crossed(scalar) == scalar


def test_circles_and_deep_nesting_do_not_cross() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(MAX_DEPTH + 2):
        deep = [deep]
    for value in (circle, deep, {1: deep}, (circle,)):
        with pytest.raises(TransferError):
            encode(value, _refuse)


class _Liar(int):
    def _lie(self, *_: object) -> Any:
        return 9

    __add__ = __radd__ = __int__ = __index__ = __neg__ = __pos__ = _lie


def test_data_of_a_derived_class_is_read_without_its_methods() -> None:
    assert plain_part(_Liar(3)) == 3
    assert type(plain_part(_Liar(3))) is int
    assert plain_part(object()) is None


@given(_JSON, _JSON)
def test_results_are_compared_as_their_json(result: Any, expected: Any) -> None:
    crossed = read_value(json.loads(dumps(encode(result, _refuse))))
    assert equal_values(crossed, result)
    is_same = json.dumps(result, sort_keys=True) == json.dumps(expected, sort_keys=True)
    assert equal_values(crossed, expected) == is_same


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({1: 2}, {"1": 2}),
        ((1, (2,)), [1, [2]]),
        ({1, 2}, {1, 2}),
        ({frozenset({1})}, {frozenset({1})}),
        (deque([1]), [1]),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (decimal.Decimal("0.5"), 0.5),
        (fractions.Fraction(1, 3), 0.33333333),
        (10**5000, 10**5000),
        (range(3), [0, 1, 2]),
        (b"a", b"a"),
        (1j, 1j),
    ],
    ids=lambda value: type(value).__name__,
)
def test_results_equal_plain_data(value: Any, expected: Any) -> None:
    assert equal_values(read_value(encode(value, _refuse)), expected)


@pytest.mark.parametrize(
    "report",
    [
        {"set": [1, 1]},
        {"dict": [[1, 2], [1, 2]]},
        {"mine": 1},
        {"mine": 1, "class": "int"},
        {"type": "int"},
        {"array": ["<i8", [2], [1, 2]]},
        {"scalar": ["<i8", {"mine": 1}]},
    ],
)
@pytest.mark.parametrize("expected", [{1, 2}, {1: 2, 3: 4}, [1, 2], 9, 0.0, "", None, True])
def test_forged_results_equal_nothing(report: Any, expected: Any) -> None:
    assert not equal_values(read_value(report), expected)


@pytest.mark.parametrize(
    "report",
    [
        {"fraction": [1, 0]},
        {"range": [0, 10**30, 1]},
        {"scalar": []},
        {"int": 5},
        {"nothing": []},
        {"dict": [1]},
        {"set": [1, {"dict": []}]},
        {"dict": [[[], 1]]},
        {"set": 5},
        {},
        {"set": [], "dict": []},
        {"bytes": "x"},
        {"complex": ["a", {}]},
    ],
)
def test_forged_reports_are_refused(report: Any) -> None:
    with pytest.raises(ReportError):
        read_value(report)


def test_colliding_keys_cost_no_quadratic_time() -> None:
    colliding = [k * (2**61 - 1) for k in range(200_000)]  # all have the hash 0
    assert not equal_values(read_value({"set": colliding}), set(range(200_000)))
    assert not equal_values(read_value({"dict": [[k, k] for k in colliding]}), dict.fromkeys(range(200_000)))
    assert not equal_values({10**5_000: 1}, {"1": 1})
    assert isinstance(read_value({"mine": 3}), Opaque)
