"""Whether two SymPy expressions are equal: math-verify's comparison, with exact numbers compared exactly.

math-verify compares numbers in six decimals or 15 digits, absolutely: 2^-99 equals 2^-98. It has no option for
another test, so that a copy of its module gets this one.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

_DECIMALS = 6
_SMALL, _CLOSE = 1e-3, 1e-4  # smaller numbers have fewer than four digits in six decimals
_EXACT_DECIMALS = 50
_MAX_DIGITS = 300  # values that agree in all of them are equal
_POINTS = ("0.7390851332", "-1.3247179572", "2.6854520010")  # of variables: between and outside -1 and 1, of both signs


def same(gold: Any, target: Any, *, exact: bool) -> bool:
    """Return whether two expressions are equal. The form of the reference decides (math-verify's `verify`).

    Raises:
        Exception: Any, by SymPy: the comparison has failed.
    """
    return bool(
        _math_verify().verify(
            gold,
            target,
            float_rounding=_EXACT_DECIMALS if exact else _DECIMALS,
            allow_set_relation_comp=True,
            timeout_seconds=None,
            raise_on_error=True,
        )
    )


@cache
def _math_verify() -> Any:
    """Return a copy of math-verify's comparison with its tests of values, symbols and solutions replaced."""
    specification = importlib.util.find_spec("math_verify.grader")
    assert specification is not None
    assert specification.loader is not None
    module: Any = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    compare_symbols = module.sympy_compare_symbols

    def same_symbols(gold: Any, target: Any) -> bool:
        """Compare the case of letters with a subscript too."""
        if any("_" in str(each) for each in (gold, target)):
            return _same_values(gold, target, _DECIMALS)
        return bool(compare_symbols(gold, target)) or _same_values(gold, target, _DECIMALS)

    module.sympy_numeric_eq = lambda a, b, decimals, _: _same_values(a, b, decimals)
    module.sympy_symbolic_eq = lambda a, b: False
    module.sympy_compare_symbols = same_symbols
    module.solve = _solutions
    return module


def _solutions(relation: Any, symbols: Any) -> Any:
    """Return the solutions of a relation; two relations without any are not equal for this reason."""
    from sympy import solve

    if not (found := solve(relation, symbols)):
        raise ValueError(f"{relation} has no solution")
    return found


def _same_values(a: Any, b: Any, decimals: int) -> bool:
    from sympy import Dummy, Expr, Float, MatrixBase, Rational, simplify
    from sympy.core.function import AppliedUndef

    a, b = _evaluated(a), _evaluated(b)
    if not (isinstance(a, Expr | MatrixBase) and isinstance(b, Expr | MatrixBase)):
        return False  # a relation, a set or a truth value
    if isinstance(a, MatrixBase) or isinstance(b, MatrixBase):
        if getattr(a, "shape", None) != getattr(b, "shape", None):
            return False
        return all(_same_values(one, other, decimals) for one, other in zip(a.flat(), b.flat(), strict=True))
    if a.has(Float) or b.has(Float):
        if not a.free_symbols | b.free_symbols:
            return _same_decimals(a, b, decimals)
        a, b = (each.xreplace({number: Rational(str(number)) for number in each.atoms(Float)}) for each in (a, b))
    difference = a - b
    difference = difference.xreplace({each: Dummy(real=True) for each in difference.atoms(AppliedUndef)})
    if difference.has(*_steps()):  # constant between any points
        return bool(simplify(difference).is_zero)
    symbols = sorted(difference.free_symbols, key=str)
    return all(_is_zero(difference, _point(symbols, shift)) for shift in range(len(_POINTS) if symbols else 1))


def _point(symbols: Sequence[Any], shift: int) -> dict[Any, Any]:
    """Return different values of variables, none of them large."""
    from sympy import Rational

    values = (Rational(_POINTS[(index + shift) % len(_POINTS)]) + Rational(index, 7) for index in range(len(symbols)))
    return dict(zip(symbols, values, strict=True))


@cache
def _steps() -> tuple[Any, ...]:
    from sympy import Abs, Max, Min, Mod, Piecewise, ceiling, floor, sign

    return Abs, Max, Min, Mod, Piecewise, ceiling, floor, sign


def _evaluated(expression: Any) -> Any:
    try:
        return expression.doit()
    except Exception:  # a sum, limit or integral without a value
        return expression


def _same_decimals(gold: Any, target: Any, decimals: int) -> bool:
    """Return whether two numbers are equal in `decimals`; smaller ones in the first digits, whole ones exactly.

    A small reference with decimals decides by their number: 0.000164 is 1/6084.
    """
    from sympy import Float

    if gold.is_Integer or target.is_Integer:
        return bool((gold - target).is_zero)
    one, other = complex(gold), complex(target)
    largest = max(abs(one), abs(other))
    if largest < _SMALL and isinstance(gold, Float):
        decimals = max(decimals, -int(Decimal(str(gold)).normalize().as_tuple().exponent))
    elif largest < _SMALL and abs(one - other) > _CLOSE * largest:
        return False
    return bool((gold.round(decimals) - target.round(decimals)).is_zero)


def _is_zero(value: Any, point: Mapping[Any, Any]) -> bool:
    """Return whether a value at a point is zero: no digit of it can be computed, however small it is."""
    from sympy import simplify
    from sympy.core.evalf import PrecisionExhausted

    if value.is_Rational:
        return bool(value == 0)
    try:
        number = value.evalf(5, subs=point, maxn=_MAX_DIGITS, strict=True)
    except PrecisionExhausted:
        return True
    if (number.is_number and number.is_comparable) or number.is_finite:
        return bool(number.is_zero)
    return bool(simplify(value).is_zero)
