"""Search the trajectories of a query for a regular expression, in the order of a list, as a stream of results."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

from torl.base.runtime.processes.children import ChildExitedError, JsonChild
from torl.base.runtime.processes.supervision import run_in_thread
from torl_lab.view.columns import Array
from torl_lab.view.rows import Place, places_of, summaries
from torl_lab.view.selection import Matches, ordered

MAX_RESULTS: Final = 500
_MODULE: Final = "torl_lab.view.pattern_search"
_BATCH: Final = 500
_FIRST_BATCH: Final = 50


async def search_pattern(
    matches: Sequence[Matches], expression: str, sort: str, *, descending: bool
) -> AsyncIterator[bytes]:
    """Yield lines of JSON: `{"found": trajectory}`, and `{"searched": count, "total": count}` after each batch.

    Closing the iterator stops the search. It also ends after `MAX_RESULTS` results. The expression is valid
    (`check_expression`).
    """
    order = await asyncio.to_thread(ordered, matches, sort, descending=descending)
    child = JsonChild(_MODULE)
    searched = results = 0
    try:
        await run_in_thread(child.send, expression)
        for rows in _batches(order):
            batch = places_of(matches, rows)
            spans = await asyncio.to_thread(_spans, batch)
            found = [batch[index] for index in await run_in_thread(child.ask, spans)]
            searched += len(batch)
            for summary in await asyncio.to_thread(summaries, found[: MAX_RESULTS - results]):
                results += 1
                yield _line({"found": summary})
            yield _line({"searched": searched, "total": len(order), "full": results >= MAX_RESULTS})
            if results >= MAX_RESULTS:
                return
    except ChildExitedError as error:
        yield _line({"error": str(error)})
    finally:
        child.close()


def check_expression(expression: str) -> None:
    """Check a regular expression.

    Raises:
        ValueError: The expression is invalid.
    """
    try:
        re.compile(expression)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"the regular expression {expression!r} is invalid: {error}") from error


def _batches(order: Array) -> Iterator[Array]:
    """Yield batches, of which the first is small so that results appear early."""
    start, size = 0, _FIRST_BATCH
    while start < len(order):
        yield order[start : start + size]
        start, size = start + size, _BATCH


def _spans(batch: Sequence[Place]) -> list[tuple[str, int, int]]:
    return [(str(place.path), place["offset"], place["length"]) for place in batch]


def _line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"
