"""What a configuration leaves to the devices, filled in for those of a machine."""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from torl.config import LearnerConfig, ModelRunConfig, RolloutConfig, TrainConfig
from torl.options import Choice
from torl.placement.assign import Placement, place
from torl.placement.machine import Machine
from torl.placement.sides import PlacementRequest
from torl.rewards import RubricOptions
from torl.rewards.math import MIN_WORKERS

Config = TypeVar("Config", bound=ModelRunConfig)

REPLICAS = "replicas"  # the option of an engine that says how many stand side by side
_EPISODES = 1024
_EPISODES_OF_GPU_ENGINE = 512
# The processes of an engine and of a rank beside each GPU wait for it busily.
_CORES_OF_GPU = 2
_CORES_OF_GRADER = 8


@dataclass(frozen=True, slots=True)
class ResolvedConfig(Generic[Config]):
    """A configuration with nothing left to the devices, and where its parts are."""

    config: Config
    placement: Placement

    @property
    def counted(self) -> bool:
        """Whether its bytes are known: it runs on GPUs, and the engine is not one of the user's own."""
        return bool(self.placement.machine.gpus) and REPLICAS in type(self.config.engine.options).model_fields


def resolve(config: Config, machine: Machine) -> ResolvedConfig[Config]:
    """Fill in what `config` leaves to the devices; what it says stays.

    Raises:
        ConfigError: what is asked for does not fit the devices.
    """
    learner = config.learner if isinstance(config, TrainConfig) else None
    options: Any = config.engine.options
    here = REPLICAS in type(options).model_fields
    wanted = PlacementRequest(
        ranks=learner.ranks if learner else None,
        replicas=getattr(options, REPLICAS) if here else None,
        tensor_parallel=options.tensor_parallel if here else 1,
        learns=learner is not None,
        asynchronous=config.rollout.max_staleness > 0 and learner is not None,
        has_local_engine=here,
    )
    placement = place(config.placement, wanted, machine)
    turns = placement.colocated and bool(machine.gpus)
    update: dict[str, Any] = {
        "engine": _engine(config.engine, placement, sleeps=turns),
        "rollout": _rollout(config.rollout, placement),
        "reward": _reward(config.reward, {"grader_workers": max(MIN_WORKERS, machine.cores // _CORES_OF_GRADER)}),
    }
    if learner is not None:
        update["learner"] = _learner(learner, placement, moves=turns)
    return ResolvedConfig(config.model_copy(update=update), placement)


def _learner(learner: LearnerConfig, placement: Placement, *, moves: bool) -> LearnerConfig:
    can_move = learner.zero_stage >= 2 and not (learner.offload_optimizer or learner.offload_parameters)
    threads = None if placement.machine.gpus else max(1, placement.learner_cores // placement.ranks_of_node)
    return learner.model_copy(
        update={
            "ranks": placement.ranks,
            "offload_while_sampling": _or(learner.offload_while_sampling, moves and can_move),
            "cpu_threads": _or(learner.cpu_threads, threads),
        }
    )


def _engine(engine: Choice[Any], placement: Placement, *, sleeps: bool) -> Choice[Any]:
    defaults: dict[str, Any] = {"sleep_while_learning": sleeps}
    if placement.replicas:
        defaults[REPLICAS] = placement.replicas
    if placement.learner_devices and not placement.machine.gpus and not placement.colocated and placement.replicas:
        defaults["cpu_threads"] = len(placement.engine_devices[0])
    return _filled(engine, defaults)


def _rollout(rollout: RolloutConfig, placement: Placement) -> RolloutConfig:
    machine = placement.machine
    episodes = max(_EPISODES, _EPISODES_OF_GPU_ENGINE * placement.replicas) if machine.gpus else _EPISODES
    # A sandbox with workers of its own has one for each core, unless processes of the GPUs need some.
    busy = _CORES_OF_GPU * len({*placement.learner_devices, *(d for r in placement.engine_devices for d in r)})
    workers = {"workers": max(1, machine.cores - busy)} if machine.gpus else {}
    return rollout.model_copy(
        update={
            "max_concurrent_episodes": _or(rollout.max_concurrent_episodes, episodes),
            "tools": {name: _filled(tool, workers) for name, tool in rollout.tools.items()},
        }
    )


def _reward(choice: Choice[Any], defaults: dict[str, Any]) -> Choice[Any]:
    options = choice.options
    if not isinstance(options, RubricOptions):
        return _filled(choice, defaults)
    parts = {name: _filled(part, defaults) for name, part in options.parts.items()}
    return replace(choice, options=options.model_copy(update={"parts": parts}))


def _filled(choice: Choice[Any], defaults: dict[str, Any]) -> Choice[Any]:
    """A choice whose options have these values where they exist and are unset."""
    options: Any = choice.options
    unset = {
        name: value
        for name, value in defaults.items()
        if name in type(options).model_fields and getattr(options, name) is None
    }
    return replace(choice, options=options.model_copy(update=unset)) if unset else choice


def _or(given: Any, default: Any) -> Any:
    return default if given is None else given
