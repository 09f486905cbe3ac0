"""The text of a value as IPython displays it: containers broken into lines of 79 columns, sets in order, long ones cut.

Source of the forms: IPython 8, IPython/lib/pretty.py, whose protocol `_repr_pretty_(self, p, cycle)` is supported here.
"""

import collections
import datetime
import inspect
import os
import re
import types

import _torl_layout

_BUILT_IN = (None, "builtins", "__builtin__", "exceptions")
_FLAGS = ("TEMPLATE", "IGNORECASE", "LOCALE", "MULTILINE", "DOTALL", "UNICODE", "VERBOSE", "DEBUG")


def pretty(value):
    """Return the text of a value."""
    printer = Printer()
    printer.pretty(value)
    return printer.getvalue()


class Printer(_torl_layout.Layout):
    """A layout with the forms of known types."""

    def __init__(self):
        super().__init__()
        self._inside = []  # the addresses of the enclosing values

    def pretty(self, value):
        """Add the text of a value."""
        cycle = id(value) in self._inside
        self._inside.append(id(value))
        self.begin_group()
        try:
            _form(value)(value, self, cycle)
        finally:
            self.end_group()
            self._inside.pop()

    def items(self, values, show):
        """Add `show` of each, separated by commas; only the first of too many."""
        for number, value in enumerate(values):
            if number:
                self.text(",")
                self.breakable()
            if self.max_seq_length and number >= self.max_seq_length:
                self.text("...")
                return
            show(value)


def _form(value):
    kind = _attribute(value, "__class__", None) or type(value)
    for one in getattr(kind, "__mro__", type(value).__mro__):
        if one in _FORMS:
            return _FORMS[one]
        own = one.__dict__
        if callable(own.get("_repr_pretty_")):
            return one._repr_pretty_
        if one is not object and callable(own.get("__repr__")):
            return _repr
    return _object


def _attribute(value, name, default):
    try:
        return getattr(value, name, default)
    except Exception:
        return default


def _repr(value, p, cycle):
    with p.group():
        for number, line in enumerate(repr(value).splitlines()):
            if number:
                p.break_()
            p.text(line)


def _object(value, p, cycle):
    kind = _attribute(value, "__class__", None) or type(value)
    if _attribute(kind, "__repr__", None) is not object.__repr__:
        _repr(value, p, cycle)
        return
    with p.group(1, "<", ">"):
        p.pretty(kind)
        p.text(f" at 0x{id(value):x}" + (" ..." if cycle else ""))


def _sequence(opening, closing):
    def form(value, p, cycle):
        if cycle:
            p.text(f"{opening}...{closing}")
            return
        with p.group(len(opening), opening, closing):
            p.items(value, p.pretty)
            if len(value) == 1 and isinstance(value, tuple):
                p.text(",")

    return form


def _set(opening, closing):
    def form(value, p, cycle):
        if cycle:
            p.text(f"{opening}...{closing}")
        elif not value:
            p.text(f"{type(value).__name__}()")
        else:
            many = p.max_seq_length and len(value) >= p.max_seq_length
            with p.group(len(opening), opening, closing):
                p.items(value if many else _in_order(value), p.pretty)

    return form


def _in_order(values):
    for options in ({}, {"key": str}):
        try:
            return sorted(values, **options)
        except Exception:
            continue
    return list(values)


def _mapping(opening, closing):
    def form(value, p, cycle):
        if cycle:
            p.text("{...}")
            return

        def show(key):
            p.pretty(key)
            p.text(": ")
            p.pretty(value[key])

        with p.group(len(opening), opening, closing):
            p.items(value.keys(), show)

    return form


def _call(name, arguments):
    """Add a call: arguments are pairs of a name, or None, and a function that shows the argument."""

    def form(p):
        def show(argument):
            prefix, show_it = argument
            if prefix is None:
                show_it()
                return
            with p.group(len(prefix) + 1, f"{prefix}="):
                show_it()

        with p.group(), p.group(len(name) + 1, f"{name}(", ")"):
            for number, argument in enumerate(arguments):
                if number:
                    p.text(",")
                    p.breakable()
                show(argument)

    return form


def _made_of(parts):
    """Return the form of a value that is displayed as a call of its class with these arguments."""

    def form(value, p, cycle):
        name = type(value).__name__
        if cycle:
            _call(name, [(None, lambda: p.text("..."))])(p)
            return
        _call(name, [(key, lambda part=part: p.pretty(part)) for key, part in parts(value)])(p)

    return form


def _namespace(value, p, cycle):
    parts = [(key, lambda part=part: p.pretty(part)) for key, part in vars(value).items()]
    _call("namespace", [(None, lambda: p.text("..."))] if cycle else parts)(p)


def _exception(value, p, cycle):
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ in _BUILT_IN else f"{kind.__module__}.{kind.__qualname__}"
    _call(name, [(None, lambda part=part: p.pretty(part)) for part in getattr(value, "args", ())])(p)


def _pattern(value, p, cycle):
    flags = "|".join(f"re.{name}" for name in _FLAGS if value.flags & getattr(re, name, 0))
    parts = ["r" + repr(value.pattern).replace("\\\\", "\\"), *([flags] if flags else [])]
    _call("re.compile", [(None, lambda part=part: p.text(part)) for part in parts])(p)


def _class(value, p, cycle):
    own = next(one for one in type(value).__mro__ if "__repr__" in vars(one))
    if own is not type:
        _repr(value, p, cycle)
        return
    name = _attribute(value, "__qualname__", None)
    name = name if isinstance(name, str) else value.__name__
    module = _attribute(value, "__module__", None)
    p.text(name if module in _BUILT_IN else f"{module}.{name}")


def _function(value, p, cycle):
    name = _attribute(value, "__qualname__", value.__name__)
    if value.__module__ and value.__module__ not in _BUILT_IN:
        name = f"{value.__module__}.{name}"
    try:
        name += str(inspect.signature(value))
    except ValueError:
        pass
    p.text(f"<function {name}>")


def _super(value, p, cycle):
    with p.group(8, "<super: ", ">"):
        p.pretty(value.__thisclass__)
        p.text(",")
        p.breakable()
        p.pretty(value.__self__)


_FORMS = {
    **dict.fromkeys((int, float, str, bytes, range, slice, types.MethodType), _repr),
    **dict.fromkeys((datetime.datetime, datetime.timedelta), _repr),
    tuple: _sequence("(", ")"),
    list: _sequence("[", "]"),
    set: _set("{", "}"),
    frozenset: _set("frozenset({", "})"),
    dict: _mapping("{", "}"),
    types.MappingProxyType: _mapping("mappingproxy({", "})"),
    type(os.environ): _mapping("environ{", "}"),
    collections.OrderedDict: _made_of(lambda value: [(None, list(value.items()))] if value else []),
    collections.Counter: _made_of(lambda value: [(None, dict(value))] if value else []),
    collections.UserList: _made_of(lambda value: [(None, value.data)]),
    collections.defaultdict: _made_of(lambda value: [(None, value.default_factory), (None, dict(value))]),
    collections.deque: _made_of(
        lambda value: [(None, list(value)), *([] if value.maxlen is None else [("maxlen", value.maxlen)])]
    ),
    types.SimpleNamespace: _namespace,
    BaseException: _exception,
    re.Pattern: _pattern,
    type: _class,
    types.FunctionType: _function,
    types.BuiltinFunctionType: _function,
    super: _super,
}
