"""Results of tools that a model wrote itself, in text that it sampled: nothing ran for them."""

from collections.abc import Iterator
from functools import cache

from torl.formats import FORMATS
from torl.options import load_object


def invented_results(text: str, tags: tuple[str, str], *, ends_with_call: bool) -> Iterator[tuple[int, int]]:
    """Yield the first and last character, exclusive, of each result in the text of a turn.

    A format may end a turn at the opening tag of the result ("```output"). This tag is not an invented result.

    Args:
        text: Sampled text of a turn.
        tags: Text before and after a result (`Format.result_tags`).
        ends_with_call: Whether the turn ended with a tool call.
    """
    opening, closing = tags
    position = 0
    while (start := text.find(opening, position)) >= 0:
        content = start + len(opening)
        if ends_with_call and not text[content:].strip():
            return
        end = text.find(closing, content)
        position = len(text) if end < 0 else end + len(closing)
        yield start, position


@cache
def result_tags_of(format_name: str) -> tuple[str, str] | None:
    """Return the result tags of a registered format by its name in the records; None for other formats."""
    target = FORMATS.get(format_name)
    loaded = load_object(target) if isinstance(target, str) else target
    tags: tuple[str, str] | None = getattr(loaded, "result_tags", None)
    return tags
