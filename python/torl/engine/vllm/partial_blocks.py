"""Partly filled cache blocks at the end of a turn, kept for the turn that continues it.

vLLM's prefix cache holds full blocks. The tokens after a turn's last full block (half a block on average: 16 tokens on
a CPU, 8 on a GPU) would be computed again after every tool call, which is more than most observations have. Here their
block is kept until a request continues it. The request gets a copy, by vLLM's copy-on-write for prefixes that end
within a block, which vLLM uses by default only for models whose state is more than keys and values.

Runs in the engine's core process only.
"""

from collections.abc import Container
from typing import TYPE_CHECKING

from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_utils import KVCacheBlock
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
        parent = request.block_hashes[full - 1] if full else b""
        return parent, tuple(request.all_token_ids[start : start + rest])

    def _release(self, key: _Key) -> None:
        if blocks := self._kept.get(key):
            self._pool.free_blocks([blocks.pop()])
            if not blocks:
                del self._kept[key]
