"""Any Python function with type hints and a docstring as a tool."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import PydanticUserError, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, to_json

from torl.errors import ConfigError, TorlError
from torl.options import arguments_of, load_object, suggestion
from torl.runtime.processes.supervision import run_in_thread
from torl.tools.base import Tool
from torl.types import Outcome, OutcomeStatus

_SECTION = re.compile(r"^(Args|Arguments|Returns|Yields|Raises|Examples?):$", re.MULTILINE)


class FunctionTool(Tool):
    """Calls a function of this process: a coroutine function in the event loop, any other in a thread.

    Its schema comes from its type hints, its description from its docstring, and what "Args:" says of each parameter.
    What the function raises is the model's to see; a `TorlError` is the host's.
    """

    def __init__(self, function: str) -> None:
        """Import the function.

        Args:
            function: Where it is found, as package.module:look_up.

        Raises:
            ConfigError: it is not there, or lacks a docstring or a type hint.
        """
        try:
            self._function = load_object(function)
            self._arguments = arguments_of(self._function)
            self.description, self.parameters = describe_function(self._function)
        except ValueError as error:
            raise ConfigError(f"the tool {function!r}: {error}") from error

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        """Call the function; arguments that it does not take are an error that says which and why."""
        try:
            given = self._arguments.model_validate(dict(arguments))
        except ValidationError as errors:
            return Outcome(OutcomeStatus.ERROR, f"TypeError: {self._explained(errors)}", "TypeError")
        values = {name: getattr(given, name) for name in type(given).model_fields}
        try:
            if inspect.iscoroutinefunction(self._function):
                result = await self._function(**values)
            else:
                result = await run_in_thread(self._function, **values)
            return Outcome(OutcomeStatus.OK, as_text(result))
        except TorlError:
            raise
        except Exception as error:
            name = type(error).__name__
            return Outcome(OutcomeStatus.ERROR, f"{name}: {error}", name)

    def _explained(self, errors: ValidationError) -> str:
        names = list(self._arguments.model_fields)
        return "; ".join(_explained(error, names) for error in errors.errors())


def describe_function(function: Callable[..., Any]) -> tuple[str, dict[str, Any]]:
    """What a model is told of a function: its description, and the JSON schema of its arguments.

    Raises:
        ValueError: it lacks a docstring or a type hint, or no schema can be made of one.
    """
    try:
        parameters = arguments_of(function).model_json_schema(schema_generator=_Untitled)
    except PydanticUserError as error:
        raise ValueError(f"no schema can be made of its parameters: {error}") from error
    description = _SECTION.split(inspect.getdoc(function) or "")[0].strip()
    if not description:
        raise ValueError("it has no docstring, which would tell a model what it does")
    return description, parameters


class _Untitled(GenerateJsonSchema):
    """Schemas without titles, which repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: CoreSchema, mode: Any = "validation") -> dict[str, Any]:
        made = super().generate(schema, mode)
        made.pop("title", None)
        return made


def as_text(value: Any) -> str:
    """A result as a model reads it: a text as it is, nothing as nothing, anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else to_json(value, fallback=str).decode()


def _explained(error: Any, names: list[str]) -> str:
    place = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return f"there is no argument {place!r}{suggestion(place, names)}"
    if error["type"] == "missing":
        return f"the argument {place!r} is missing"
    return f"the argument {place!r}: {error['msg']}"
