"""Fill in the settings that a configuration leaves to the devices of a machine."""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from torl.base.options import Choice
from torl.components.engine import LocalEngineOptions
from torl.run.config import LearnerConfig, LearningConfig, ModelRunConfig, RolloutConfig, TrainConfig
from torl.run.placement.assign import Placement, place
from torl.run.placement.machine import Machine
from torl.run.placement.sides import PlacementRequest

Config = TypeVar("Config", bound=ModelRunConfig)
_Resolved = TypeVar("_Resolved", bound=ModelRunConfig, covariant=True)

_EPISODES = 1024
_EPISODES_OF_GPU_ENGINE = 512
# For each GPU, one process of an engine and one of a rank poll it without pause.
_CORES_OF_GPU = 2


def local_engine_options(config: ModelRunConfig) -> LocalEngineOptions | None:
    """Return the options of an engine on the devices of the run.

    None for an engine elsewhere, a custom one, and a run without episodes.
    """
    options = config.engine.options
    return options if isinstance(options, LocalEngineOptions) and config.plays_episodes else None


@dataclass(frozen=True, slots=True)
class ResolvedConfig(Generic[_Resolved]):
    """A configuration with every setting that depended on the devices, and the placement of the run.

    Attributes:
        config: Complete configuration.
        placement: Devices of the learner and the engines.
    """

    config: _Resolved
    placement: Placement

    @property
    def has_known_memory(self) -> bool:
        """Whether the memory of the run can be predicted: with an engine whose memory torl knows, or none."""
        return local_engine_options(self.config) is not None or not self.config.plays_episodes


def resolve(config: Config, machine: Machine) -> ResolvedConfig[Config]:
    """Fill in the settings that `config` leaves to the devices. All other settings stay.

    Raises:
        ConfigError: The devices do not allow the requested placement.
    """
    learner = config.learner if isinstance(config, LearningConfig) else None
    options = local_engine_options(config)
    request = PlacementRequest(
        ranks=learner.ranks if learner else None,
        replicas=options.replicas if options else None,
        tensor_parallel=options.tensor_parallel if options else 1,
        learns=learner is not None,
        asynchronous=config.rollout.max_staleness > 0 and isinstance(config, TrainConfig),
        has_local_engine=options is not None,
    )
    placement = place(config.placement, request, machine)
    takes_turns = placement.colocated and bool(machine.gpus)
    update: dict[str, Any] = {
        "engine": _engine(config.engine, placement, sleeps=takes_turns),
        "rollout": _rollout(config.rollout, placement),
    }
    if learner is not None:
        update["learner"] = _learner(learner, placement, offloads=takes_turns)
    return ResolvedConfig(config.model_copy(update=update), placement)


def slow_precision(resolved: ResolvedConfig[ModelRunConfig]) -> str | None:
    """Return a warning about the settings with a dtype that the cores emulate; None without such settings."""
    config, machine = resolved.config, resolved.placement.machine
    options = local_engine_options(config)
    dtypes = {
        "engine.dtype": options.dtype if options else None,
        "learner.dtype": config.learner.dtype if isinstance(config, LearningConfig) else None,
    }
    slow = [name for name, dtype in dtypes.items() if dtype == "bfloat16"]
    if machine.gpus or not machine.emulates_bfloat16 or not slow:
        return None
    return (
        f'the cores have no instructions for bfloat16: {" and ".join(slow)} = "float32" is several times as fast, '
        "in twice the memory"
    )


def _learner(learner: LearnerConfig, placement: Placement, *, offloads: bool) -> LearnerConfig:
    offload = "while_sampling" if offloads and learner.zero_stage >= 2 else "none"
    threads = None if placement.machine.gpus else max(1, placement.learner_cores // placement.ranks_of_node)
    return learner.model_copy(
        update={
            "ranks": placement.ranks,
            "offload": _or(learner.offload, offload),
            "cpu_threads": _or(learner.cpu_threads, threads),
        }
    )


def _engine(engine: Choice[Any], placement: Placement, *, sleeps: bool) -> Choice[Any]:
    defaults: dict[str, Any] = {"sleep_while_learning": sleeps}
    if placement.replicas:
        defaults["replicas"] = placement.replicas
    if placement.learner_devices and not placement.machine.gpus and not placement.colocated and placement.replicas:
        defaults["cpu_threads"] = len(placement.engine_devices[0])
    return _fill(engine, defaults)


def _rollout(rollout: RolloutConfig, placement: Placement) -> RolloutConfig:
    machine = placement.machine
    episodes = max(_EPISODES, _EPISODES_OF_GPU_ENGINE * placement.replicas) if machine.gpus else _EPISODES
    # A sandbox starts one worker for each core by default. With GPUs, some cores remain for their processes.
    busy = _CORES_OF_GPU * len({*placement.learner_devices, *(d for r in placement.engine_devices for d in r)})
    workers = {"workers": max(1, machine.cores - busy)} if machine.gpus else {}
    return rollout.model_copy(
        update={
            "max_concurrent_episodes": _or(rollout.max_concurrent_episodes, episodes),
            "tools": {name: _fill(tool, workers) for name, tool in rollout.tools.items()},
        }
    )


def _fill(choice: Choice[Any], defaults: dict[str, Any]) -> Choice[Any]:
    """Return a choice with these values for the options that exist and are unset."""
    options = choice.options
    unset = {
        name: value
        for name, value in defaults.items()
        if name in type(options).model_fields and getattr(options, name) is None
    }
    return replace(choice, options=options.model_copy(update=unset)) if unset else choice


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value
