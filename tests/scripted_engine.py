"""An engine that samples what it is told, for laws about what is done with its tokens. The real one tests the truth."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from torl.errors import EngineError
from torl.types import Outcome, OutcomeStatus, SampledTokens, SamplingParameters


@dataclass
class Request:
    """One call of `generate`: what was asked, and every token that was emitted."""

    token_ids: list[int]
    sampling: SamplingParameters
    emitted: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    version: int = 0


@dataclass
class ScriptedEngine:
    """`script(request_id)` gives the tokens of a turn; a stop token ends it, and so does `max_tokens`.

    `pieces(request_id)` gives the lengths of the pieces, repeated. `open` counts streams that were not closed.
    """

    script: Callable[[str], Sequence[int]]
    stop_token_id: int
    pieces: Callable[[str], Sequence[int]] = lambda _: (1,)
    version: Callable[[str], int] = lambda _: 0
    fail_on: str | None = None
    requests: dict[str, Request] = field(default_factory=dict)
    open: int = 0
    most_open: int = 0

    async def generate(
        self, token_ids: Sequence[int], sampling: SamplingParameters, request_id: str, *, streamed: bool = True
    ) -> AsyncGenerator[SampledTokens, None]:
        """See `torl.rollout.engine.Engine`."""
        assert request_id not in self.requests
        request = self.requests[request_id] = Request(list(token_ids), sampling, version=self.version(request_id))
        tokens = [*self.script(request_id), self.stop_token_id]
        tokens = tokens[: min(tokens.index(self.stop_token_id) + 1, sampling.max_tokens)]
        reason = "stop" if tokens[-1] == self.stop_token_id else "length"
        lengths = self.pieces(request_id) if streamed else (len(tokens),)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            start = turn = 0
            while start < len(tokens):
                await asyncio.sleep(0)
                if request_id == self.fail_on:
                    raise EngineError("the engine died")
                stop = start + lengths[turn % len(lengths)]
                ids = tuple(tokens[start:stop])
                logprobs = tuple(-0.5 - 0.25 * (index % 7) for index in range(start, start + len(ids)))
                request.emitted += ids
                request.logprobs += logprobs
                last = stop >= len(tokens)
                yield SampledTokens(ids, logprobs, request.version, reason if last else None, cached_tokens=start)
                start, turn = stop, turn + 1
        finally:
            self.open -= 1


@dataclass
class ScriptedInterpreter:
    """Answers every run with `stdout(code)`, after `delay` seconds."""

    stdout: Callable[[str], str] = lambda code: f"{code}\n"
    delay: float = 0.0
    fail_with: Exception | None = None
    codes: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    running: int = 0

    async def run_async(self, code: str, *, seed: int = 0) -> Outcome:
        """See `torl.sandbox.Interpreter`."""
        self.codes.append(code)
        self.seeds.append(seed)
        self.running += 1
        try:
            await asyncio.sleep(self.delay)
            if self.fail_with is not None:
                raise self.fail_with
        finally:
            self.running -= 1
        return Outcome(OutcomeStatus.OK, self.stdout(code), "", None, None, None, 0.0, 0.0, 0)
