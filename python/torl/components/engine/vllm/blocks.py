"""Blocks of vLLM's cache of keys and values: partly filled ones that are kept, and allocation without work.

Runs in the engine's core process only. The tests compare the contents of all blocks with a device that remembers what
it computed, and each allocation that is skipped with vLLM's own.
"""

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.core.kv_cache_utils import BlockHash, make_block_hash_with_group_id
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_utils import KVCacheBlock
    from vllm.v1.request import Request


_GROUP = 0  # the only group of layers, by its number


def has_one_kind_of_blocks(manager: KVCacheManager) -> bool:
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


def skip_needless_allocation(manager: KVCacheManager) -> None:
    """Let the tokens of a manager with one kind of blocks pass by vLLM's allocation if it would change nothing.

    vLLM goes through it for each token of each request, twice, which is a third of its scheduler's time; on a GPU, that
    time may exceed the forward pass of a small model. Only one token in a block needs another block, and one completes
    it.
    """
    (blocks,) = manager.coordinator.single_type_managers
    block_tokens = blocks.block_size
    allocate, cache = manager.allocate_slots, manager.cache_blocks

    def allocate_slots(
        request: "Request", num_new_tokens: int, *args: Any, num_lookahead_tokens: int = 0, **kwargs: Any
    ) -> KVCacheBlocks | None:
        if not (args or kwargs or num_lookahead_tokens):  # they are given for a request that starts, or for drafts
            end, request_id = request.num_computed_tokens + num_new_tokens, request.request_id
            has_room = end <= block_tokens * len(blocks.req_to_blocks.get(request_id, ()))
            if has_room and end // block_tokens <= blocks.num_cached_block.get(request_id, 0):
                return manager.empty_kv_cache_blocks
        return allocate(request, num_new_tokens, *args, num_lookahead_tokens=num_lookahead_tokens, **kwargs)

    def cache_blocks(request: "Request", num_computed_tokens: int) -> None:
        if num_computed_tokens // block_tokens > blocks.num_cached_block.get(request.request_id, 0):
            cache(request, num_computed_tokens)

    manager.allocate_slots = allocate_slots
    manager.cache_blocks = cache_blocks
