"""Messages of chat models: thinking, calls as JSON, the kinds of malformed calls, and the other text."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from torl.base.types import MalformedCall, ToolRequest
from torl.base.types.turns import ARGUMENT_KEYS

TRUNCATED_CALL = "CutCall"
INVALID_JSON = "InvalidJSON"
INVALID_CALL = "InvalidCall"

BARE_CALL_TAIL = re.compile(r"(?!\s*[\]},:\"])(?:\s*;(?=\s*\{))?")
"""Text after a call that ends with its JSON: not more JSON. Several may be separated by semicolons."""

_SPACE = re.compile(r"\s*")
_WINDOW, _MAX_TOKEN = 256, 16
_LENIENT = json.JSONDecoder(parse_constant=str, parse_float=str, parse_int=str)


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A call as a chat model wrote it.

    Attributes:
        request: The parsed call.
        name: Name that the result is addressed with, in templates that have one.
        id: Id that the model gave the call, in templates that repeat it.
        text: Text of the call with its markup, as a message shows a call that is not made.
    """

    request: ToolRequest | MalformedCall
    name: str = ""
    id: str = ""
    text: str = ""

    @property
    def is_malformed(self) -> bool:
        """Whether the call cannot be made."""
        return isinstance(self.request, MalformedCall)


def parse_named_call(text: str, arguments: str = "arguments") -> ToolRequest | MalformedCall:
    """Return the call of JSON that names its tool: `{"name": "python", "arguments": {"code": "print(1)"}}`.

    `arguments` is the family's key of the arguments; any of `ARGUMENT_KEYS` is read. Their value may also be text with
    their JSON. A call without arguments has an empty object. "type" and "id" are read over.
    """
    call = parse_object(text)
    if isinstance(call, MalformedCall):
        return call
    if "name" not in call:
        return MalformedCall(INVALID_CALL, f'the tool call has no "name" of a tool, got {_quoted(*call) or "no key"}')
    name = call.pop("name")
    if not isinstance(name, str) or not name:
        return MalformedCall(INVALID_CALL, f'the "name" of the tool call must be text, got {_kind(name)}')
    if call.get("type") == "function":
        del call["type"]
    call.pop("id", None)
    keys = [key for key in ARGUMENT_KEYS if key in call]
    key = keys[0] if keys else arguments
    value = call.pop(key, {})
    if call:
        found = _quoted(*call)
        return MalformedCall(INVALID_CALL, f'the call of {name!r} may only have "name" and "{arguments}", got {found}')
    return make_call(name, value, f'the text in "{key}"')


def make_call(name: str, arguments: Any, subject: str = "the tool call") -> ToolRequest | MalformedCall:
    """Return a call of the tool `name`; the arguments are an object, or text with its JSON, perhaps encoded twice.

    Errors of the JSON are those of the `subject`.
    """
    if not name:
        return MalformedCall(INVALID_CALL, "the tool call has no name of a tool")
    error = INVALID_CALL
    for _ in range(2):
        if isinstance(arguments, str):
            arguments, error = parse_json(arguments, subject), INVALID_JSON
    if isinstance(arguments, dict):
        return ToolRequest(name, arguments)
    if isinstance(arguments, MalformedCall):
        return arguments
    return MalformedCall(error, f"the arguments of {name!r} must be a JSON object, got {_kind(arguments)}")


def parse_object(text: str) -> dict[str, Any] | MalformedCall:
    """Return a JSON object that can be written again (`parse_json`)."""
    value = parse_json(text)
    if isinstance(value, dict | MalformedCall):
        return value
    return MalformedCall(INVALID_JSON, f"the tool call is not a JSON object, got {_kind(value)}")


def parse_json(text: str, subject: str = "the tool call") -> Any:
    """Return a JSON value that can be written again: finite numbers, single keys, and no half of a surrogate pair."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_single_keys)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        return MalformedCall(INVALID_JSON, f"{subject} is nested too deeply")
    except UnicodeEncodeError:
        return MalformedCall(INVALID_JSON, f"{subject} holds half of a surrogate pair")
    except ValueError as error:
        return MalformedCall(INVALID_JSON, f"{subject} is not JSON: {error}")
    return value


def json_end(text: str, start: int) -> tuple[int, bool]:
    """Return where the JSON value that begins at `start` ends, and whether it is complete.

    An incomplete value ends where it is no longer JSON. Tags inside its strings are part of it. The time is
    proportional to the length of the value, not of the text: an error of the decoder counts the lines before it.
    """
    begin = _SPACE.match(text, start).end()  # type: ignore[union-attr]  # the pattern matches anywhere
    length = _WINDOW
    while True:
        window, is_cut = text[begin : begin + length], begin + length < len(text)
        try:
            stop = _LENIENT.raw_decode(window)[1]
        except RecursionError:  # a value inside it would be tried next, and is as deep
            return begin + len(window), False
        except json.JSONDecodeError as error:
            ends_early = error.msg.startswith("Unterminated string") or error.pos > length - _MAX_TOKEN
            if not (is_cut and ends_early):
                return begin + error.pos, False
        else:
            if not (is_cut and stop == length):
                return begin + stop, True
        length *= 2


def _kind(value: Any) -> str:
    """Return a description of a JSON value."""
    if isinstance(value, str | list | dict) and value:
        return "text" if isinstance(value, str) else "a list" if isinstance(value, list) else "an object"
    return json.dumps(value)


def _quoted(*keys: str) -> str:
    return ", ".join(json.dumps(key, ensure_ascii=False) for key in keys)


def _single_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"an object has the key {_quoted(key)} twice")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number in JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)


THINKING_BEGINS, THINKING_ENDS = "<think>", "</think>"


class Tag(NamedTuple):
    """A <think> or </think>, and its place in a text."""

    start: int
    text: str


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """The content of a message of a model.

    Attributes:
        parts: The text outside the thinking, and the calls, in order.
        thinking: Closed thinking without its tags, or None. Thinking that is not closed is text
            without calls.
    """

    parts: Sequence[str | ChatCall]
    thinking: str | None = None

    @property
    def calls(self) -> list[ChatCall]:
        """The calls, in order."""
        return [part for part in self.parts if isinstance(part, ChatCall)]

    def text(self, shows: Callable[[ChatCall], bool] = lambda _: False) -> str:
        """Return the text without surrounding whitespace, with the text of the calls that `shows` selects."""
        texts = (part if isinstance(part, str) else part.text if shows(part) else "" for part in self.parts)
        return "".join(texts).strip()


def split_thinking(text: str, tags: Sequence[Tag], *, opened: bool) -> tuple[list[str], list[str], str]:
    """Return the thinking of a message, its other text, and the text of thinking that is not closed.

    The message begins with thinking if the template has opened it or its first tag is </think>.
    """
    thoughts, others, start = list[str](), list[str](), 0
    thinks = opened or (bool(tags) and tags[0].text == THINKING_ENDS)
    for tag in tags:
        if thinks and tag.text == THINKING_ENDS:
            thoughts.append(text[start : tag.start].removeprefix(THINKING_BEGINS).strip())
            thinks, start = False, tag.start + len(THINKING_ENDS)
        elif not thinks and tag.text == THINKING_BEGINS:
            others.append(text[start : tag.start])
            thinks, start = True, tag.start
    return (thoughts, others, text[start:]) if thinks else (thoughts, [*others, text[start:]], "")
