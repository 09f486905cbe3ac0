"""Tools and calls of examples, in the form that chat templates get in a rollout."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from torl.base.errors import DataError
from torl.base.inputs import parse_json
from torl.base.types.turns import ARGUMENT_KEYS
from torl.components.data.rows import TOOL_FIELDS, describe, has_value, is_given, is_missing, note_unread
from torl.components.data.values import name_columns

_FUNCTION = ("name", "description", "parameters")
"""Fields of a tool in their order in a rollout, which is that of the text of a chat template."""


def read_tools(
    location: str, row: Mapping[str, Any], messages: Sequence[Mapping[str, Any]] = ()
) -> tuple[Mapping[str, Any], ...]:
    """Read the schemas of a row's tools: a list, or the JSON of one, with or without OpenAI's "function" around each.

    Tools that a system message describes already, as in Hermes' files, are left out: the template would repeat them.

    Raises:
        DataError: The value is not a list of objects with names, or the row has two different ones.
    """
    given = {name: row[name] for name in TOOL_FIELDS if is_given(row, name)}
    read = [
        tuple(_schema(location, name, tool) for tool in read_objects(location, name, tools))
        for name, tools in given.items()
    ]
    if len(read) > 1 and read[0] != read[1]:
        raise DataError(f"{location}: {' and '.join(map(repr, given))} are different tools")
    tools = read[0] if read else ()
    system = messages[0]["content"] if messages and messages[0]["role"] == "system" else ""
    described = system.rpartition("<tools>")[2].partition("</tools>")[0] if "</tools>" in system else ""
    if tools and all(json.dumps(tool["function"]["name"]) in described for tool in tools):
        return ()
    return tools


def _schema(location: str, field: str, tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool as a rollout has it, with the other fields of its file after these."""
    outer = {name: value for name, value in tool.items() if not is_missing(value) and name != "type"}
    is_flat = "function" not in outer
    function = outer if is_flat else outer.pop("function")
    if isinstance(function, str):
        function = _parse(location, f"{field}.function", function)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise DataError(f"{location}: {field!r} has a tool without a name{name_columns(function)}")
    function = {name: value for name, value in function.items() if not is_missing(value)}
    where = f"{location}: the tool {function['name']!r} of {field!r}"
    if "parameters" in function:
        function["parameters"] = _object(where, "parameters", function["parameters"])
        if "properties" in function["parameters"]:
            properties = _object(where, "properties", function["parameters"]["properties"])
            function["parameters"] = {**function["parameters"], "properties": properties}
    ordered = {name: function[name] for name in _FUNCTION if name in function}
    return {"type": "function", "function": {**ordered, **function}, **({} if is_flat else outer)}


def read_call(where: str, call: Mapping[str, Any], unread: set[str]) -> dict[str, Any]:
    """Read a tool call, with or without OpenAI's "function" around it. Its arguments become an object.

    Raises:
        DataError: The call has no name, or its arguments are not an object.
    """
    function = call if is_missing(call.get("function")) else call["function"]
    if isinstance(function, str):
        function = _parse(where, "function", function)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise DataError(f"{where}: a tool call must have a function with a name and arguments{name_columns(function)}")
    note_unread(where, call, ("id", "type", "function", *(function if function is call else ())), unread, " of calls")
    note_unread(where, function, ("id", "type", "name", *ARGUMENT_KEYS), unread, " of calls")
    given = [name for name in ARGUMENT_KEYS if not is_missing(function.get(name))]
    others = [
        name for name in function if name not in ("id", "type", "name", *ARGUMENT_KEYS) and has_value(function[name])
    ]
    if len(given) > 1 or (not given and others):
        raise DataError(
            f"{where}: the call of {function['name']!r} must have either 'arguments' or 'parameters'"
            f"{name_columns(function)}"
        )
    arguments: Any = function[given[0]] if given else {}
    for _ in range(2):  # some files encode them twice
        if isinstance(arguments, str):
            arguments = _parse(where, "arguments", arguments) if arguments.strip() else {}
    if arguments is None or arguments == []:
        arguments = {}
    if not isinstance(arguments, dict):
        raise DataError(f"{where}: the arguments of {function['name']!r} must be an object, got {describe(arguments)}")
    return {
        **({} if is_missing(call.get("id")) else {"id": call["id"]}),
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }


def written_calls(where: str, value: Any) -> tuple[str, list[Any]]:
    """Return the thinking before calls that are written as JSON, and the calls; raise `DataError` for other texts."""
    thinking = ""
    if isinstance(value, str):
        is_json = value.lstrip().startswith(("{", "["))
        before, end, written = ("", "", value) if is_json else value.rpartition("</think>")
        thinking, value = before + end, _parse(where, "value", written)
    return thinking, value if isinstance(value, list) else [value]


def _parse(where: str, field: str, text: str) -> Any:
    """Return the value of a JSON text."""
    try:
        return parse_json(text)
    except ValueError as error:
        raise DataError(f"{where}: {field!r} must be JSON: {error}") from error


def read_objects(where: str, field: str, value: Any) -> list[dict[str, Any]]:
    """Read a list of objects; the list and each object may be JSON. Raises `DataError` for other values."""
    if isinstance(value, str):
        value = _parse(where, field, value)
    if not isinstance(value, list):
        raise DataError(f"{where}: {field!r} must be a list of objects, got {describe(value)}")
    return [
        member if isinstance(member, dict) else _object(where, f"{field}[{place}]", member)
        for place, member in enumerate(value)
    ]


def _object(where: str, field: str, value: Any) -> dict[str, Any]:
    found = value
    if isinstance(value, str):
        with suppress(ValueError):
            found = parse_json(value)
    if not isinstance(found, dict):
        shown = f"the text {value!r:.60}" if isinstance(value, str) else describe(value)
        raise DataError(f"{where}: {field!r} must be an object, or the JSON of one, got {shown}")
    return found
