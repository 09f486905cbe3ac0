"""Search for the words of responses in the full-text index."""

import re
import sqlite3
from typing import Any

import numpy as np
import numpy.typing as npt

_WORD = re.compile(r"([^\W_]+)(\*?)")


def match_words(database: sqlite3.Connection, query: str) -> npt.NDArray[Any]:
    """Return the numbers of the rows that contain all words of a query, in any order, ignoring case and accents.

    "sum*" matches words that begin with "sum". Other characters separate words, as in the indexed text.

    Raises:
        ValueError: The query has no word.
    """
    words = [f'"{word}"{star}' for word, star in _WORD.findall(query)]
    if not words:
        raise ValueError(f"the query {query!r} has no word: use a regular expression for other characters")
    (rows,) = database.execute(
        "SELECT group_concat(rowid) FROM words WHERE words MATCH ?", (" AND ".join(words),)
    ).fetchone()
    return np.fromstring(rows, np.int64, sep=",") if rows else np.zeros(0, np.int64)
