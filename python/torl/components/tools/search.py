"""Search in a corpus as a tool: BM25 in this process, or a retrieval server over HTTP."""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import field_validator

from torl.base.component import RunContext
from torl.base.errors import ConfigError, ToolUnavailableError
from torl.base.inputs import parse_json
from torl.base.options import PositiveInt, Section
from torl.base.paths import resolve_path
from torl.base.runtime.http import client_session, read_reply
from torl.base.trust import require_trust
from torl.base.types import Outcome, OutcomeStatus
from torl.components.tools.retry import wait_for_server
from torl.components.tools.search_index import Bm25Index, Corpus, open_index
from torl.components.tools.tool import Tool

if TYPE_CHECKING:
    import aiohttp

DESCRIPTION = "Searches a collection of texts and returns the passages that fit a query best."
PARAMETERS: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "What to search for."}},
        "required": ["query"],
    }
)
MISSING_QUERY = Outcome(OutcomeStatus.ERROR, "TypeError: the argument 'query' must be text", "TypeError")
NO_RESULTS = "Nothing was found."
_HEALTH_CHECK_QUERY = "the capital of France"
_MAX_SHOWN = 300  # characters of an invalid reply


class Bm25Options(Section):
    """Options of the tool "search": BM25 over a corpus."""

    corpus: str
    """File of passages, a JSON object on each line: `contents`, whose first line is a title, or `title` and `text`."""
    top_k: PositiveInt = 3
    """Number of passages that a search returns."""


class Bm25Tool(Tool):
    """Returns the passages with the highest BM25 scores for a query, in the layout of Search-R1."""

    description = DESCRIPTION
    parameters = PARAMETERS
    speculative = True
    checks_arguments = True

    def __init__(self, options: Bm25Options) -> None:
        require_trust(options.corpus, "indexed")  # the index is a new directory, anywhere
        self.options = options
        self._corpus: Corpus | None = None
        self._index: Bm25Index | None = None

    async def start(self, context: RunContext) -> None:
        """Open the index, and build it if it does not exist.

        Raises:
            ConfigError: bm25s is not installed, or the index cannot be written.
            DataError: The corpus cannot be read.
        """
        self._corpus = Corpus(resolve_path(self.options.corpus))
        self._index = await asyncio.to_thread(open_index, self._corpus, self._corpus.path.parent, context.progress)

    async def close(self) -> None:
        corpus, self._corpus, self._index = self._corpus, None, None
        if corpus is not None:
            corpus.close()

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        if self._index is None:
            raise ToolUnavailableError("the tool 'search' is not running: start it first")
        query = query_argument(arguments)
        if query is None:
            return MISSING_QUERY
        return passages_outcome(await asyncio.to_thread(self._index.search, query, self.options.top_k))


class RetrievalOptions(Section):
    """Options of the tool "retrieval": a server with the interface of Search-R1's retrieval server."""

    url: str
    """URL that queries are posted to, such as http://host:8000/retrieve."""
    top_k: PositiveInt = 3
    """Number of passages that a search requests."""

    @field_validator("url")
    @classmethod
    def _require_http(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return url


class RetrievalTool(Tool):
    """Sends each query to the server and returns the passages in the layout of Search-R1.

    The interface (`search_r1/search/retrieval_server.py`): the request is `{"queries": [text], "topk": number,
    "return_scores": true}`; the reply is `{"result": [[{"document": {"contents": text}, "score": number}]]}`, with one
    list for each query.
    """

    description = DESCRIPTION
    parameters = PARAMETERS
    speculative = True
    checks_arguments = True

    def __init__(self, options: RetrievalOptions) -> None:
        require_trust(options.url, "connected to")
        self.options = options
        self._connections: aiohttp.ClientSession | None = None

    async def start(self, context: RunContext) -> None:
        """Send a first query to the server.

        Raises:
            ToolUnavailableError: The server does not reply, or not with passages.
            ConfigError: aiohttp is not installed.
        """
        try:
            import aiohttp
        except ModuleNotFoundError as error:
            raise ConfigError(f"the tool 'retrieval' needs {error.name}: pip install 'torl[search]'") from error
        # `BoundedTool` limits the concurrent requests and their time.
        self._connections = client_session(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
        )
        await wait_for_server(self._retrieve(_HEALTH_CHECK_QUERY), self.options.url)

    async def close(self) -> None:
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        query = query_argument(arguments)
        return MISSING_QUERY if query is None else passages_outcome(await self._retrieve(query))

    async def _retrieve(self, query: str) -> list[str]:
        import aiohttp

        if self._connections is None:
            raise ToolUnavailableError("the tool 'retrieval' is not running: start it first")
        url, request = self.options.url, {"queries": [query], "topk": self.options.top_k, "return_scores": True}
        try:
            async with self._connections.post(url, json=request) as response:
                body = await read_reply(response)
        except (aiohttp.ClientError, OSError) as error:
            raise ToolUnavailableError(f"{url}: {type(error).__name__}: {error}") from error
        try:
            if response.status != 200:
                raise ValueError(f"HTTP {response.status}")
            return _contents(parse_json(body))[: self.options.top_k]
        except ValueError as error:
            text = body[:_MAX_SHOWN].decode(errors="replace")
            raise ToolUnavailableError(f"{url} does not answer as a retrieval server: {error}: {text}") from error


def query_argument(arguments: Mapping[str, Any]) -> str | None:
    """Return the query of a call; None if it is missing, for which the outcome is `MISSING_QUERY`."""
    query = arguments.get("query")
    return query if isinstance(query, str) and query.strip() else None


def passages_outcome(contents: Sequence[str]) -> Outcome:
    """Return the passages with their numbers, best first.

    The layout is `_passages2string` of Search-R1 (`search_r1/llm_agent/generation.py`). The first line of a passage is
    its title.
    """
    passages = [text.partition("\n") for text in contents]
    lines = [f"Doc {number}(Title: {title}) {text}" for number, (title, _, text) in enumerate(passages, start=1)]
    return Outcome(OutcomeStatus.OK, "\n".join(lines) or NO_RESULTS, details={"passages": len(lines)})


def _contents(reply: Any) -> list[str]:
    """Return the passages for one query; raise ValueError if the reply is invalid."""
    try:
        (passages,) = reply["result"]
        contents = [passage["document"]["contents"] for passage in passages]
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"no list of documents with contents for each query ({type(error).__name__})") from error
    if not all(isinstance(each, str) for each in contents):
        raise ValueError("contents that are not text")
    return contents
