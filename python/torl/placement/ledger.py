"""The bytes of a run on every GPU and in the host, in every stage of a step: the moves of `torl.training.residency`."""

from dataclasses import dataclass
from typing import Any

from torl.config import TrainConfig
from torl.placement.assign import Placement
from torl.placement.engine_bytes import EngineBytes
from torl.placement.learner_bytes import Bytes, LearnerBytes
from torl.placement.resolve import ResolvedConfig
from torl.placement.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Stage:
    """One state of a run, the bytes of each of its GPUs and of the host."""

    name: str
    learner: Bytes
    """On each GPU of the learner."""
    engine: Bytes
    """On each GPU of the engines."""
    host: Bytes

    def on_gpu(self, gpu: int, placement: Placement) -> Bytes:
        """What one GPU holds, by what it is for."""
        engines = {device for replica in placement.engine_devices for device in replica}
        held = [self.learner] * (gpu in placement.learner_devices) + [self.engine] * (gpu in engines)
        return {name: side[name] for side in held for name in side if side[name]}


@dataclass(frozen=True, slots=True)
class Ledger:
    """All stages of a settled run."""

    placement: Placement
    stages: tuple[Stage, ...]
    learner: LearnerBytes
    engine: EngineBytes

    def excess(self) -> list[tuple[Stage, str, int, int]]:
        """What does not fit: (stage, place, bytes needed, bytes there), the first GPU of each stage, and the host."""
        found = []
        for stage in self.stages:
            for gpu, card in enumerate(self.placement.machine.gpus):
                needed = sum(stage.on_gpu(gpu, self.placement).values())
                if needed > card.memory_bytes:
                    found.append((stage, f"GPU {gpu}", needed, card.memory_bytes))
                    break
        fullest = max(self.stages, key=lambda stage: sum(stage.host.values()))
        host = sum(fullest.host.values())
        if host > self.placement.machine.host_bytes:
            found.append((fullest, "host", host, self.placement.machine.host_bytes))
        if self.engine.cache_tokens < self.min_cache_tokens:
            needed = self.engine.share + self.min_cache_tokens * self.engine.token_bytes - self.engine.cache
            sampling = next(stage for stage in self.stages if stage.name == "sample")
            found.append((sampling, "cache for one sample", needed, self.engine.share))
        return found

    @property
    def min_cache_tokens(self) -> int:
        """The longest sample: an engine that cannot hold one does not start."""
        config = self.learner.config
        return config.longest_prompt + config.rollout.max_response_tokens


def ledger(settled: ResolvedConfig[TrainConfig], shape: ModelShape) -> Ledger:
    """The ledger of a run with the engine "vllm" on GPUs."""
    config, placement = settled.config, settled.placement
    options: Any = config.engine.options
    learner = LearnerBytes(config, shape, placement.ranks)
    engine = EngineBytes(options, shape, min(gpu.memory_bytes for gpu in placement.machine.gpus))
    away = learner.always()
    resident = away | learner.parameters() | learner.optimizer()
    between = away | learner.parameters()
    moves, sleeps = bool(config.learner.offload_while_sampling), bool(options.sleep_while_learning)
    idle = engine.asleep() if sleeps else engine.awake()
    arriving = engine.with_weights() if sleeps else engine.awake()
    waiting = away if moves else resident
    first = placement.colocated  # the learner starts alone
    kept = _kept(learner)
    host = {name: size * placement.ranks for name, size in kept.items()}
    read = _being_read(learner, placement.ranks)
    stages = (
        Stage("load", _sum(away, _loaded(learner)), {} if first else engine.awake(), read),
        Stage("sample", waiting, engine.awake(), host),
        Stage("update", _sum(resident, learner.backward()), idle, host),
        Stage("step", _sum(resident, learner.step()), idle, host),
        Stage("wake", between if moves else resident, arriving, host),
        Stage("sync", _sum(between if moves else resident, learner.gathering()), arriving, host),
        # What follows goes on beside the next rollouts, and comes after the last of them.
        Stage("checkpoint", waiting, engine.awake(), _sum(host, {"copy": learner.written * placement.ranks})),
        Stage("export", _sum(resident, learner.gathering()), idle, _sum(host, {"model": learner.exported})),
    )
    return Ledger(placement, stages, learner, engine)


def _sum(*parts: Bytes) -> Bytes:
    total: Bytes = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total


def _loaded(learner: LearnerBytes) -> Bytes:
    """Adam's state comes with the first step. Under ZeRO-3 one tensor after another is handed out."""
    states = {name: size for name, size in learner.optimizer().items() if name != "Adam"}
    return learner.parameters() | states | learner.gathering()


def _being_read(learner: LearnerBytes, ranks: int) -> Bytes:
    """In the host: a rank's whole model before it goes to the GPU; under ZeRO-3 one tensor of rank 0."""
    if learner.config.learner.zero_stage == 3:
        return {"tensor being read": learner.shape.embedding_parameters * learner.itemsize}
    return {"models being read": learner.shape.parameters * learner.itemsize * ranks}


def _kept(learner: LearnerBytes) -> Bytes:
    """What a rank has in CPU memory: what is always there, and what was moved there once, which stays page-locked.

    Gradients are not moved: between steps they are zero.
    """
    config = learner.config.learner
    kept = learner.parameters() | learner.optimizer() | {"gradients": 0} if config.offload_while_sampling else {}
    if config.offload_optimizer:
        kept = kept | {"optimizer": sum(model.master + model.adam + model.gradients for model in learner.models)}
    if config.offload_parameters:
        kept = kept | {"parameters": sum(model.weights for model in learner.models)}
    return kept
