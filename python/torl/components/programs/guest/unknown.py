"""Results of operations that are not known yet."""

from collections.abc import Callable
from typing import Any

_MAX_OPERATIONS = 20_000  # a loop over what is not known may have no end


class Suspended(BaseException):
    """Ends a pass: its next step needs a result that is not known."""


class Unknown:
    """The result of an operation that is not known yet: every operation on it works, and says nothing."""

    operations = 0
    check: Callable[[object], None]
    """Raises for an object that must not cross. The play of a test sets it."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        for each in (*arguments, *named.values()):
            Unknown.check(each)
        return _operated(Unknown())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _operated(Unknown())

    def __iter__(self) -> Any:
        return iter(())

    def __await__(self) -> Any:
        raise Suspended

    def __mro_entries__(self, bases: object) -> Any:
        raise Suspended


def _operated(result: Any) -> Any:
    Unknown.operations += 1
    if Unknown.operations > _MAX_OPERATIONS:
        raise Suspended
    return result


_UNKNOWN = (
    "add sub mul truediv floordiv mod divmod pow matmul and or xor lshift rshift "
    "radd rsub rmul rtruediv rfloordiv rmod rdivmod rpow rmatmul rand ror rxor rlshift rrshift "
    "neg pos invert abs getitem enter round reversed"
)
for _name in _UNKNOWN.split():
    setattr(Unknown, f"__{_name}__", lambda *_, **__: _operated(Unknown()))
for _name, _value in {
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "bool", "contains", "instancecheck", "subclasscheck"), True),
    "len": 0,
    "int": 0,
    "float": 0.0,
    "index": 0,
    "hash": 0,
    "str": "",
    "repr": "",
    "format": "",
    "bytes": b"",
    "exit": False,
    "setitem": None,
    "delitem": None,
    "setattr": None,
    "delattr": None,
}.items():
    setattr(Unknown, f"__{_name}__", lambda *_, value=_value: _operated(value))
