"""Search on a server as a tool, by the interface of Search-R1's retrieval server."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import field_validator

from torl.component import RunContext
from torl.errors import ConfigError, ToolUnavailableError
from torl.options import PositiveInt, Section
from torl.tools.base import Tool
from torl.tools.search.passages import DESCRIPTION, MISSING_QUERY, PARAMETERS, passages_outcome, query_argument
from torl.tools.server_startup import wait_for_server
from torl.types import Outcome

if TYPE_CHECKING:
    import aiohttp

_PROOF = "the capital of France"
_MAX_SHOWN = 300  # characters of an answer that is none


class RetrievalOptions(Section):
    """Options of the tool "retrieval": a server that searches, as Search-R1's does (dense or not)."""

    url: str
    """Address that queries are sent to, such as http://host:8000/retrieve."""
    top_k: PositiveInt = 3
    """Passages that a search asks for."""

    @field_validator("url")
    @classmethod
    def _an_address(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return url


class RetrievalTool(Tool):
    """Sends each query to the server and shows its passages as Search-R1 does.

    The interface (`search_r1/search/retrieval_server.py`): posted is `{"queries": [text], "topk": number,
    "return_scores": true}`; the answer is `{"result": [[{"document": {"contents": text}, "score": number}]]}`, one list
    for each query.
    """

    description = DESCRIPTION
    parameters = PARAMETERS
    speculative = True

    def __init__(self, options: RetrievalOptions) -> None:
        """Connect to nothing yet."""
        self.options = options
        self._connections: aiohttp.ClientSession | None = None

    async def start(self, context: RunContext) -> None:
        """Ask the server a question.

        Raises:
            ToolUnavailableError: it does not answer as it should.
            ConfigError: aiohttp is not installed.
        """
        try:
            import aiohttp
        except ModuleNotFoundError as error:
            raise ConfigError(f"the tool 'retrieval' needs {error.name}: pip install 'torl[search]'") from error
        # How many requests there are at once, and for how long, is bounded for every tool.
        self._connections = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
        )
        await wait_for_server(self._retrieve(_PROOF), self.options.url)

    async def close(self) -> None:
        """Close the connections."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        """Search.

        Raises:
            ToolUnavailableError: the server did not answer, or with no passages.
        """
        query = query_argument(arguments)
        return MISSING_QUERY if query is None else passages_outcome(await self._retrieve(query))

    async def _retrieve(self, query: str) -> list[str]:
        import aiohttp

        if self._connections is None:
            raise ToolUnavailableError("the tool 'retrieval' is not running: start it first")
        url, asked = self.options.url, {"queries": [query], "topk": self.options.top_k, "return_scores": True}
        try:
            async with self._connections.post(url, json=asked) as response:
                answer = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise ToolUnavailableError(f"{url}: {type(error).__name__}: {error}") from error
        try:
            if response.status != 200:
                raise ValueError(f"HTTP {response.status}")
            return _contents(json.loads(answer))[: self.options.top_k]
        except (ValueError, RecursionError) as error:
            shown = answer[:_MAX_SHOWN].decode(errors="replace")
            raise ToolUnavailableError(f"{url} does not answer as a retrieval server: {error}: {shown}") from error


def _contents(answer: Any) -> list[str]:
    """The passages for one query; raises ValueError where there are none to be found."""
    try:
        (passages,) = answer["result"]
        contents = [passage["document"]["contents"] for passage in passages]
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"no list of documents with contents for each query ({type(error).__name__})") from error
    if not all(isinstance(each, str) for each in contents):
        raise ValueError("contents that are no text")
    return contents
