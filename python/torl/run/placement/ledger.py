"""The bytes of a run in every stage of a step, on every GPU and in CPU memory (`torl.training.residency`)."""

from dataclasses import dataclass

from torl.base.errors import ConfigError
from torl.components.engine.memory import Bytes, EngineMemory
from torl.components.hub.shape import ModelShape
from torl.run.config import LearningConfig
from torl.run.placement.assign import Placement
from torl.run.placement.learner_bytes import LearnerBytes
from torl.run.placement.resolve import ResolvedConfig, local_engine_options
from torl.run.placement.states import page_locked_bytes


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


def add_bytes(*parts: Bytes) -> Bytes:
    """Add bytes by purpose."""
    total: Bytes = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total


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
    engine: EngineMemory | None

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
        host = sum(self.fullest.host.values())
        if host > self.placement.machine.host_bytes:
            shortages.append((self.fullest, "host", host, self.placement.machine.host_bytes))
        engine = self.engine
        if engine is not None and engine.cache_tokens < self.min_cache_tokens:
            needed = engine.share + self.min_cache_tokens * engine.token_bytes - engine.cache
            sampling = next(stage for stage in self.stages if stage.name == "sample")
            shortages.append((sampling, "cache for one sample", needed, engine.share))
        return shortages

    @property
    def fullest(self) -> Stage:
        """Stage that needs the most CPU memory."""
        return max(self.stages, key=lambda stage: sum(stage.host.values()))

    @property
    def min_cache_tokens(self) -> int:
        """Number of tokens of the longest sample. An engine whose cache is smaller does not start."""
        config = self.learner.config
        return config.longest_prompt + config.longest_response


def compute_ledger(resolved: ResolvedConfig[LearningConfig], shape: ModelShape) -> Ledger:
    """Compute the memory of a run, on GPUs or on cores.

    Raises:
        ConfigError: The memory of the engine cannot be predicted.
    """
    config, placement = resolved.config, resolved.placement
    options = local_engine_options(config)
    if options is None and config.plays_episodes:
        raise ConfigError(f"the memory of the engine {config.engine.name!r} cannot be predicted")
    gpus = placement.machine.gpus
    learner = LearnerBytes(config, shape, placement.ranks, on_cores=not gpus)
    engine, workers = None, 0
    if options is not None:
        used = [gpus[device].memory_bytes for devices in placement.engine_devices for device in devices] if gpus else []
        engine, workers = options.memory(shape, min(used, default=None)), placement.replicas * options.tensor_parallel
    if not gpus:
        return Ledger(placement, core_stages(learner, engine, workers), learner, engine)
    sleeps = options is not None and bool(options.sleep_while_learning)
    return Ledger(placement, _gpu_stages(learner, engine, placement, sleeps=sleeps), learner, engine)


def _gpu_stages(
    learner: LearnerBytes, engine: EngineMemory | None, placement: Placement, *, sleeps: bool
) -> tuple[Stage, ...]:
    config = learner.config
    offloaded = learner.always()
    resident = offloaded | learner.parameters() | learner.optimizer()
    between = offloaded | learner.parameters()
    moves = bool(config.learner.offloads_while_sampling)
    awake = {} if engine is None else engine.awake()
    idle = engine.asleep() if engine is not None and sleeps else awake
    receiving = engine.with_weights() if engine is not None and sleeps else awake
    waiting = offloaded if moves else resident
    starts_alone = placement.colocated
    host = {name: size * placement.ranks for name, size in _host_bytes(learner).items()}
    loading = {"tensor being read": learner.shape.embedding_parameters * learner.itemsize}  # by rank 0
    return (
        Stage("load", add_bytes(offloaded, _loading_bytes(learner)), {} if starts_alone else awake, loading),
        Stage("sample", waiting, awake, host),
        Stage("update", add_bytes(resident, learner.backward()), idle, host),
        Stage("step", add_bytes(resident, learner.step()), idle, host),
        Stage("wake", between if moves else resident, receiving, host),
        Stage("sync", add_bytes(between if moves else resident, learner.gathering()), receiving, host),
        # The checkpoint is written during the next rollouts, the export after the last step.
        Stage("checkpoint", waiting, awake, add_bytes(host, {"copy": learner.written * placement.ranks})),
        Stage("export", add_bytes(resident, learner.gathering()), idle, add_bytes(host, {"model": learner.exported})),
    )


def _loading_bytes(learner: LearnerBytes) -> Bytes:
    """Return the bytes on a GPU while the model is loaded. Adam's state is allocated in the first step."""
    states = {name: size for name, size in learner.optimizer().items() if name != "Adam"}
    return learner.parameters() | states | learner.gathering()


def _host_bytes(learner: LearnerBytes) -> Bytes:
    """Return the bytes of a rank in CPU memory, including page-locked buffers of states that are on the GPU again.

    Gradients are not offloaded: between steps they are zero.
    """
    config = learner.config.learner
    if config.offloads_while_sampling:
        return learner.page_locked()
    host: Bytes = {}
    if config.offloads_optimizer:
        host["optimizer"] = learner.page_locked_optimizer()
    if config.offloads_parameters:
        host["parameters"] = sum(page_locked_bytes(model.weights) for model in learner.models)
    return host


_CONTROLLER = 1_100_000_000  # with the graders and idle workers of the sandbox


def core_stages(learner: LearnerBytes, engine: EngineMemory | None, workers: int) -> tuple[Stage, ...]:
    """Return the stages of a step on cores, whose bytes are all in CPU memory.

    Args:
        learner: Bytes of each rank. Neither a rank nor an engine moves its memory elsewhere.
        engine: Bytes of each worker of the engines. None for a run without episodes.
        workers: Number of workers of all engines together.
    """
    ranks = learner.ranks
    resident = add_bytes({"controller": _CONTROLLER}, _times(ranks, learner.always()))
    resident = add_bytes(resident, _times(ranks, add_bytes(learner.parameters(), learner.optimizer())))
    awake = {} if engine is None else _times(workers, engine.awake())
    receiving = {} if engine is None else _times(workers, engine.with_weights())
    update, step, sync = (_times(ranks, part) for part in (learner.backward(), learner.step(), learner.gathering()))
    copy, model = {"copy": learner.written * ranks}, {"model": learner.exported}
    return (
        _stage("sample", resident, awake),
        _stage("update", resident, awake, update),
        _stage("step", resident, awake, step),
        _stage("sync", resident, receiving, sync),
        # The checkpoint is written during the next rollouts, the export after the last step.
        _stage("checkpoint", resident, awake, copy),
        _stage("export", resident, awake, sync, model),
    )


def _stage(name: str, *parts: Bytes) -> Stage:
    return Stage(name, learner={}, engine={}, host=add_bytes(*parts))


def _times(count: int, part: Bytes) -> Bytes:
    return {name: size * count for name, size in part.items()}
