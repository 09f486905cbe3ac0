"""Calls that chat models write as JSON, and the kinds of malformed calls."""

import json
import math
from typing import Any, NoReturn

from torl.types import MalformedCall, ToolRequest

TRUNCATED_CALL = "CutCall"
INVALID_JSON = "InvalidJSON"
INVALID_CALL = "InvalidCall"


def parse_named_call(text: str, arguments: str = "arguments") -> ToolRequest | MalformedCall:
    """Return the call of JSON that names its tool: `{"name": "python", "arguments": {"code": "print(1)"}}`.

    `arguments` is the key of the arguments; their value may also be a string with their JSON.
    """
    call = parse_object(text)
    if isinstance(call, MalformedCall):
        return call
    name = call.get("name")
    if not isinstance(name, str) or not name:
        return MalformedCall(INVALID_CALL, 'the tool call has no "name"')
    return make_call(name, call.get(arguments, {}))


def make_call(name: str, arguments: Any) -> ToolRequest | MalformedCall:
    """Return a call of the tool `name`; the arguments are an object, or text with the JSON of one."""
    if isinstance(arguments, str):
        arguments = parse_object(arguments)
    if isinstance(arguments, MalformedCall):
        return arguments
    if not isinstance(arguments, dict):
        return MalformedCall(INVALID_CALL, f"the arguments of {name!r} must be a JSON object")
    return ToolRequest(name, arguments)


def parse_object(text: str) -> dict[str, Any] | MalformedCall:
    """Return a JSON object that can be written again: finite numbers, and no half of a surrogate pair."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        return MalformedCall(INVALID_JSON, f"the tool call is not JSON: {error}")
    except RecursionError:
        return MalformedCall(INVALID_JSON, "the tool call is nested too deeply")
    except UnicodeEncodeError:
        return MalformedCall(INVALID_JSON, "the tool call holds half of a surrogate pair")
    except ValueError as error:
        return MalformedCall(INVALID_JSON, f"the tool call is not JSON: {error}")
    if not isinstance(value, dict):
        return MalformedCall(INVALID_JSON, "the tool call is not a JSON object")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number in JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)
