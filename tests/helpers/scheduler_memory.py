"""vLLM's scheduler object with torl's turns in it, and a device that remembers its computations.

As vLLM's own tests drive it: no engine and no model. The device keeps the token of every slot of its cache, with the
version of the weights that computed it, and checks before each step that all slots which the step reads hold what they
should. That is the truth that cached prefixes, held blocks and copies are measured by.
"""

from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.outputs import LogprobsLists, ModelRunnerOutput

from benchmarks.rollout.lone_scheduler import BLOCK, STOP, make_request, make_scheduler
from torl._core import StopCondition
from torl.base.types import SamplingParameters, TurnRequest
from torl.components.engine.vllm.messages import decode_reply
from torl.components.engine.vllm.scheduler import AsyncTurnScheduler, TurnScheduler


@dataclass
class Turn:
    """The outputs of a request."""

    token_ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    reason: str


@dataclass
class _OnDevice:
    """A request as the device knows it."""

    prompt: list[int]
    blocks: list[int]
    known: int  # tokens: the prompt and the sampled ones


@dataclass
class Device:
    """Samples `script(request)`, by position; `version` is that of its weights."""

    script: Callable[[str], Sequence[int]]
    version: int = 0
    reads_old: Container[str] = ()  # requests that may read what older weights computed
    drafts: int = 0  # tokens sampled in a step after the first, as if they had been drafted and accepted
    computed: dict[str, int] = field(default_factory=dict)  # tokens of a request, until it sampled its first
    _slots: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)  # (block, offset): version, token
    _requests: dict[str, _OnDevice] = field(default_factory=dict)

    def run(self, step: Any) -> ModelRunnerOutput:
        for copy in step.kv_cache_block_copies or ():
            for offset in range(BLOCK):
                if (slot := self._slots.get((copy.src_block_id, offset))) is not None:
                    self._slots[copy.dst_block_id, offset] = slot
        starts: dict[str, int] = {}
        for new in step.scheduled_new_reqs:
            known = len(new.prefill_token_ids or new.prompt_token_ids)
            self._requests[new.req_id] = _OnDevice(list(new.prompt_token_ids), list(new.block_ids[0]), known)
            starts[new.req_id] = new.num_computed_tokens
        cached = step.scheduled_cached_reqs
        for index, request_id in enumerate(cached.req_ids):
            request = self._requests[request_id]
            blocks = cached.new_block_ids[index]
            if request_id in cached.resumed_req_ids:
                request.blocks = []
                request.known = len(request.prompt) + cached.num_output_tokens[index]
            request.blocks += blocks[0] if blocks is not None else []
            starts[request_id] = cached.num_computed_tokens[index]
        sampled = [self.compute(name, starts[name], count) for name, count in step.num_scheduled_tokens.items()]
        names = list(step.num_scheduled_tokens)
        starts_of_rows = [0, *accumulate(map(len, sampled))] if self.drafts else None
        flat = [[token] for tokens in sampled for token in (tokens or [STOP] * (not self.drafts))]
        values = np.array(flat, np.float32).reshape(-1, 1)
        logprobs = LogprobsLists(values.astype(int), values / -8, np.zeros(len(flat), np.int32), starts_of_rows)
        return ModelRunnerOutput(names, {name: index for index, name in enumerate(names)}, sampled, logprobs)

    def compute(self, name: str, start: int, count: int) -> list[int]:
        """Compute the tokens from `start` on; return the tokens sampled after them."""
        request, script = self._requests[name], self.script(name)
        token = [*request.prompt, *script]
        place = [(request.blocks[position // BLOCK], position % BLOCK) for position in range(start + count)]
        for position in range(start):
            version, computed = self._slots[place[position]]
            assert computed == token[position], (name, position, start)
            assert version == self.version or name in self.reads_old, (name, position, start)
        for position in range(start, start + count):
            self._slots[place[position]] = (self.version, token[position])
        if request.known == len(request.prompt):
            self.computed[name] = self.computed.get(name, 0) + count
        if start + count < request.known:
            return []
        sampled = token[start + count :][: 1 + self.drafts]
        request.known += len(sampled)
        return sampled


class Bench:
    """A scheduler, a device, and this many steps in flight between them."""

    def __init__(self, model: Path, device: Device, *, in_flight: int, blocks: int, runner_v2: bool = False) -> None:
        kind: Any = AsyncTurnScheduler if in_flight > 1 else TurnScheduler
        limits = {"max_model_len": 640, "max_num_seqs": 32, "max_num_batched_tokens": 64}
        self.scheduler = make_scheduler(kind, model, limits, blocks=blocks, is_async=in_flight > 1, runner_v2=runner_v2)
        self.device = device
        self.turns: dict[str, Turn] = {}
        self.preempted = 0
        self._in_flight = in_flight
        self._steps: deque[tuple[Any, ModelRunnerOutput]] = deque()

    def add(
        self,
        name: str,
        prompt: Sequence[int],
        *,
        end: StopCondition,
        max_tokens: int = 400,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> None:
        turn = TurnRequest(name, prompt, SamplingParameters(max_tokens), end)
        self.scheduler.add_request(make_request(turn, priority=priority, cache_salt=cache_salt))

    def step(self) -> None:
        """Schedule as long as there is room between scheduler and device, then take what the device has first."""
        while len(self._steps) < self._in_flight and self.scheduler.has_requests():
            step = self.scheduler.schedule()
            self.preempted += len(step.preempted_req_ids or ())
            self._steps.append((step, self.device.run(step)))
            if step.total_num_scheduled_tokens == 0:
                break
        if self._steps:
            self._take()

    def run(self) -> None:
        """Until every turn has ended and nothing is in flight."""
        for _ in range(10_000):
            if not self.scheduler.has_requests() and not self._steps:
                return
            self.step()
        raise AssertionError("the scheduler does not come to an end")

    def weights_arrive(self, *, keeps_cache: bool = False) -> None:
        """As an engine takes weights while it samples: pause, let the device end what it has, forget, continue."""
        self.scheduler.set_pause_state(PauseState.PAUSED_ALL)
        while self._steps:
            self._take()
        self.device.version += 1
        assert keeps_cache or self.scheduler.reset_prefix_cache(reset_running_requests=True)
        self.scheduler.set_pause_state(PauseState.UNPAUSED)

    def _take(self) -> None:
        batches = self.scheduler.update_from_output(*self._steps.popleft())
        for batch in batches.values():
            for output in batch.outputs:
                assert output.request_id not in self.turns
                assert output.new_logprobs is None  # which the front end would read token by token
                spans, logprobs = decode_reply(output.kv_transfer_params)
                assert logprobs == tuple(-token / 8 for token in output.new_token_ids)
                self.turns[output.request_id] = Turn(
                    tuple(output.new_token_ids),
                    tuple(spans),
                    str(output.stop_reason or output.finish_reason),
                )
