"""The memory of a run on cores: every process takes its part of the same memory, in every stage of a step."""

from torl.components.engine.memory import Bytes, EngineMemory
from torl.run.placement.learner_bytes import LearnerBytes
from torl.run.placement.stages import Stage, add_bytes

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
