"""Problem files that hold several evaluation sets, as ToRL's and Search-R1's own test files do."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, count

from torl.base.errors import DataError
from torl.base.paths import RESERVED_SET_PATTERN
from torl.run.config import ProblemChoice

SOURCE_COLUMN = "data_source"
"""Column of verl's layout with the name of the set that a row belongs to."""


def split_by_source(sets: Mapping[str, ProblemChoice]) -> dict[str, ProblemChoice]:
    """Return problem sets with one set for each `data_source` of a file that has several.

    Each new set has the name of its source and a filter that selects it. If the name is taken or reserved, the name of
    the set comes first, and a number last if that is taken, too.

    Raises:
        DataError: A file cannot be read. The message begins with the name of the set.
    """
    found: dict[str, ProblemChoice] = {}
    for name, choice in sets.items():
        with set_errors(name):
            sources = _sources(choice)
        if len(sources) < 2:
            found[name] = choice
            continue
        for source in sources:
            short = re.sub(r"[^\w.+-]|\.(?=greedy$)", "-", source)
            long = f"{name}-{short}"
            labels = chain((short, long), (f"{long}-{number}" for number in count(2)))
            label = next(
                each for each in labels if not (each in found or each in sets or RESERVED_SET_PATTERN.fullmatch(each))
            )
            where = {**(getattr(choice.options, "where", None) or {}), SOURCE_COLUMN: source}
            found[label] = replace(choice, options=choice.options.model_copy(update={"where": where}))
    return found


@contextmanager
def set_errors(name: str) -> Iterator[None]:
    """Add the name of an evaluation set to the errors of its problems.

    Raises:
        DataError: The block raised one.
    """
    try:
        yield
    except DataError as error:
        raise DataError(f"evaluation set {name}: {error}") from error


def _sources(choice: ProblemChoice) -> list[str]:
    """Return the sources of a problem file without a filter of sources; empty for other sets."""
    if choice.name != "file" or SOURCE_COLUMN in (getattr(choice.options, "where", None) or {}):
        return []
    sources = (problem.metadata.get(SOURCE_COLUMN) for problem in choice.bind()())
    return [source for source in dict.fromkeys(sources) if isinstance(source, str)]
