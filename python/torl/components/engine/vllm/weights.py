"""The weights of a running engine: their version, their updates, their memory, embeddings and heads in one copy."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from torl.base.errors import EngineError
from torl.components.engine.protocol import EngineMemoryPart
from torl.components.engine.vllm.arguments import EngineDevices
from torl.components.engine.vllm.options import VllmOptions
from torl.components.weights.rendezvous import Rendezvous

if TYPE_CHECKING:
    from torch import nn


_TAGS = {"weights": "weights", "cache": "kv_cache"}  # vLLM's names of the parts


class EngineWeights:
    """The controller's state of the weights that vLLM's processes hold."""

    def __init__(self, version: int, options: VllmOptions) -> None:
        self._version = version
        self._versions = [version]  # the sampling version, by the number of pauses so far
        self._asleep = False
        self._options = options
        self._received = asyncio.Event()  # cleared during a transfer
        self._received.set()
        self.unusable: str | None = None
        """Reason for which no token may be sampled: the weights may mix two versions."""

    @property
    def version(self) -> int:
        """Version of the weights that sample now, or would sample if the engine were awake."""
        return self._version

    @property
    def is_receiving(self) -> bool:
        """Whether a transfer is running, during which no turn may start."""
        return not self._received.is_set()

    async def wait_until_received(self) -> None:
        """Wait until no transfer is running."""
        await self._received.wait()

    def spans(self, pauses: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Policy versions of a turn.

        Args:
            pauses: Pairs of the number of pauses so far and the first token sampled after them.

        Returns:
            Pairs of a version and its first token.
        """
        return tuple((self._versions[paused], first) for paused, first in pauses)

    def cache_salt(self, start_version: int | None) -> str | None:
        """Return the salt of a request's cached blocks, which only requests of equal salt share; None for no salt.

        Blocks that outlive the weights are salted with the version at the start of the episode, so that new episodes
        find no keys and values of older policies.
        """
        if not self._options.keeps_stale_cache:
            return None
        return str(self.version if start_version is None else start_version)

    async def receive(self, llm: Any, rendezvous: Rendezvous, version: int, *, first: int, live: bool) -> None:
        """Receive weights. If this raises, the engine is `unusable`.

        Turns requested while the engine sleeps keep waiting.

        Args:
            llm: The AsyncLLM.
            rendezvous: Address of the channel.
            version: Version of the new weights.
            first: Number of the first worker among the receivers.
            live: Whether turns are being sampled.
        """
        live = live and not self._asleep
        self._received.clear()
        try:
            if live:
                mode = "wait" if self._options.on_weight_update == "drain" else "keep"
                await llm.pause_generation(mode=mode, clear_cache=False)
            await llm.collective_rpc("torl_receive_weights", args=(asdict(rendezvous), first))
            keeps_cache = live and self._options.keeps_stale_cache
            # Key-value connectors, if there are any, have copies of the blocks.
            reset = keeps_cache or await llm.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
            if not reset:
                raise EngineError("cached prefixes of the old policy are still in use")
            self._version = version
            if live:
                self._versions.append(version)
                await llm.resume_generation()
            elif not self._asleep:
                self._versions[-1] = version
        except BaseException:  # also a cancelled transfer leaves weights of two versions
            self.unusable = f"it did not take the weights of version {version}"
            raise
        finally:
            self._received.set()

    async def sleep(self, llm: Any, devices: EngineDevices) -> None:
        """Stop sampling, and on a GPU drop the weights and the cache."""
        # Level 1 would copy the weights to CPU memory although new ones replace them; level 0 moves nothing.
        await llm.sleep(level=0 if devices.on_cpu else 2)
        self._asleep = True

    async def wake(self, llm: Any, devices: EngineDevices, part: EngineMemoryPart) -> None:
        """Allocate memory for the weights, then for the cache, and sample again."""
        if part == "cache":
            # vLLM resumes its scheduler once all memory is allocated.
            self._versions.append(self.version)
            self._asleep = False
        if not devices.on_cpu or part == "cache":
            await llm.wake_up(["scheduling" if devices.on_cpu else _TAGS[part]])


def load_embeddings_in_place(model: "nn.Module") -> None:
    """Take embeddings and heads out of a layerwise reload that has begun: they are loaded into the tensors in use.

    vLLM would load them into new tensors and copy these. Only `pack_heads` processes them.
    """
    from vllm.model_executor.model_loader.reload.layerwise import _place_kernel_tensors, get_layerwise_info

    for module in _embeddings(model):
        info = get_layerwise_info(module)
        _place_kernel_tensors(module, info)
        info.reset()


def pack_heads(model: "nn.Module") -> None:
    """Pack the output heads of a model on a CPU again, from their present weights.

    vLLM keeps a packed copy of every embedding for matrix products, which only heads compute.
    """
    from torch.nn.functional import linear
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    modules = list(_embeddings(model))
    heads = [module for module in modules if isinstance(module, ParallelLMHead)] or modules
    for module in modules:
        module.cpu_linear = linear  # frees the copy
    for head in heads:
        head.quant_method.process_weights_after_loading(head)


def _embeddings(model: "nn.Module") -> "Iterator[Any]":
    """Yield the embeddings and heads with plain weights."""
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod, VocabParallelEmbedding

    for module in model.modules():
        if isinstance(module, VocabParallelEmbedding) and type(module.quant_method) is UnquantizedEmbeddingMethod:
            yield module
