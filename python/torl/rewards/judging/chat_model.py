"""Questions to a model behind an OpenAI-compatible URL: bounded, counted, and given up on when it keeps failing."""

import asyncio
import hashlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torl.errors import RewardError

if TYPE_CHECKING:
    import aiohttp

Parsed = TypeVar("Parsed")

_FAILURES_IN_A_ROW = 20
_MAX_REMEMBERED = 100_000


class JudgeClient(Generic[Parsed]):
    """Asks for short replies at temperature 0. Equal questions are asked once; a question that failed, again."""

    def __init__(
        self,
        url: str,
        model: str,
        parse_reply: Callable[[str], Parsed | None],
        api_key_env: str,
        timeout_seconds: float,
        concurrency: int,
    ) -> None:
        """Ask nobody yet.

        Args:
            url: of the server, such as http://host:8000/v1.
            model: its name there.
            parse_reply: what a reply says; None for one that says nothing of use, which is a failure.
            api_key_env: environment variable that holds the key, if it needs one.
            timeout_seconds: of one question.
            concurrency: questions that are asked at once.
        """
        self.url = url.rstrip("/") + "/chat/completions"
        self.model = model
        self.asked = 0
        self.failures = 0
        self._read = parse_reply
        self._key = os.environ.get(api_key_env, "")
        self._seconds = timeout_seconds
        self._slots = asyncio.Semaphore(concurrency)
        self._told: dict[bytes, asyncio.Future[Parsed | None]] = {}  # by the question's digest: it may be long
        self._session: aiohttp.ClientSession | None = None
        self._failures_in_a_row = 0

    async def start(self) -> None:
        """Open the connection."""
        import aiohttp

        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._seconds))

    async def close(self) -> None:
        """End it, and the questions that are open."""
        open_questions = [told for told in self._told.values() if not told.done()]
        for told in open_questions:
            told.cancel()
        await asyncio.gather(*open_questions, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def ask(self, prompt: str) -> Parsed | None:
        """What the model says; None if it fails.

        Raises:
            RewardError: it has failed many times in a row: it is broken.
        """
        question = hashlib.blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        told = self._told.get(question)
        if told is None:
            if len(self._told) >= _MAX_REMEMBERED:
                self._told.pop(next(iter(self._told)))
            told = self._told[question] = asyncio.ensure_future(self._ask(prompt))
        said = await asyncio.shield(told)
        if said is None:
            self._told.pop(question, None)  # another time it may answer
        return said

    async def _ask(self, prompt: str) -> Parsed | None:
        async with self._slots:
            said = await self._reply(prompt)
        self.asked += 1
        if said is not None:
            self._failures_in_a_row = 0
            return said
        self.failures += 1
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= _FAILURES_IN_A_ROW:
            raise RewardError(f"the judge at {self.url} failed {self._failures_in_a_row} times in a row")
        return None

    async def _reply(self, prompt: str) -> Parsed | None:
        import aiohttp

        assert self._session is not None
        asked = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": 8,
        }
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            async with self._session.post(self.url, json=asked, headers=headers) as response:
                if response.status != 200:
                    return None
                told: Mapping[str, Any] = await response.json()
                return self._read(told["choices"][0]["message"]["content"])
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, IndexError, TypeError, RecursionError):
            return None
