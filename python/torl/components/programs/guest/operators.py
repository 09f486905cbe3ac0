"""Operators of proxies: they hand data to the other side only if `may_see` allows that."""

import builtins
import operator
from collections.abc import Callable
from typing import Any

from torl.components.programs.guest.operations import operate
from torl.components.programs.guest.proxies import (
    BINARY,
    ORDERS,
    Proxy,
    data_of,
    do,
    is_plain,
    may_see,
    slot,
    with_role,
)
from torl.components.programs.guest.unknown import Unknown

_RESULTS = {"bool": bool, "len": int, "str": str, "repr": str, "int": int, "float": float, "index": int, "format": str}
_UNARY = "neg pos invert abs bool len str repr int float index reversed round bytes format copy floor ceil trunc"


def _binary(name: str, *, swapped: bool = False, is_order: bool = False) -> Callable[[Proxy, Any], Any]:
    def method(proxy: Proxy, other: Any) -> Any:
        if type(other) is Unknown:
            return Unknown()
        pair = (other, proxy) if swapped else (proxy, other)
        one, two = map(data_of, pair)
        is_data = one is not Ellipsis and two is not Ellipsis
        if is_data and is_plain(other) and (is_order or not may_see(proxy)):
            function = getattr(operator, name, None) or getattr(builtins, name)
            return function(one, two)
        if is_plain(other) and (not may_see(proxy) or (is_order and not slot(proxy, "_side").trusting)):
            raise slot(proxy, "_side").refuse(f"the test hands {type(other).__name__} to an object by {name}")
        result = do(proxy, name, *pair)
        return result if is_order else with_role(result, slot(proxy, "_role"))

    return method


def _unary(name: str) -> Callable[..., Any]:
    def method(proxy: Proxy, *more: Any) -> Any:
        data = data_of(proxy)
        if data is Ellipsis or name == "copy":
            result = do(proxy, name, proxy, *more)
            return _RESULTS[name](result) if type(result) is Unknown and name in _RESULTS else result
        return operate(name, [data, *more])

    return method


def install() -> None:
    """Give proxies their operators."""
    for name in BINARY.split():
        setattr(Proxy, f"__{name.strip('_')}__", _binary(name))
        setattr(Proxy, f"__r{name.strip('_')}__", _binary(name, swapped=True))
        if name != "divmod":
            setattr(Proxy, f"__i{name.strip('_')}__", _binary(f"i{name.strip('_')}"))
    for name in ORDERS.split():
        setattr(Proxy, f"__{name}__", _binary(name, is_order=True))
    for name in _UNARY.split():
        setattr(Proxy, f"__{name}__", _unary(name))
