"""Passages as a model reads them, and the schema of a search."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torl.types import Outcome, OutcomeStatus

DESCRIPTION = "Searches a collection of texts and returns the passages that fit a query best."
PARAMETERS: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "What to search for."}},
        "required": ["query"],
    }
)
MISSING_QUERY = Outcome(OutcomeStatus.ERROR, "TypeError: the argument 'query' must be text", "TypeError")
NOTHING = "Nothing was found."


def query_argument(arguments: Mapping[str, Any]) -> str | None:
    """The query of a call; None if it has none, which is answered with `NO_QUERY`."""
    query = arguments.get("query")
    return query if isinstance(query, str) and query.strip() else None


def passages_outcome(contents: Sequence[str]) -> Outcome:
    """The passages with their numbers, best first.

    Search-R1's `_passages2string` (`search_r1/llm_agent/generation.py`): the first line of a passage is its title.
    """
    passages = [text.partition("\n") for text in contents]
    lines = [f"Doc {number}(Title: {title}) {text}" for number, (title, _, text) in enumerate(passages, start=1)]
    return Outcome(OutcomeStatus.OK, "\n".join(lines) or NOTHING, details={"passages": len(lines)})
