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

Runs in the engine's core process only. vLLM calls its scheduler's interface internal: the overridden part is small, and
the tests run it in the real engine.
"""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.request import RequestStatus

from torl._core import Scanner
from torl.engine.vllm.messages import STOP_CONDITION_MET, TURN_KEY, Announcer, decode_turn, encode_reply
from torl.engine.vllm.process_setup import ProcessSetup

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_utils import KVCacheBlock
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
    from vllm.v1.metrics.stats import PrefillStats
    from vllm.v1.request import Request


_RESERVE = 16  # one in this many blocks is never kept
_Key = tuple[bytes, tuple[int, ...]]  # hash of the full blocks before it, and the tokens in it


def can_continue_blocks(manager: KVCacheManager) -> bool:
    """Whether the state of a prefix is only the keys and values of one kind of layer, hashed block by block."""
    managers = manager.coordinator.single_type_managers
    return (
        manager.enable_caching
        and len(managers) == 1
        and type(managers[0]) is FullAttentionManager
        and managers[0].block_size == manager.block_pool.hash_block_size
    )


class PartialBlocks:
    """Partly filled blocks, by the prefix that ends in them."""

    def __init__(self, manager: KVCacheManager) -> None:
        self._manager = manager
        self._pool = manager.block_pool
        self._block_tokens: int = self._pool.hash_block_size
        self._kept: dict[_Key, list[KVCacheBlock]] = {}  # one per turn; the oldest prefix first
        self._lent: dict[str, _Key] = {}  # by requests that may be scheduled now

    def keep(self, request: "Request", computed_tokens: int) -> None:
        """Keep the block in which a request's computed tokens end. Call this before its blocks are freed."""
        full, rest = divmod(computed_tokens, self._block_tokens)
        if rest:
            block = self._manager.get_blocks(request.request_id).blocks[0][full]
            self._kept.setdefault(self._key(request, full, rest), []).append(block)
            self._pool.touch([block])

    def extend(self, request: "Request", cached: KVCacheBlocks, computed_tokens: int) -> tuple[KVCacheBlocks, int]:
        """Extend the cached blocks of a request by the kept block that continues them, if there is one.

        At least one token of the request remains to be computed.
        """
        full = computed_tokens // self._block_tokens
        for rest in range(min(self._block_tokens, request.num_tokens - computed_tokens) - 1, 0, -1):
            key = self._key(request, full, rest)
            if blocks := self._kept.get(key):
                self._lent[request.request_id] = key
                return KVCacheBlocks(((*cached.blocks[0], blocks[0]),)), computed_tokens + rest
        return cached, computed_tokens

    def settle(self, scheduled: Container[str]) -> None:
        """Release the blocks that scheduled requests have copied. Call this after each step."""
        for request_id, key in self._lent.items():
            if request_id in scheduled:
                self._release(key)
        self._lent.clear()

    def evict(self) -> None:
        """Release the oldest blocks while few blocks are free. Call this before each step."""
        while self._kept and self._pool.get_num_free_blocks() < self._pool.num_gpu_blocks // _RESERVE:
            self._release(next(iter(self._kept)))

    def clear(self) -> None:
        """Release all blocks, because the weights change."""
        while self._kept:
            self._release(next(iter(self._kept)))

    def _key(self, request: "Request", full: int, rest: int) -> _Key:
        start = full * self._block_tokens
        # As in vLLM, the hash of the first block contains the salt.
        parent = request.block_hashes[full - 1] if full else (request.cache_salt or "").encode()
        return parent, tuple(request.all_token_ids[start : start + rest])

    def _release(self, key: _Key) -> None:
        if blocks := self._kept.get(key):
            self._pool.free_blocks([blocks.pop()])
            if not blocks:
                del self._kept[key]


