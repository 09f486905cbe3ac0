"""What one vLLM worker holds on its GPU."""

from dataclasses import dataclass
from typing import Any

from torl.placement.learner_bytes import Bytes
from torl.placement.shape import ModelShape

_ASLEEP = 2_500_000_000  # context, NCCL and graphs, which no level of sleep gives back
_PROFILED = 2_000_000_000  # activations of the largest batch, which are no cache
_BUCKET = 1_000_000_000  # of weights on their way


@dataclass(frozen=True, slots=True)
class EngineBytes:
    """An engine of a run, per GPU."""

    options: Any
    """Of the engine "vllm"."""
    shape: ModelShape
    card: int
    """Bytes of the GPU."""

    @property
    def _itemsize(self) -> int:
        return 2 if self.options.dtype == "bfloat16" else 4

    @property
    def weights(self) -> int:
        """Of one worker of a tensor-parallel group."""
        return -(-self.shape.parameters // int(self.options.tensor_parallel)) * self._itemsize

    @property
    def token_bytes(self) -> int:
        """Keys and values of a token on one worker, which has at least one head of them, even if others have it too."""
        heads = max(1, self.shape.kv_heads // int(self.options.tensor_parallel))
        return self.shape.layers * 2 * heads * self.shape.head_size * self._itemsize

    @property
    def share(self) -> int:
        """What the engine takes for itself: weights, cache and all."""
        return int(self.card * self.options.gpu_memory_utilization)

    @property
    def cache(self) -> int:
        """What is left of it for keys and values."""
        return self.share - self.weights - _ASLEEP - _PROFILED

    @property
    def cache_tokens(self) -> int:
        """Tokens that the cache of one engine holds."""
        return max(0, self.cache) // self.token_bytes

    def awake(self) -> Bytes:
        """While it samples."""
        rest = self.share - self.weights - max(0, self.cache)
        return {"engine": rest, "engine weights": self.weights, "cache": max(0, self.cache)}

    def asleep(self) -> Bytes:
        """While the learner has the GPU."""
        return {"engine": _ASLEEP}

    def with_weights(self) -> Bytes:
        """While weights arrive: there is no cache yet."""
        return {"engine": _ASLEEP, "engine weights": self.weights, "transfer": _BUCKET}
