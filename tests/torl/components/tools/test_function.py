"""A custom function as a tool: its schema, its arguments, its results, and its exceptions."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from torl.base.errors import ConfigError, ToolUnavailableError
from torl.base.options import PositiveInt
from torl.base.types import Outcome, OutcomeStatus
from torl.components.tools import BoundedTool, FunctionTool, make_tool
from torl.run.config import RolloutConfig

LET_GO = threading.Event()


class Place(BaseModel):
    """Somewhere."""

    city: str
    country: str = "France"


def look_up(name: str, count: PositiveInt = 3, unit: Literal["km", "mi"] = "km") -> list[dict[str, Any]]:
    """Distances to a city.

    The nearest first.

    Args:
        name: What the city is called,
            in English.
        count (int, optional): How many.

    Returns:
        What a model need not know.
    """
    return [{"to": name, "unit": unit}] * count


async def where(place: Place, note: str | None = None) -> str:
    """Say where a place is."""
    await asyncio.sleep(0)
    return f"{place.city} is in {place.country}"


def thread_name() -> str:
    """The thread."""
    return threading.current_thread().name


def silent() -> None:
    """Give nothing."""


def fails(how: str) -> str:
    """Raise an error with the given text."""
    raise {"value": ValueError("no such city"), "line": ToolUnavailableError("the line is dead")}[how]


def unhinted(name) -> str:  # type: ignore[no-untyped-def]
    """Has a parameter without a type hint."""
    return str(name)


def unsaid(name: str) -> str:
    return name


def variable(*names: str) -> str:
    """Takes any number."""
    return "".join(names)


def strange(name: Callable[[], str]) -> str:
    """Takes what no schema describes."""
    return name()


def configured(model_config: str) -> str:
    """Takes a name that pydantic has taken."""
    return model_config


def circular() -> list[Any]:
    """Is within itself."""
    result: list[Any] = []
    result.append(result)
    return result


def endless(let_go: bool = False) -> str:
    """Waits."""
    _ = LET_GO.set() if let_go else LET_GO.wait()
    return "free"


def tool(function: Callable[..., Any]) -> FunctionTool:
    return FunctionTool(f"{__name__}:{function.__name__}")


def test_schema_and_description_are_read_from_the_function() -> None:
    made = tool(look_up)
    assert made.description == "Distances to a city.\n\nThe nearest first."
    assert made.parameters == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "What the city is called, in English."},
            "count": {"type": "integer", "exclusiveMinimum": 0, "default": 3, "description": "How many."},
            "unit": {"type": "string", "enum": ["km", "mi"], "default": "km"},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "arguments",
    [{"name": "Rome"}, {"name": "Rome", "count": 0}, {"name": 1}, {"count": 2}, {"name": "a", "unit": "m"}, {"x": 1}],
)
async def test_schema_allows_accepted_arguments(arguments: dict[str, Any]) -> None:
    made = tool(look_up)
    assert Draft202012Validator(made.parameters).is_valid(arguments) == (await made.call(arguments)).ok


async def test_results_are_texts_or_json() -> None:
    assert await tool(look_up).call({"name": "Köln", "count": 1}) == Outcome(
        OutcomeStatus.OK, '[{"to":"Köln","unit":"km"}]'
    )
    assert (await tool(where).call({"place": {"city": "Paris"}})).text == "Paris is in France"
    assert await tool(silent).call({}) == Outcome(OutcomeStatus.OK, "")


async def test_result_that_is_not_json_is_an_error_for_the_model() -> None:
    outcome = await tool(circular).call({})
    assert (outcome.status, outcome.error) == (OutcomeStatus.ERROR, "PydanticSerializationError")


async def test_functions_that_do_not_return_hold_up_no_other() -> None:
    held = [asyncio.ensure_future(tool(endless).call({})) for _ in range(100)]
    await asyncio.sleep(0)  # all of them are called
    assert (await tool(endless).call({"let_go": True})).text == "free"
    assert {outcome.text for outcome in await asyncio.gather(*held)} == {"free"}


async def test_a_plain_function_does_not_hold_up_the_event_loop() -> None:
    assert (await tool(thread_name).call({})).text != threading.current_thread().name


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "TypeError: the argument 'name' is missing"),
        ({"name": "a", "cuont": 1}, "TypeError: there is no argument 'cuont'; did you mean count?"),
        ({"name": "a", "count": "many"}, "TypeError: the argument 'count': Input should be a valid integer, unable"),
        ({"name": "a", "unit": "m"}, "TypeError: the argument 'unit': Input should be 'km' or 'mi'"),
        ({"name": 1, "count": 0}, "TypeError: the argument 'name': Input should be a valid string; the argument 'coun"),
    ],
)
async def test_wrong_arguments_are_explained_to_the_model(arguments: dict[str, Any], text: str) -> None:
    outcome = await tool(look_up).call(arguments)
    assert (outcome.status, outcome.error) == (OutcomeStatus.ERROR, "TypeError")
    assert outcome.text.startswith(text)


async def test_exceptions_are_shown_to_the_model_except_host_errors() -> None:
    assert await tool(fails).call({"how": "value"}) == Outcome(
        OutcomeStatus.ERROR, "ValueError: no such city", "ValueError"
    )
    with pytest.raises(ToolUnavailableError, match="the line is dead"):
        await tool(fails).call({"how": "line"})


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (f"{__name__}:unhinted", "unhinted: the parameter 'name' has no type hint"),
        (f"{__name__}:unsaid", "has no docstring"),
        (f"{__name__}:variable", r"variable: the parameter \*names: str cannot be passed by name"),
        (f"{__name__}:strange", ":strange': a parameter has no (JSON )?schema"),
        (f"{__name__}:configured", "'model_config' has a meaning in pydantic; rename the parameter"),
        (f"{__name__}:look_pu", "has no look_pu; did you mean look_up?"),
    ],
)
def test_functions_that_are_not_tools_are_refused(place: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FunctionTool(place)


def test_a_section_names_the_function_alone() -> None:
    place = f"{__name__}:look_up"
    section = {"function": place, "timeout_seconds": 2}
    choice = RolloutConfig.model_validate({"tools": {"distances": section}}).tools["distances"]
    assert choice.name == "function"
    made = make_tool("distances", choice)
    assert isinstance(made, BoundedTool)
    assert made.limits.timeout_seconds == 2
    assert made.parameters == tool(look_up).parameters
    again = RolloutConfig.model_validate({"tools": {"distances": choice.dump()}}).tools["distances"]
    assert again == choice
