"""Turns in vLLM's scheduler: a turn ends in the engine, at the token that completes its marker.

vLLM's stop strings need its detokenizer, are found by its front end one or two tokens late, and cost a message to abort
the request. Here the Rust scanner reads each token when vLLM checks its stop tokens, so that a marker costs no more
than an end-of-sequence token. The scheduler also does the following:

- It announces a closed code block to the controller at once, over a datagram socket, long before the turn ends
  (`Announcer`). Nothing depends on it: a lost block is found again in the complete turn.
- It buffers tokens and log-probabilities until their turn is complete. The front end receives one message per turn, not
  one per token, and the log-probabilities as bytes.
- It announces steps that computed tokens, so that the controller can distinguish a slow engine from a hung one.
- It reuses partly filled blocks, so that the next turn computes only the observation (`PartialBlocks`).
- It does less for each token than vLLM's own: one message per turn, and no allocation where a block has room.

Runs in the engine's core process only. vLLM calls its scheduler's interface internal: the overridden part is small, and
the tests run it in the real engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from torl._core import Scanner
from torl.components.engine.vllm.blocks import PartialBlocks, has_one_kind_of_blocks, skip_needless_allocation
from torl.components.engine.vllm.messages import STOP_CONDITION_MET, TURN_KEY, Announcer, decode_turn, encode_reply
from torl.components.engine.vllm.process_setup import ProcessSetup

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_utils import KVCacheBlock
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
    from vllm.v1.metrics.stats import PrefillStats
    from vllm.v1.outputs import LogprobsLists, ModelRunnerOutput
    from vllm.v1.request import Request


@dataclass(slots=True)
class _Turn:
    """A request in the scheduler: its scanner, and its buffered output."""

    scanner: Scanner | None
    key: str
    is_message: bool  # of a chat: an end token ends it even after a call
    calls: bool = False  # whether a call has been closed
    # (number of pauses so far, tokens sampled before): the policy changes only during a pause.
    spans: list[tuple[int, int]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: bytearray = field(default_factory=bytearray)  # of the tokens, float32
    prefill_stats: "PrefillStats | None" = None


class _StepLogprobs:
    """Log-probabilities of the tokens that a step sampled, in one array: vLLM would slice three for each request."""

    def __init__(self, rows: Mapping[str, int], logprobs: "LogprobsLists") -> None:
        self._rows = rows  # of the requests, by their ids
        self._starts = logprobs.cu_num_generated_tokens  # of each row, if rows have other numbers of tokens than one
        # The first column is of the sampled tokens.
        self._bytes = memoryview(logprobs.logprobs[:, 0].astype(np.float32).tobytes())

    def of(self, request_id: str, count: int) -> memoryview:
        """Return those of a request's first tokens, as float32."""
        row = self._rows[request_id]
        start = row if self._starts is None else self._starts[row]
        return self._bytes[4 * start : 4 * (start + count)]


