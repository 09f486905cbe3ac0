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

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.core.kv_cache_utils import BlockHash, make_block_hash_with_group_id
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


_GROUP = 0  # the only group of layers, by its number


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
    """Partly filled blocks in vLLM's prefix cache, which itself caches full blocks only.

    They are free like all cached blocks of ended requests. vLLM evicts them when it needs room, the least recently used
    first and each just before the full blocks that it continues.
    """

    def __init__(self, manager: KVCacheManager) -> None:
        self._manager = manager
        self._pool = manager.block_pool
        self._block_tokens: int = self._pool.hash_block_size

    def keep(self, request: "Request", computed_tokens: int) -> None:
        """Cache the block in which a request's computed tokens end. Call this before its blocks are freed."""
        full, rest = divmod(computed_tokens, self._block_tokens)
        if rest:
            block = self._manager.get_blocks(request.request_id).blocks[0][full]
            key = make_block_hash_with_group_id(self._hash(request, full, rest), _GROUP)
            self._pool._insert_block_hash(key, block, num_tokens=computed_tokens)

    def extend(self, request: "Request", cached: KVCacheBlocks, computed_tokens: int) -> tuple[KVCacheBlocks, int]:
        """Extend the cached blocks of a request by the partial block that continues them, if there is one.

        At least one token of the request remains to be computed.
        """
        full = computed_tokens // self._block_tokens
        for rest in range(min(self._block_tokens, request.num_tokens - computed_tokens) - 1, 0, -1):
            if found := self._pool.get_cached_block(self._hash(request, full, rest), [_GROUP]):
                blocks = (*cached.blocks[0], *found)
                # A copy occupies one block more than the request, which may need all there are.
                new = -(-request.num_tokens // self._block_tokens) - full
                if new + sum(block.ref_cnt == 0 for block in blocks) <= self._pool.get_num_free_blocks():
                    return KVCacheBlocks((blocks,)), computed_tokens + rest
                break
        return cached, computed_tokens

    def forget(self, copied: Sequence["KVCacheBlock"]) -> None:
        """Make partial blocks the first to be reused once freed, because the turns that continue them have a copy."""
        partial = {block.block_id for block in copied if (block.block_hash_num_tokens or 0) % self._block_tokens}
        self._pool.evict_blocks(partial)

    def _hash(self, request: "Request", full: int, rest: int) -> BlockHash:
        """Return the hash of the full blocks before a partial block, followed by the tokens in it."""
        start = full * self._block_tokens
        # As in vLLM, the hash of the first block contains the salt.
        parent = request.block_hashes[full - 1] if full else (request.cache_salt or "").encode()
        return BlockHash(parent + array("q", request.all_token_ids[start : start + rest]).tobytes())


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
