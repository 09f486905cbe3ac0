"""Functions as tools."""

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pydantic import PydanticUserError, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, to_json

from torl.base.errors import ConfigError, TorlError
from torl.base.options import Choice, arguments_of, load_object, suggestion
from torl.base.runtime.processes.supervision import call_function
from torl.base.trust import is_trusted
from torl.base.types import Outcome, OutcomeStatus
from torl.components.tools.tool import BaseTool, Tool

_SECTION = re.compile(r"^(Args|Arguments|Returns|Yields|Raises|Examples?):$", re.MULTILINE)


class FunctionTool(Tool):
    """Calls a function: a coroutine function in the event loop, any other function in a thread.

    The schema comes from the type hints, and the descriptions from the docstring and its "Args:". The model sees the
    result as text, and an exception as an error: the call is the model's own. A `TorlError` is a failure of the host.
    """

    checks_arguments = True

    def __init__(self, function: str) -> None:
        """Import the function.

        Args:
            function: Location of the function, as package.module:look_up.

        Raises:
            ConfigError: `function` cannot be imported, or lacks a docstring or a type hint.
        """
        try:
            self._function = load_object(function)
            self._arguments = arguments_of(self._function)
            self.description, self.parameters = describe_function(self._function)
        except ValueError as error:
            raise ConfigError(f"the tool {function!r}: {error}") from error

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        try:
            validated = self._arguments.model_validate(dict(arguments))
        except ValidationError as errors:
            return Outcome(OutcomeStatus.ERROR, f"TypeError: {self._explain(errors)}", "TypeError")
        values = {name: getattr(validated, name) for name in type(validated).model_fields}
        try:
            return Outcome(OutcomeStatus.OK, as_text(await call_function(self._function, **values)))
        except TorlError:
            raise
        except Exception as error:
            name = type(error).__name__
            return Outcome(OutcomeStatus.ERROR, f"{name}: {error}", name)

    def _explain(self, errors: ValidationError) -> str:
        names = list(self._arguments.model_fields)
        return "; ".join(_explain(error, names) for error in errors.errors())


def declared_parameters(choice: Choice[BaseTool]) -> object:
    """Return the JSON schema of the arguments of a tool that is not made yet; None if it is not known."""
    if choice.target is FunctionTool and is_trusted():
        with suppress(ConfigError):  # which making the tool raises
            return FunctionTool(**choice.options.model_dump()).parameters
    return getattr(choice.target, "parameters", None)


def describe_function(function: Callable[..., Any]) -> tuple[str, dict[str, Any]]:
    """Return the description of a function for the model, and the JSON schema of its arguments.

    Raises:
        ValueError: The function lacks a docstring or a type hint, or has a parameter without a JSON schema.
    """
    try:
        parameters = arguments_of(function).model_json_schema(schema_generator=_UntitledSchema)
    except PydanticUserError as error:
        raise ValueError(f"a parameter has no JSON schema: {error}") from error
    description = _SECTION.split(inspect.getdoc(function) or "")[0].strip()
    if not description:
        raise ValueError("it has no docstring, which the model needs as the description")
    return description, parameters


class _UntitledSchema(GenerateJsonSchema):
    """JSON schemas without titles, which repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: CoreSchema, mode: Any = "validation") -> dict[str, Any]:
        generated = super().generate(schema, mode)
        generated.pop("title", None)
        return generated


def as_text(value: Any) -> str:
    """Return a result as text for the model: text unchanged, None as an empty text, other values as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else to_json(value, fallback=str).decode()


def _explain(error: Any, names: list[str]) -> str:
    argument = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return f"there is no argument {argument!r}{suggestion(argument, names)}"
    if error["type"] == "missing":
        return f"the argument {argument!r} is missing"
    return f"the argument {argument!r}: {error['msg']}"
