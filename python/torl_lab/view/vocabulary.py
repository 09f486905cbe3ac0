"""The words of responses and the texts of tokens, which the index keeps."""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from torl.base.errors import ConfigError, DataError
from torl.base.options import read_toml
from torl.run.records.files import CONFIG_FILE
from torl_lab.exchange import model_token_bytes
from torl_lab.view.index import damage_as_error, transaction
from torl_lab.view.sources import Target


def store_vocabulary(database: sqlite3.Connection, target: Target) -> bool:
    """Store the bytes of all tokens of the run's model, unless they are stored; return whether they are.

    The tokenizer is that of the target (which replaces a stored one), of `model.path`, or of the model that the run
    wrote. Nothing is downloaded.
    """
    with damage_as_error():
        if target.tokenizer is None and database.execute("SELECT 1 FROM tokens").fetchone() is not None:
            return True
    table = _read_vocabulary(target)
    if not table:
        return False
    with damage_as_error(), transaction(database):
        database.execute("DELETE FROM tokens")
        database.executemany("INSERT OR REPLACE INTO tokens(id, bytes) VALUES (?, ?)", enumerate(table))
    return True


def token_bytes(database: sqlite3.Connection, token_ids: Sequence[int]) -> list[bytes] | None:
    """Return the bytes of tokens; None without a vocabulary. An id outside the vocabulary has no bytes."""
    with damage_as_error():
        wanted = sorted({int(token) for token in token_ids})
        found: dict[int, bytes] = {}
        for start in range(0, len(wanted), 500):  # SQLite's limit on parameters
            ids = wanted[start : start + 500]
            marks = ",".join("?" * len(ids))
            found.update(database.execute(f"SELECT id, bytes FROM tokens WHERE id IN ({marks})", ids))
        if not found and database.execute("SELECT 1 FROM tokens").fetchone() is None:
            return None
    return [found.get(int(token), b"") for token in token_ids]


def _read_vocabulary(target: Target) -> list[bytes]:
    for model in _models(target):
        with suppress(DataError):
            return model_token_bytes(model)
    return []


def _models(target: Target) -> Iterator[str]:
    if target.tokenizer is not None:
        yield target.tokenizer
        return
    with suppress(ConfigError, KeyError, TypeError):
        yield str(read_toml(target.directory / CONFIG_FILE)["model"]["path"])
    yield str((target.directory / "model").resolve())


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
