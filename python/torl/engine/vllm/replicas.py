"""The engine "vllm": as many of vLLM's engines as are configured, each on its own devices."""

import functools
from dataclasses import replace
from pathlib import Path

from torl.engine.protocol import NO_POLICY, Engine, EngineSetup
from torl.engine.remote import RemoteEngine
from torl.engine.replicas import Replicas
from torl.engine.vllm.engine import VllmEngine
from torl.engine.vllm.options import VllmOptions
from torl.runtime.cluster import LocalCluster


class VllmReplicas(Replicas):
    """vLLM engines side by side."""

    def __init__(self, setup: EngineSetup, options: VllmOptions) -> None:
        """Describe the engines; `start` starts them."""
        super().__init__(
            functools.partial(_engine, setup, options),
            options.engines,
            restarts=options.max_restarts,
            policy_version=setup.policy_version,
            shares_devices=bool(options.sleep_while_learning),
            load_weights=setup.load_weights,
        )


def _engine(setup: EngineSetup, options: VllmOptions, number: int, load_weights: bool) -> Engine:
    """The engine with this number: of this process, or on its node, where it is the only one of its setup."""
    setup = replace(setup, load_weights=load_weights)
    if not setup.cluster.is_remote:
        return VllmEngine(setup, options, number=number)
    alone = replace(
        setup,
        devices=setup.devices[number : number + 1],
        cluster=LocalCluster(),
        nodes=(),
    )
    return RemoteEngine(
        setup.cluster,
        functools.partial(_engine_alone, alone, options.model_copy(update={"replicas": 1})),
        node=setup.nodes[number],
        name=f"engine {number}",
        log=setup.log_path.with_stem(f"{setup.log_path.stem}_{number}").resolve(),
        policy_version=setup.policy_version if load_weights else NO_POLICY,
        receivers=options.tensor_parallel,
    )


def _engine_alone(setup: EngineSetup, options: VllmOptions, log: Path) -> Engine:
    """On its node."""
    return VllmEngine(replace(setup, log_path=log), options)
