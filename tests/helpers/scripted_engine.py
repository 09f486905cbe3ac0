"""An engine that samples by a script, for laws about the processing of its tokens. The real one tests the truth."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tokenizers_for_tests import byte_level_bpe
from torl._core import Scanner, Vocabulary
from torl.base.errors import EngineError
from torl.base.types import OutcomeStatus, SampledTurn, SamplingParameters, TurnFinish, TurnRequest
from torl.components.engine import Engine
from torl.components.text.tokenizer import PlainTextEncoder
from torl.components.text.vocabulary import build_vocabulary
from torl_sandbox import Execution

TOKENIZER = byte_level_bpe()
VOCABULARY = build_vocabulary(TOKENIZER)
ENCODER = PlainTextEncoder(TOKENIZER, VOCABULARY)
STOP = TOKENIZER.eos_token_id


@dataclass
class Request:
    """One call of `sample`, with every token that was emitted."""

    token_ids: list[int]
    sampling: SamplingParameters
    emitted: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    version: int = 0
    start_version: int | None = None


@dataclass
class ScriptedEngine(Engine):
    """`script(name)` gives the tokens of a turn; a stop token ends it, and so does `max_tokens`.

    A name is a request's id without the number of its episode. `pieces(name)` gives how many tokens each step samples,
    repeated. `begun` has the names of all requests by id, `open` counts those that have not ended, and `ended` names
    those that have, in that order.
    """

    script: Callable[[str], Sequence[int]]
    pieces: Callable[[str], Sequence[int]] = lambda _: (1,)
    version: Callable[[str], int] = lambda _: 0
    fail_on: str | None = None
    vocabulary: Vocabulary = VOCABULARY
    stop_token_ids: frozenset[int] = frozenset({STOP})
    requests: dict[str, Request] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    begun: dict[str, str] = field(default_factory=dict)
    open: int = 0
    most_open: int = 0

    async def sample(self, request: TurnRequest, on_block: Callable[[str], None] | None = None) -> SampledTurn:
        """Sample in steps of `pieces`, and look for the end after each."""
        assert request.id not in self.begun
        name = self.begun[request.id] = request.id.partition(":")[2] or request.id
        sampling = request.sampling
        start_version = request.start_version
        record = Request(list(request.prefix), sampling, version=self.version(name), start_version=start_version)
        self.requests[name] = record
        tokens = [*self.script(name), STOP]
        first = next(index for index, token in enumerate(tokens) if token in self.stop_token_ids)
        tokens = tokens[: min(first + 1, sampling.max_tokens)]
        reason = TurnFinish.STOP if tokens[-1] in self.stop_token_ids else TurnFinish.LENGTH
        lengths = self.pieces(name)
        scanner = Scanner(self.vocabulary, request.stop_condition, request.at_line_start)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            start = step = 0
            while start < len(tokens):
                await asyncio.sleep(0)
                if name == self.fail_on:
                    raise EngineError("the engine died")
                piece = tokens[start : start + lengths[step % len(lengths)]]
                record.emitted += piece
                start, step = start + len(piece), step + 1
                scan = scanner.feed(piece)
                if on_block is not None:
                    for block in scan.blocks:
                        on_block(block.code)
                if scan.overshoot is not None:
                    reason = TurnFinish.END
                    break
        finally:
            self.open -= 1
            self.ended.append(name)
        record.logprobs = [-0.5 - 0.25 * (index % 7) for index in range(len(record.emitted))]
        return SampledTurn(
            token_ids=tuple(record.emitted),
            logprobs=tuple(record.logprobs),
            policy_versions=((record.version, 0),),
            finish_reason=reason,
            cached_tokens=0,
        )


@dataclass
class ScriptedInterpreter:
    """Answers every run with `stdout(code)`, after `delay` seconds."""

    stdout: Callable[[str], str] = lambda code: f"{code}\n"
    delay: float = 0.0
    fail_with: Exception | None = None
    codes: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    running: int = 0

    async def run_async(self, code: str, *, seed: int = 0) -> Execution:
        """See `torl_sandbox.Interpreter`."""
        self.codes.append(code)
        self.seeds.append(seed)
        self.running += 1
        try:
            await asyncio.sleep(self.delay)
            if self.fail_with is not None:
                raise self.fail_with
        finally:
            self.running -= 1
        return Execution(OutcomeStatus.OK, self.stdout(code), "", None, None, None, 0.0, 0.0, 0)
