"""Results of tools in plain text: a model has invented them, or an example shows a whole response."""

import re
from collections.abc import Iterator
from functools import cache

from torl.base.options import import_object
from torl.base.types import MalformedCall
from torl.components.formats import FORMATS, ChatFormat, Format
from torl.components.formats.chat.calls import TRUNCATED_CALL

_PYTHONIC_CALLS = re.compile(r"(?:\A|\|>)\s*\[\s*[^\W\d][\w .:/-]*\(\s*(?:[^\W\d]\w*\s*=(?!=)|\)\s*[],])")
"""Calls in data of Llama 4, LFM2 and ToolACE: `[weather(city="Rome")]`, at the beginning or after a tag."""
_LISTED_CALLS = re.compile(r'(?:\A|\|>)\s*\[\s*\{\s*"name"\s*:\s*"[^"]*"\s*,\s*"(?:arguments|parameters)"\s*:')
"""Calls in data of xLAM: `[{"name": "weather", "arguments": {"city": "Rome"}}]`."""


def invented_results(text: str, tags: tuple[str, str], *, ends_with_call: bool) -> Iterator[tuple[int, int]]:
    """Yield the first and last character, exclusive, of each result that a model wrote itself. Nothing ran for it.

    A format may end a turn at the opening tag of the result ("```output"). This tag is not an invented result.

    Args:
        text: Sampled text of a turn.
        tags: Text before and after a result (`Format.result_tags`).
        ends_with_call: Whether the turn ended with a tool call.
    """
    opening, closing = tags
    position, length = 0, len(text.rstrip())
    while (start := text.find(opening, position)) >= 0:
        content = start + len(opening)
        if ends_with_call and content >= length:
            return
        end = text.find(closing, content)
        position = len(text) if end < 0 else end + len(closing)
        yield start, position


def split_results(text: str, format: Format) -> Iterator[tuple[str, bool]]:
    """Split a whole response into parts, each with whether it is a result, which the model does not write.

    Where the opening tag ends a turn ("```output"), it is the model's. A result ends with its closing tag and the line
    ends that the format puts after it; one that is never closed is text.
    """
    opening, closing = format.result_tags or ("", "")
    is_sampled = opening.encode() == format.stop_condition().marker_bytes
    position = 0
    while opening and (start := text.find(opening, position)) >= 0:
        content = start + len(opening)
        stop = text.find(closing, content) + len(closing)
        if stop < content:
            break
        written = text[position:content] if is_sampled else text[position:start].rstrip()
        if written:
            yield written, False
        after = text[stop : stop + format.result_line_ends]
        stop += len(after) - len(after.lstrip("\n"))
        yield text[position + len(written) : stop], True
        position = stop
    if position < len(text):
        yield text[position:], False


def unread_markup(text: str, format: Format) -> Iterator[str]:
    """Yield what a text of the model has that its format does not read: others' results and calls, malformed calls."""
    for (opening, closing), name in _formats_by_result_tags().items():
        if (opening, closing) != format.result_tags and closing in text.partition(opening)[2]:
            yield f"with results between {opening} and {closing}, as rollout.format = {name!r} reads them"
    rest = text
    if isinstance(format, ChatFormat):
        message = format.read_message(text)
        rest = message.text()
        errors = [call.request.error for call in message.calls if isinstance(call.request, MalformedCall)]
        if set(errors) - {TRUNCATED_CALL}:  # which may be the mention of a tag
            yield f"with calls that rollout.format = {format.name!r} cannot read"
    readings = ((name, each.read_message(rest)) for name, each in _chat_formats() if name != format.name)
    other = next((name for name, each in readings if not all(call.is_malformed for call in each.calls)), None)
    if other is not None:
        yield f"with calls that rollout.format = {format.name!r} cannot read, as {other!r} reads them"
    elif _PYTHONIC_CALLS.search(rest) is not None:
        yield "with calls written as [NAME(KEY=VALUE)], which no format reads"
    elif _LISTED_CALLS.search(rest) is not None:
        yield "with calls in a list of JSON, which no format reads"


@cache
def _chat_formats() -> list[tuple[str, ChatFormat]]:
    """Return the registered chat formats, by their names."""
    kinds = [(name, kind) for name, kind in FORMATS.items() if isinstance(kind, type) and issubclass(kind, ChatFormat)]
    return [(name, kind()) for name, kind in kinds]


@cache
def _formats_by_result_tags() -> dict[tuple[str, str], str]:
    """Return the first registered format with each pair of tags."""
    tags = {name: result_tags_of(name) for name in FORMATS}
    return {found: name for name, found in reversed(tags.items()) if found is not None}


@cache
def result_tags_of(format_name: str) -> tuple[str, str] | None:
    """Return the result tags of a registered format by its name in the records; None for other formats."""
    target = FORMATS.get(format_name)
    loaded = import_object(target) if isinstance(target, str) else target
    tags: tuple[str, str] | None = getattr(loaded, "result_tags", None)
    return tags
