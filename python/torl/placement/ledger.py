"""The bytes of a run on every GPU and in the host, in every stage of a step (`torl.training.residency`)."""

from dataclasses import dataclass

from torl.config import LearningConfig
from torl.errors import ConfigError
from torl.placement.assign import Placement
from torl.placement.learner_bytes import Bytes, LearnerBytes, page_locked_bytes
from torl.placement.resolve import LocalEngineOptions, ResolvedConfig, local_engine_options
from torl.placement.shape import ModelShape

_ASLEEP = 2_500_000_000  # context and graphs, which a sleeping engine keeps
_PARALLEL = 500_000_000  # NCCL and the buffers of all-reduces, of tensor-parallel workers
_PROFILED = 2_000_000_000  # activations of the largest batch, which reduce the cache
_BUCKETS = 2 * (256 << 20)  # of weights in transfer, as in `torl.weights.channel`


@dataclass(frozen=True, slots=True)
class EngineBytes:
    """Bytes of an engine on each of its GPUs, as vLLM allocates them.

    Attributes:
        options: Options of the engine.
        shape: Shape of the model.
        card: Bytes of the GPU.
    """

    options: LocalEngineOptions
    shape: ModelShape
    card: int

    @property
    def _itemsize(self) -> int:
        return 2 if self.options.dtype == "bfloat16" else 4

    @property
    def weights(self) -> int:
        """Bytes of the weights of one tensor-parallel worker."""
        return -(-self.shape.parameters // self.options.tensor_parallel) * self._itemsize

    @property
    def token_bytes(self) -> int:
        """Bytes of a token's keys and values on one worker, which holds at least one head, if necessary a copy."""
        heads = max(1, self.shape.kv_heads // self.options.tensor_parallel)
        return self.shape.layers * 2 * heads * self.shape.head_size * self._itemsize

    @property
    def share(self) -> int:
        """Bytes that the engine uses in total."""
        return int(self.card * self.options.gpu_memory_utilization)

    @property
    def _kept(self) -> int:
        """Bytes that the engine keeps while it sleeps."""
        return _ASLEEP + _PARALLEL * (self.options.tensor_parallel > 1)

    @property
    def cache(self) -> int:
        """Bytes that remain for keys and values. Negative if the weights do not fit."""
        return self.share - self.weights - self._kept - _PROFILED

    @property
    def cache_tokens(self) -> int:
        """Number of tokens that the cache of one engine holds."""
        return max(0, self.cache) // self.token_bytes

    def awake(self) -> Bytes:
        """Return the bytes of an engine that samples."""
        rest = self.share - self.weights - max(0, self.cache)
        return {"engine": rest, "engine weights": self.weights, "cache": max(0, self.cache)}

    def asleep(self) -> Bytes:
        """Return the bytes of an engine that sleeps."""
        return {"engine": self._kept}

    def with_weights(self) -> Bytes:
        """Return the bytes of an engine that receives weights, before it allocates its cache.

        The largest tensor exists twice more: put together from buckets, and in the layer that is being loaded.
        """
        transfer = _BUCKETS + 2 * self.shape.embedding_parameters * self._itemsize
        return {"engine": self._kept, "engine weights": self.weights, "transfer": transfer}


@dataclass(frozen=True, slots=True)
class Stage:
    """The memory of a run during one stage of a step.

    Attributes:
        name: Name of the stage.
        learner: Bytes on each GPU of the learner.
        engine: Bytes on each GPU of the engines.
        host: Bytes in CPU memory, of all nodes together.
    """

    name: str
    learner: Bytes
    engine: Bytes
    host: Bytes

    def on_gpu(self, gpu: int, placement: Placement) -> Bytes:
        """Return the bytes on one GPU, by purpose."""
        engines = {device for replica in placement.engine_devices for device in replica}
        sides = [self.learner] * (gpu in placement.learner_devices) + [self.engine] * (gpu in engines)
        return {name: side[name] for side in sides for name in side if side[name]}


@dataclass(frozen=True, slots=True)
class Ledger:
    """The memory of a run in all stages.

    Attributes:
        placement: Devices of the run.
        stages: Stages of a step, in order.
        learner: Bytes of the learner.
        engine: Bytes of an engine. None for a run without episodes.
    """

    placement: Placement
    stages: tuple[Stage, ...]
    learner: LearnerBytes
    engine: EngineBytes | None

    def excess(self) -> list[tuple[Stage, str, int, int]]:
        """List shortages of memory as (stage, location, bytes needed, bytes available).

        The locations are the first GPU of each stage that is too small, the host, and the cache of an engine.
        """
        shortages = []
        for stage in self.stages:
            for gpu, card in enumerate(self.placement.machine.gpus):
                needed = sum(stage.on_gpu(gpu, self.placement).values())
                if needed > card.free_bytes:
                    shortages.append((stage, f"GPU {gpu}", needed, card.free_bytes))
                    break
        fullest = max(self.stages, key=lambda stage: sum(stage.host.values()))
        host = sum(fullest.host.values())
        if host > self.placement.machine.host_bytes:
            shortages.append((fullest, "host", host, self.placement.machine.host_bytes))
        engine = self.engine
        if engine is not None and engine.cache_tokens < self.min_cache_tokens:
            needed = engine.share + self.min_cache_tokens * engine.token_bytes - engine.cache
            sampling = next(stage for stage in self.stages if stage.name == "sample")
            shortages.append((sampling, "cache for one sample", needed, engine.share))
        return shortages

    @property
    def min_cache_tokens(self) -> int:
        """Number of tokens of the longest sample. An engine whose cache is smaller does not start."""
        config = self.learner.config
        return config.longest_prompt + config.longest_response


def compute_ledger(resolved: ResolvedConfig[LearningConfig], shape: ModelShape) -> Ledger:
    """Compute the memory of a run on GPUs.

    Raises:
        ConfigError: The memory of the engine cannot be predicted.
    """
    config, placement = resolved.config, resolved.placement
    options = local_engine_options(config)
    if options is None and config.plays_episodes:
        raise ConfigError(f"the memory of the engine {config.engine.name!r} cannot be predicted")
    learner = LearnerBytes(config, shape, placement.ranks)
    card = min(gpu.memory_bytes for gpu in placement.machine.gpus)
    engine = None if options is None else EngineBytes(options, shape, card)
    offloaded = learner.always()
    resident = offloaded | learner.parameters() | learner.optimizer()
    between = offloaded | learner.parameters()
    moves, sleeps = bool(config.learner.offload_while_sampling), options is not None and options.sleep_while_learning
    awake = {} if engine is None else engine.awake()
    idle = engine.asleep() if engine is not None and sleeps else awake
    receiving = engine.with_weights() if engine is not None and sleeps else awake
    waiting = offloaded if moves else resident
    starts_alone = placement.colocated
    host = {name: size * placement.ranks for name, size in _host_bytes(learner).items()}
    loading = {"tensor being read": learner.shape.embedding_parameters * learner.itemsize}  # by rank 0
    stages = (
        Stage("load", _sum(offloaded, _loading_bytes(learner)), {} if starts_alone else awake, loading),
        Stage("sample", waiting, awake, host),
        Stage("update", _sum(resident, learner.backward()), idle, host),
        Stage("step", _sum(resident, learner.step()), idle, host),
        Stage("wake", between if moves else resident, receiving, host),
        Stage("sync", _sum(between if moves else resident, learner.gathering()), receiving, host),
        # The checkpoint is written during the next rollouts, the export after the last step.
        Stage("checkpoint", waiting, awake, _sum(host, {"copy": learner.written * placement.ranks})),
        Stage("export", _sum(resident, learner.gathering()), idle, _sum(host, {"model": learner.exported})),
    )
    return Ledger(placement, stages, learner, engine)


def _sum(*parts: Bytes) -> Bytes:
    total: Bytes = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total


def _loading_bytes(learner: LearnerBytes) -> Bytes:
    """Return the bytes on a GPU while the model is loaded. Adam's state is allocated in the first step."""
    states = {name: size for name, size in learner.optimizer().items() if name != "Adam"}
    return learner.parameters() | states | learner.gathering()


def _host_bytes(learner: LearnerBytes) -> Bytes:
    """Return the bytes of a rank in CPU memory, including page-locked buffers of states that are on the GPU again.

    Gradients are not offloaded: between steps they are zero.
    """
    config = learner.config.learner
    if config.offload_while_sampling:
        return learner.page_locked()
    host: Bytes = {}
    if config.offload_optimizer:
        host["optimizer"] = learner.page_locked_optimizer()
    if config.offload_parameters:
        host["parameters"] = sum(page_locked_bytes(model.weights) for model in learner.models)
    return host