@dataclass(slots=True)
class _Turn:
    """A request in the scheduler: its scanner, and its buffered output."""

    scanner: Scanner | None
    key: str
    is_message: bool  # of a chat: an end token ends it even after a call
    calls: bool = False  # whether a call has been closed
    sampled: int = 0
    # (number of pauses so far, tokens sampled before): the policy changes only during a pause.
    spans: list[tuple[int, int]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: bytearray = field(default_factory=bytearray)  # of the tokens, float32
    prefill_stats: "PrefillStats | None" = None


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
        self._pauses = 0
        alone = self.connector is None and self.num_spec_tokens == 0
        self._partial_blocks = (
            PartialBlocks(self.kv_cache_manager) if alone and can_continue_blocks(self.kv_cache_manager) else None
        )

    def add_request(self, request: "Request") -> None:
        extra_args = request.sampling_params and request.sampling_params.extra_args
        if extra_args and TURN_KEY in extra_args:
            self._turns[request.request_id] = _Turn(*decode_turn(extra_args, self._vocabulary))
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
            turn.spans.append((self._pauses, turn.sampled))
        turn.sampled += len(new_token_ids)
        if turn.scanner is not None:
            one = len(new_token_ids) == 1
            scan = turn.scanner.feed_token(new_token_ids[0]) if one else turn.scanner.feed(new_token_ids)
            if scan is not None and scan.overshoot is None:
                for block in scan.blocks:
                    self._announcer.block(turn.key, block.code)
                turn.calls |= bool(scan.blocks)
            elif scan is not None and not stopped:
                request.status = RequestStatus.FINISHED_STOPPED
                request.stop_reason = STOP_CONDITION_MET
                stopped = True
                self._keep_partial_block(request)
            elif turn.is_message and turn.calls and request.status == RequestStatus.FINISHED_STOPPED:
                self._keep_partial_block(request)
        return new_token_ids, stopped

    def _keep_partial_block(self, request: "Request") -> None:
        """Keep the last block of a turn that continues after its observation."""
        if self._partial_blocks is not None:
            # Tokens with complete keys and values: neither the last token nor tokens in flight.
            computed = request.num_computed_tokens - request.num_output_placeholders
            self._partial_blocks.keep(request, min(computed, request.num_tokens - 1))

    def schedule(self, *args: Any, **kwargs: Any) -> "SchedulerOutput":
        if self._partial_blocks is None:
            return super().schedule(*args, **kwargs)  # type: ignore[misc]
        self._partial_blocks.evict()
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        self._partial_blocks.settle(output.num_scheduled_tokens)
        return output

    def _get_local_prefix_cache_hit(self, request: "Request") -> Any:
        cached, computed, *rest = super()._get_local_prefix_cache_hit(request)  # type: ignore[misc]
        if self._partial_blocks is not None and request.request_id in self._turns:
            cached, computed = self._partial_blocks.extend(request, cached, computed)
        return cached, computed, *rest

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> bool:
        if self._partial_blocks is not None:
            self._partial_blocks.clear()
        done: bool = super().reset_prefix_cache(*args, **kwargs)  # type: ignore[misc]
        return done

    def _free_request(self, request: "Request", *args: Any, **kwargs: Any) -> Any:
        # A finished request still has to send its output; an aborted one does not.
        if request.status == RequestStatus.FINISHED_ABORTED:
            self._turns.pop(request.request_id, None)
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]

    def update_from_output(
        self, scheduler_output: "SchedulerOutput", *args: Any, **kwargs: Any
    ) -> "dict[int, EngineCoreOutputs]":
        if scheduler_output.total_num_scheduled_tokens > 0:
            self._announcer.step()
        batches: dict[int, EngineCoreOutputs] = super().update_from_output(scheduler_output, *args, **kwargs)  # type: ignore[misc]
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
        turn.token_ids += output.new_token_ids
        if output.new_logprobs is not None:
            turn.logprobs += output.new_logprobs.logprobs[:, 0].astype(np.float32, copy=False).tobytes()
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
