"""The last cache block of a turn, kept for the turn that continues from it.

vLLM's prefix cache holds full blocks. What a turn has computed beyond its last full one (half a block on average: 16
tokens on a CPU, 8 on a GPU) would be computed again after every tool call, which is more than most observations have.
Here that block is held until a request comes whose tokens continue it. The request gets a copy, by the copy-on-write
that vLLM has for prefixes that end within a block, which it uses by itself only for models with other state than keys
and values.

Runs in the engine's core process only.
"""

from collections.abc import Container
from typing import TYPE_CHECKING

from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_utils import KVCacheBlock
    from vllm.v1.request import Request

_RESERVE = 16  # one block in so many stays free of what is held here
_Key = tuple[bytes, tuple[int, ...]]  # hash of the full blocks before it, and the tokens in it


def can_continue_blocks(manager: KVCacheManager) -> bool:
    """Whether a prefix is no more than keys and values of one kind of layer, hashed block by block."""
    managers = manager.coordinator.single_type_managers
    return (
        manager.enable_caching
        and len(managers) == 1
        and type(managers[0]) is FullAttentionManager
        and managers[0].block_size == manager.block_pool.hash_block_size
    )


class PartialBlocks:
    """Blocks that are partly filled, by the text that they end."""

    def __init__(self, manager: KVCacheManager) -> None:
        self._manager = manager
        self._pool = manager.block_pool
        self._block_tokens: int = self._pool.hash_block_size
        self._held: dict[_Key, list[KVCacheBlock]] = {}  # one for each turn that ended so; the oldest text first
        self._lent: dict[str, _Key] = {}  # to requests that may be scheduled now

    def keep(self, request: "Request", computed_tokens: int) -> None:
        """Hold the block in which a request's computed tokens end; to be called before its blocks are freed."""
        full, rest = divmod(computed_tokens, self._block_tokens)
        if rest:
            block = self._manager.get_blocks(request.request_id).blocks[0][full]
            self._held.setdefault(self._key(request, full, rest), []).append(block)
            self._pool.touch([block])

    def extend(self, request: "Request", cached: KVCacheBlocks, computed_tokens: int) -> tuple[KVCacheBlocks, int]:
        """What the prefix cache found for a request, and the block that continues it, if one is held.

        At least one token of the request is left to compute.
        """
        full = computed_tokens // self._block_tokens
        for rest in range(min(self._block_tokens, request.num_tokens - computed_tokens) - 1, 0, -1):
            key = self._key(request, full, rest)
            if blocks := self._held.get(key):
                self._lent[request.request_id] = key
                return KVCacheBlocks(((*cached.blocks[0], blocks[0]),)), computed_tokens + rest
        return cached, computed_tokens

    def settle(self, scheduled: Container[str]) -> None:
        """After each step: what a scheduled request has been given a copy of is held no longer."""
        for request_id, key in self._lent.items():
            if request_id in scheduled:
                self._release(key)
        self._lent.clear()

    def evict(self) -> None:
        """Before each step: give up the oldest while few blocks are free."""
        while self._held and self._pool.get_num_free_blocks() < self._pool.num_gpu_blocks // _RESERVE:
            self._release(next(iter(self._held)))

    def clear(self) -> None:
        """Give up all: the weights change."""
        while self._held:
            self._release(next(iter(self._held)))

    def _key(self, request: "Request", full: int, rest: int) -> _Key:
        start = full * self._block_tokens
        parent = request.block_hashes[full - 1] if full else b""
        return parent, tuple(request.all_token_ids[start : start + rest])

    def _release(self, key: _Key) -> None:
        if blocks := self._held.get(key):
            self._pool.free_blocks([blocks.pop()])
            if not blocks:
                del self._held[key]
