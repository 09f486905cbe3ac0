"""The guard of custom components: it checks what they return, and reports what they raise as one short error.

A base class marks the methods that a component overrides with `@guarded(check)`. Every override of a marked method is
guarded when its class is defined, and therefore in every call. Functions are guarded with `guard_function`.
"""

import asyncio
import functools
import inspect
import linecache
import reprlib
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from torl.base.errors import ComponentError, EpisodeComponentError, ToolUnavailableError, TorlError

Function = TypeVar("Function", bound=Callable[..., Any])
Check = Callable[..., None]
"""A function of a result and the arguments of its call, which raises `InvalidResultError`."""

_SPEC = "__torl_guard__"
_MAX_TEXT = 300  # characters of an error message
_DIRECTORIES = {*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), str(Path(__file__).parents[2])}
_LIBRARIES = (*(f"{directory}/" for directory in _DIRECTORIES), "<frozen ")


class InvalidResultError(Exception):
    """A component returned an invalid value. The message names the expected value and the actual one."""


@dataclass(frozen=True, slots=True)
class _Spec:
    check: Check | None
    fails_episode: bool
    is_async: bool


class Guarded:
    """Base of the classes whose overridden methods are guarded."""

    component_kind: ClassVar[str] = "component"
    """Name of the kind in messages, such as "tool"."""

    def __init_subclass__(cls, kind: str | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if kind is not None:
            cls.component_kind = kind
        for name, function in list(vars(cls).items()):
            spec = _inherited_spec(cls, name)
            if spec is not None and inspect.isfunction(function) and not hasattr(function, _SPEC):
                setattr(cls, name, _guard_method(name, function, spec))


def guarded(check: Check | None = None, *, fails_episode: bool = False) -> Callable[[Function], Function]:
    """Mark a method of a base class: its overrides are guarded.

    Args:
        check: Check of the result.
        fails_episode: Whether an exception or an invalid result fails the episode. Otherwise the run stops.
    """

    def mark(function: Function) -> Function:
        vars(function)[_SPEC] = _Spec(check, fails_episode, inspect.iscoroutinefunction(function))
        return function

    return mark


def guard_function(
    function: Callable[..., Any], kind: str, check: Check | None, item_check: Check | None = None
) -> Callable[..., Any]:
    """Return a function that stands for a component, guarded: a coroutine function for a coroutine function.

    Args:
        function: Function of the component.
        kind: Kind of the component, for messages.
        check: Check of the result.
        item_check: Check of each item of an iterable result. An iterator is guarded in any case.
    """
    if inspect.iscoroutinefunction(function):

        async def call_async(*arguments: Any, **keywords: Any) -> Any:
            with calling(kind, function, "", *arguments):
                result = await function(*arguments, **keywords)
                if check is not None:
                    check(result, *arguments)
                return result

        return call_async

    def call(*arguments: Any, **keywords: Any) -> Any:
        with calling(kind, function, "", *arguments):
            result = function(*arguments, **keywords)
            if check is not None:
                check(result, *arguments)
        if item_check is None and not isinstance(result, Iterator):
            return result
        return _guarded_items(result, kind, function, arguments, item_check)

    return call


@contextmanager
def calling(kind: str, component: object, method: str, *arguments: Any, fails_episode: bool = False) -> Iterator[None]:
    """Report the exceptions of a call of a component.

    Args:
        kind: Kind of the component, for the message.
        component: The object or function that is called.
        method: Name of the method; empty for a function.
        arguments: Arguments of the call, for the message.
        fails_episode: Whether an exception fails the episode. Otherwise the run stops.

    Raises:
        ComponentError: The component raised an exception, or returned an invalid value. A `TorlError` that it raises
            passes through.
    """
    try:
        yield
    except TorlError:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        message = f"{_subject(kind, component)} cancelled {_call(component, method, arguments)} itself"
        raise (ToolUnavailableError if fails_episode else ComponentError)(message) from error
    except (Exception, SystemExit) as raised:  # a component does not end the run by itself
        cause = _first_error(raised)
        if isinstance(cause, TorlError):
            raise cause from raised
        subject, call = _subject(kind, component), _call(component, method, arguments)
        if isinstance(cause, InvalidResultError):
            lines = [f"{subject} returned an invalid value from {call}", str(cause), _definition(component, method)]
        else:
            text = str(cause).strip().partition("\n")[0][:_MAX_TEXT]
            name = type(cause).__name__
            place = _place(component, cause if cause.__traceback__ else raised)  # a group's error may not be raised
            lines = [f"{subject} failed in {call}", f"{name}: {text}" if text else name, place]
        raise (EpisodeComponentError if fails_episode else ComponentError)("\n".join(lines)) from cause


def sync_override(target: object) -> str | None:
    """Return the name of a method of a class that must be declared with `async def` and is not, if any."""
    for name in dir(target) if isinstance(target, type) and issubclass(target, Guarded) else ():
        function = getattr(target, name)
        spec = getattr(function, _SPEC, None)
        if spec is not None and spec.is_async and not inspect.iscoroutinefunction(inspect.unwrap(function)):
            return name
    return None


def location(component: object) -> str:
    """Return `package.module:Name` of a function, a class, or the class of an object."""
    component = _without_options(component)
    named = component if hasattr(component, "__qualname__") else type(component)
    return f"{named.__module__}:{named.__qualname__}"


def describe(value: object) -> str:
    """Return a short description of a value for a message: its type, and the value if it is short."""
    text = reprlib.repr(value) if isinstance(value, str | bytes | int | float) else ""
    return "None" if value is None else f"{type(value).__name__} {text}".strip()


def _inherited_spec(cls: type, name: str) -> _Spec | None:
    specs = (getattr(vars(base).get(name), _SPEC, None) for base in cls.__mro__[1:])
    return next((spec for spec in specs if spec is not None), None)


def _guard_method(name: str, function: Callable[..., Any], spec: _Spec) -> Callable[..., Any]:
    def guard(component: Guarded, arguments: tuple[Any, ...]) -> Any:
        return calling(component.component_kind, component, name, *arguments, fails_episode=spec.fails_episode)

    if spec.is_async:

        @functools.wraps(function)
        async def wrapper(self: Guarded, *arguments: Any, **keywords: Any) -> Any:
            with guard(self, arguments):
                result = function(self, *arguments, **keywords)
                if not inspect.isawaitable(result):
                    raise InvalidResultError(f"{name} must be declared with `async def`")
                result = await result
                if spec.check is not None:
                    spec.check(result, *arguments, **keywords)
                return result

    else:

        @functools.wraps(function)
        def wrapper(self: Guarded, *arguments: Any, **keywords: Any) -> Any:
            with guard(self, arguments):
                result = function(self, *arguments, **keywords)
                if inspect.iscoroutine(result):
                    result.close()
                    raise InvalidResultError(f"{name} must be declared with `def`, not `async def`")
                if spec.check is not None:
                    spec.check(result, *arguments, **keywords)
                return result

    setattr(wrapper, _SPEC, spec)
    return wrapper


def _guarded_items(
    values: Iterable[Any], kind: str, function: Callable[..., Any], arguments: tuple[Any, ...], check: Check | None
) -> Iterator[Any]:
    with calling(kind, function, "", *arguments):
        for value in values:
            if check is not None:
                check(value)
            yield value


def _first_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = (error.subgroup(TorlError) or error).exceptions[0]
    return error


def _subject(kind: str, component: object) -> str:
    return f"the {kind} ({location(component)})"


def _call(component: object, method: str, arguments: tuple[Any, ...]) -> str:
    name = method or location(component).rpartition(":")[2]
    rest = ", ..." if len(arguments) > 1 else ""
    return f"{name}({_argument(arguments[0])}{rest})" if arguments else f"{name}()"


def _argument(value: object) -> str:
    if isinstance(value, str | int | float | Mapping | None):
        return reprlib.repr(value)
    problem = getattr(getattr(value, "prompt", None), "problem", value)
    identity = getattr(problem, "id", None)
    return type(value).__name__ if identity is None else f"{type(value).__name__} of problem {identity!r}"


def _without_options(component: object) -> object:
    while isinstance(component, functools.partial):
        component = component.func
    return component


def _function_of(component: object, method: str) -> Any:
    component = _without_options(component)
    return inspect.unwrap(getattr(type(component), method, component) if method else component)  # type: ignore[arg-type]


def _definition(component: object, method: str) -> str:
    code = getattr(_function_of(component, method), "__code__", None)
    return "" if code is None else f"at {code.co_filename}:{code.co_firstlineno} in {code.co_name}"


def _place(component: object, error: BaseException) -> str:
    """Return the last line of the traceback in the component's own code, or else the last of all."""
    try:
        own_file = inspect.getsourcefile(_function_of(component, "") if callable(component) else type(component))
    except TypeError:  # built-in, or defined without a file
        own_file = None
    return _format_frame((_custom_frames(error, own_file) or traceback.extract_tb(error.__traceback__))[-1])


def place_in_custom_code(error: BaseException) -> str:
    """Return the last line of the traceback that is neither in a library nor in torl; empty if there is none."""
    frames = _custom_frames(error)
    return _format_frame(frames[-1]) if frames else ""


def _custom_frames(error: BaseException, own_file: str | None = None) -> list[traceback.FrameSummary]:
    """Return the lines of the traceback that are in `own_file`, or neither in a library nor in torl."""
    frames = traceback.extract_tb(error.__traceback__)
    return [each for each in frames if each.filename == own_file or not each.filename.startswith(_LIBRARIES)]


def _format_frame(frame: traceback.FrameSummary) -> str:
    line = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
    return f"at {frame.filename}:{frame.lineno} in {frame.name}{f': {line}' if line else ''}"