class _Turns:
    """Mixin for both of vLLM's schedulers."""

    if TYPE_CHECKING:
        vllm_config: Any
        kv_cache_manager: Any
        connector: Any
        num_spec_tokens: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        setup: ProcessSetup = self.vllm_config.additional_config
        self._vocabulary = setup.read_vocabulary()
        self._announcer = Announcer(setup.announcements)
        self._turns: dict[str, _Turn] = {}
        self._has_only_turns = True  # and no request of another client of vLLM, such as a benchmark
        self._step_logprobs: _StepLogprobs | None = None
        self._pauses = 0
        self._partial_blocks: PartialBlocks | None = None
        if self.connector is None and self.num_spec_tokens == 0 and has_one_kind_of_blocks(self.kv_cache_manager):
            self._partial_blocks = PartialBlocks(self.kv_cache_manager)
            skip_needless_allocation(self.kv_cache_manager)

    def add_request(self, request: "Request") -> None:
        extra_args = request.sampling_params and request.sampling_params.extra_args
        if extra_args and TURN_KEY in extra_args:
            self._turns[request.request_id] = _Turn(*decode_turn(extra_args, self._vocabulary))
        else:
            self._has_only_turns = False
        super().add_request(request)  # type: ignore[misc]

    def set_pause_state(self, pause_state: PauseState) -> None:
        # At the end of the pause: tokens in flight at its start belong to the old policy.
        self._pauses += pause_state == PauseState.UNPAUSED
        super().set_pause_state(pause_state)  # type: ignore[misc]

    def _update_request_with_output(
        self, request: "Request", new_token_ids: list[int], is_stale: bool = False
    ) -> tuple[list[int], bool]:
        new_token_ids, stopped = super()._update_request_with_output(request, new_token_ids, is_stale)  # type: ignore[misc]
        turn = self._turns.get(request.request_id)
        if turn is None or not new_token_ids:
            return new_token_ids, stopped
        if not turn.spans or turn.spans[-1][0] != self._pauses:
            turn.spans.append((self._pauses, len(turn.token_ids)))
        turn.token_ids += new_token_ids
        if self._step_logprobs is not None:
            turn.logprobs += self._step_logprobs.of(request.request_id, len(new_token_ids))
        if turn.scanner is not None:
            one = len(new_token_ids) == 1
            scan = turn.scanner.feed_token(new_token_ids[0]) if one else turn.scanner.feed(new_token_ids)
            if scan is not None and scan.overshoot is None:
                for block in scan.blocks:
                    self._announcer.block(turn.key, block.code)
                turn.calls |= bool(scan.blocks)
            elif scan is not None and request.status != RequestStatus.FINISHED_STOPPED:  # also at the turn's limit
                request.status = RequestStatus.FINISHED_STOPPED
                request.stop_reason = STOP_CONDITION_MET
                stopped = True
                self._keep_partial_block(request)
            elif turn.is_message and turn.calls and request.status == RequestStatus.FINISHED_STOPPED:
                self._keep_partial_block(request)
        return new_token_ids, stopped

    def _keep_partial_block(self, request: "Request") -> None:
        """Keep the last block of a turn that may continue after its observation."""
        if self._partial_blocks is not None:
            # Tokens with complete keys and values: neither the last token nor tokens in flight.
            computed = request.num_computed_tokens - request.num_output_placeholders
            self._partial_blocks.keep(request, min(computed, request.num_tokens - 1))

    def _get_local_prefix_cache_hit(self, request: "Request") -> Any:
        cached, computed, *rest = super()._get_local_prefix_cache_hit(request)  # type: ignore[misc]
        if self._partial_blocks is not None and request.request_id in self._turns:
            cached, computed = self._partial_blocks.extend(request, cached, computed)
        return cached, computed, *rest

    def _free_cow_retained_blocks(self, blocks: "list[KVCacheBlock]", fence_seq: int) -> None:
        if self._partial_blocks is not None:
            self._partial_blocks.forget(blocks)
        super()._free_cow_retained_blocks(blocks, fence_seq)  # type: ignore[misc]

    def _free_request(self, request: "Request", *args: Any, **kwargs: Any) -> Any:
        # A finished request still has to send its output; an aborted one does not.
        if request.status == RequestStatus.FINISHED_ABORTED:
            self._turns.pop(request.request_id, None)
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]

    def update_from_output(
        self, scheduler_output: "SchedulerOutput", model_runner_output: "ModelRunnerOutput"
    ) -> "dict[int, EngineCoreOutputs]":
        if scheduler_output.total_num_scheduled_tokens > 0:
            self._announcer.step()
        logprobs = model_runner_output.logprobs
        rows = model_runner_output.req_id_to_index
        self._step_logprobs = None if logprobs is None else _StepLogprobs(rows, logprobs)
        if self._has_only_turns:
            model_runner_output.logprobs = None  # else vLLM would copy them into outputs, where they are not read
        batches: dict[int, EngineCoreOutputs] = super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        for client in list(batches):
            batch = batches[client]
            batch.outputs = [merged for output in batch.outputs if (merged := self._buffer(output)) is not None]
            if not batch.outputs and batch.finished_requests is None and batch.scheduler_stats is None:
                del batches[client]
        return batches

    def _buffer(self, output: "EngineCoreOutput") -> "EngineCoreOutput | None":
        """Buffer an output of an unfinished turn. Return the merged output of a finished one."""
        turn = self._turns.get(output.request_id)
        if turn is None:
            return output
        turn.prefill_stats = turn.prefill_stats or output.prefill_stats
        if output.finish_reason is None:
            return None
        del self._turns[output.request_id]
        output.new_token_ids, output.new_logprobs = turn.token_ids, None
        output.prefill_stats = turn.prefill_stats
        output.kv_transfer_params = encode_reply(turn.spans, bytes(turn.logprobs))
        return output


class TurnScheduler(_Turns, Scheduler):  # type: ignore[misc]
    """vLLM's scheduler with turns."""


class AsyncTurnScheduler(_Turns, AsyncScheduler):  # type: ignore[misc]
    """vLLM's asynchronous scheduler with turns: it schedules a step while the last one runs."""
