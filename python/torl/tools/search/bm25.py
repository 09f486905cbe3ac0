"""Search by words as a tool: BM25 over a corpus in this process."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from torl.component import RunContext
from torl.errors import ToolUnavailableError
from torl.options import NonNegativeFloat, PositiveInt, Section
from torl.paths import resolve_path
from torl.tools.base import Tool
from torl.tools.search.corpus import Corpus
from torl.tools.search.index import Bm25Index, open_index
from torl.tools.search.passages import DESCRIPTION, MISSING_QUERY, PARAMETERS, passages_outcome, query_argument
from torl.types import Outcome


class Bm25Options(Section):
    """Options of the tool "search": a corpus whose words are searched (BM25)."""

    corpus: str
    """File of passages, a JSON object on each line: `contents`, whose first line is a title, or `title` and `text`."""
    top_k: PositiveInt = 3
    """Passages that a search returns."""
    index_directory: Path | None = None
    """Directory that the index is kept in; that of the corpus when unset."""
    k1: NonNegativeFloat = 1.5
    """How much a further occurrence of a word counts."""
    b: Annotated[float, Field(ge=0, le=1)] = 0.75
    """How much the length of a passage counts against it."""


class Bm25Tool(Tool):
    """Answers a query with the passages that BM25 ranks highest, in Search-R1's words."""

    description = DESCRIPTION
    parameters = PARAMETERS
    speculative = True

    def __init__(self, options: Bm25Options) -> None:
        """Open nothing yet."""
        self.options = options
        self._corpus: Corpus | None = None
        self._index: Bm25Index | None = None

    async def start(self, context: RunContext) -> None:
        """Open the index, or make it.

        Raises:
            ConfigError: bm25s is not installed, or the index cannot be written.
            DataError: the corpus cannot be read.
        """
        options = self.options
        self._corpus = Corpus(resolve_path(options.corpus))
        directory = options.index_directory or self._corpus.path.parent
        self._index = await asyncio.to_thread(
            open_index, self._corpus, directory, options.k1, options.b, context.progress
        )

    async def close(self) -> None:
        """Let go of the corpus."""
        corpus, self._corpus, self._index = self._corpus, None, None
        if corpus is not None:
            corpus.close()

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        """Search in a thread: a large corpus takes some time."""
        if self._index is None:
            raise ToolUnavailableError("the tool 'search' is not running: start it first")
        query = query_argument(arguments)
        if query is None:
            return MISSING_QUERY
        return passages_outcome(await asyncio.to_thread(self._index.search, query, self.options.top_k))
